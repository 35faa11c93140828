"""The audit log: from what this agent saw to lines and to the topic that keeps it."""
