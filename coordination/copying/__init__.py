"""A copy of a whole cluster in another bucket, made of the bucket it lives in."""
