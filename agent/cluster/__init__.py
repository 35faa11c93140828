"""Other agents: leaders as hints, zones, reads from peers."""
