"""Jobs that read topics as tables and write their results as tables."""
