"""The log as it goes to the bucket: entries in sealed pieces, chained by hash."""
