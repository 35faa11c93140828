"""A new log from what the bucket has of a lost one."""
