"""Record chunks in an object store: the port, its adapters, the formats and the readers."""
