"""Retention: how far log starts move (pure), and the job that proposes it."""
