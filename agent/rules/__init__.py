"""Evaluates protovalidate's rules in worker processes, which all topics of the agent share."""
