"""Schemas of the registry: parsed, made canonical, told as text, compared. See README.md."""
