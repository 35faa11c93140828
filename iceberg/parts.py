"""A file in memory that is several pieces: it is read, and stored, without being made one first.

To copy a file's pieces together takes as much memory once more, which the system clears before.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate


class PartsReader(io.RawIOBase):
    """The pieces as a file that can be read anywhere. Each is octets (format B); none is empty."""

    def __init__(self, parts: Sequence[memoryview]) -> None:
        self._parts = parts
        self._starts = [0, *accumulate(part.nbytes for part in parts)]
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Bytes from the start."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go there; beyond the end nothing is read."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._starts[-1]}[whence]
        return self._at

    def readinto(self, into: bytearray | memoryview) -> int:  # type: ignore[override]  # any buffer: typeshed
        """As many bytes as there are and fit; 0 at the end."""
        out = memoryview(into).cast("B")
        done = 0
        number = bisect_right(self._starts, self._at) - 1
        while done < len(out) and number < len(self._parts):
            begin = self._at - self._starts[number]
            some = self._parts[number][begin : begin + len(out) - done]
            out[done : done + len(some)] = some
            done, self._at, number = done + len(some), self._at + len(some), number + 1
        return done
