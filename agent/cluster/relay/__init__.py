"""One agent of a zone follows etcd, the others follow it. Start at log.py."""
