"""A second table per topic: of each record key the newest row (README.md)."""
