"""AVRO schemas. See README.md."""
