"""`floe serve --follow`: a read-only replica of a cluster, made of the bucket that the cluster is in."""
