"""Who may do what: the table of needs, the decision, what shadow mode saw. See README.md."""
