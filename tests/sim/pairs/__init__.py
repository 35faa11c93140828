"""Two faults at once, by coverage: pairs of kinds that no run has seen are preferred."""
