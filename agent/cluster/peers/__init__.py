"""Reads of recent chunks from agents of the same zone instead of the bucket."""
