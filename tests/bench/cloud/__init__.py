"""A bench with the delays of a real object store: the delays, who imposes them, an open-loop load."""
