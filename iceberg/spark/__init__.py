"""Spark over Floe's tables: the session, the pipelines and the audit that table and topic are equal."""
