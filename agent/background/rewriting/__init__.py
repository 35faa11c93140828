"""Jobs that write records again: merging of small slices, compaction by key."""
