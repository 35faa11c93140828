"""JSON Schema. See README.md."""
