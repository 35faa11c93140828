"""What is told of an agent: logs, metrics, the measured log."""
