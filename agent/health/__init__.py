"""How well this agent is, and whether clients are sent to it. Start at health.py."""
