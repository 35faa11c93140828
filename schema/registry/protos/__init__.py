"""Protobuf files that schemas may import without registering them (schema/registry/known.py)."""
