"""Scrub: what lies in the bucket is read again, checked, and mended from what is held twice."""
