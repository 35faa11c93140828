"""The ordered log and its state machine: every decision of a Floe cluster is made here."""
