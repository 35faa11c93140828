"""Jobs beside serving: rewriting, retention, expiry, collection, tables. No sockets, no handlers."""
