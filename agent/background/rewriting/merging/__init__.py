"""Merging: small slices become per-partition segments, and references to them are swapped by one command."""
