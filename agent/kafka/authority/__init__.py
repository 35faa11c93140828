"""Who may do what: the table of needs, the decision. See README.md."""
