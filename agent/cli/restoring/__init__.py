"""`floe restore topic`: a topic as it was, into a new one. Start reading at run.py."""
