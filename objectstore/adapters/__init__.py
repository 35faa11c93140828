"""The places where objects can live. Use objectstore.open.open_store to get one."""
