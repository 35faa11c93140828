"""How many small objects commits of tables may store: what bounds their requests and their CPU time.

A commit of a few rows stores as many objects as one of many: a file for each partition, a manifest, a list
and the metadata. What that costs does not go with the data but with the number of topics, so it has a bound
of its own: where topics want more, each is committed less often, whoever waits longest first. Commits of much
data are not counted, and wait for nobody: a topic that has waited comes to be one of them.
"""

from __future__ import annotations

BESIDE_FILES = 3
"""Objects of a commit beside its data files: a manifest, the list of manifests, the metadata."""

LARGE_BYTES = 256 << 10
"""Bytes of data for each object of a commit from which on it is not counted."""

BURST_S = 30.0
"""Seconds of the bound that may be taken at once after a rest."""


class Pace:
    """A bucket of objects. Times are of one steady clock, seconds; the bucket is full at first."""

    def __init__(self, objects_per_s: float) -> None:
        """`objects_per_s`: that may be stored on average; 0: no bound."""
        self._rate = objects_per_s
        self._left = objects_per_s * BURST_S
        self._at: float | None = None

    def allows(self, now: float) -> bool:
        """Whether a small commit may be made."""
        if self._at is not None:
            self._left = min(self._rate * BURST_S, self._left + (now - self._at) * self._rate)
        self._at = now
        return not self._rate or self._left > 0

    def large(self, files: int, size: int) -> bool:
        """Whether a commit of so many data files and bytes is one of much data; else it is counted."""
        objects = files + BESIDE_FILES
        if size >= objects * LARGE_BYTES:
            return True
        self._left -= objects
        return False
