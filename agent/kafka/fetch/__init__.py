"""The fetch path: a pure planner, and a driver that reads and waits."""
