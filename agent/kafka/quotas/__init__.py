"""What clients may take of one agent, and how those who take more are slowed down."""
