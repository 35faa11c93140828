"""Consumer groups: coordination.state decides, this package runs them. Start at coordinator.py."""
