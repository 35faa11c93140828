"""Pieces that a merge could not read, and leaves where they are until it tries again.

A segment that cannot be read stays in its manifest, and new segments grow behind it. A row of the tail that
cannot be read stays in the tail with everything behind it: what lies before it is merged. Each is tried
again after `patience_s`, since an object may be restored, and damage may be passed over (`../salvage.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.background.rewriting.decisions import NOWHERE
from agent.background.rewriting.patience import patience_s
from objectstore.naming import SegmentId, SliceRef
from objectstore.offset_ranges import Range
from objectstore.store import StoreError

SPARED_MAX = 10_000  # pieces that are remembered; the oldest are forgotten, and met again


class Unreadable(StoreError):
    """These pieces (handle, slice) are damaged or gone. `gone`: perhaps another agent has merged them."""

    def __init__(self, text: str, pieces: Sequence[tuple[int, SliceRef]], *, gone: bool = False) -> None:
        super().__init__(text)
        self.pieces = pieces
        self.gone = gone


@dataclass(slots=True)
class _Spared:
    """A piece, how often it could not be read, and until when it is left alone (event loop's seconds).

    `skipped`: what of the partition was passed over by then.
    """

    ref: SliceRef
    count: int
    until_s: float
    skipped: Sequence[Range]


class Spared:
    """The pieces of all partitions that one agent's merges leave alone."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[int, int], _Spared] = {}  # by handle and first offset, the oldest first
        self._of: dict[int, list[int]] = {}  # handle → first offsets of its pieces

    def note(self, handle: int, ref: SliceRef, now_s: float, skipped: Sequence[Range] = ()) -> int:
        """Leave a piece alone for a while; how often in a row it could not be read."""
        key = (handle, ref.base_offset)
        known = self._pieces.pop(key, None)
        count = 1 if known is None else known.count + 1
        self._pieces[key] = _Spared(ref, count, now_s + patience_s(count), skipped)
        if known is None:
            self._of.setdefault(handle, []).append(ref.base_offset)
        while len(self._pieces) > SPARED_MAX:
            self._drop(*next(iter(self._pieces)))
        return count

    def segments(self, handle: int, now_s: float) -> frozenset[SegmentId]:
        """The segments that no merge takes along for now."""
        return frozenset(
            each.ref.chunk for each in self._found(handle, now_s) if isinstance(each.ref.chunk, SegmentId)
        )

    def tail_until(self, handle: int, now_s: float) -> int:
        """The first offset of the tail that no merge takes for now; NOWHERE: all of it may be taken."""
        rows = (each.ref for each in self._found(handle, now_s))
        return min((ref.base_offset for ref in rows if not isinstance(ref.chunk, SegmentId)), default=NOWHERE)

    def holds_up(self, handle: int) -> bool:
        """Whether a row of the partition's tail could not be read, and stays with all that lies behind it."""
        refs = (self._pieces[handle, offset].ref for offset in self._of.get(handle, ()))
        return any(not isinstance(ref.chunk, SegmentId) for ref in refs)

    def read(self, handle: int, start: int, end: int) -> None:
        """Pieces that begin in [start, end) were read: nothing is known against them."""
        for offset in [each for each in self._of.get(handle, ()) if start <= each < end]:
            self._drop(handle, offset)

    def keep(self, handle: int, held_start: int, tail_start: int, skipped: Sequence[Range] = ()) -> bool:
        """Forget pieces that no longer exist: deleted segments, rows that left the tail.

        And what was met before somebody decided to pass something over. Whether nothing is left of what
        there was.
        """
        known = handle in self._of
        for offset in list(self._of.get(handle, ())):
            piece = self._pieces[handle, offset]
            merged = isinstance(piece.ref.chunk, SegmentId)
            gone = piece.ref.end_offset <= held_start if merged else offset < tail_start
            if gone or piece.skipped != skipped:
                self._drop(handle, offset)
        return known and handle not in self._of

    def _found(self, handle: int, now_s: float) -> list[_Spared]:
        pieces = (self._pieces[handle, offset] for offset in self._of.get(handle, ()))
        return [each for each in pieces if each.until_s > now_s]

    def _drop(self, handle: int, offset: int) -> None:
        del self._pieces[handle, offset]
        left = self._of[handle]
        left.remove(offset)
        if not left:
            del self._of[handle]
