"""The consumer rebalance protocol (KIP-848): pure planners, and the driver of the groups of this agent."""
