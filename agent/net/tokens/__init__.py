"""Tokens of an authorization server: whose keys count, and what a token says."""
