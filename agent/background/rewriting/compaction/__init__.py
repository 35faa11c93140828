"""Compaction: which partitions are due (pure), and the job that rewrites them."""
