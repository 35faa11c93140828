"""Which damage rewriting may pass over for good: the decisions of a partition that are old enough.

Once a swap is made a decision cannot be taken back: nothing reads the old object any more. So rewriting
leaves a range alone until the grace of its decision is over (objectstore/grace.py: a partition must not stay
unmerged for a stamp that is ahead of time), and an object that is restored by then is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coordination.state.types import Partition, Skipped
from objectstore.grace import Grace
from objectstore.naming import SliceRef
from objectstore.offset_ranges import tiles

NOWHERE = (1 << 63) - 1


class Decided(NamedTuple):
    """Offsets of a partition to pass over: `final` for good, `recent` so new that nothing is rewritten yet.

    What lies below `held_start` is of no use to anybody, and passed over without a decision.
    """

    held_start: int
    final: Sequence[Skipped]
    recent: Sequence[Skipped]

    def alone_from(self, offset: int) -> int:
        """From where on, at or above `offset`, records stay as they are for now; NOWHERE: none do."""
        return min((max(each.start, offset) for each in self.recent if each.end > offset), default=NOWHERE)

    def touches(self, ref: SliceRef) -> bool:
        """Whether damage in this piece is passed over, or would be."""
        return not ref.length or any(
            tile.covered for tile in tiles(ref.base_offset, ref.end_offset, self.final)
        )


class Decisions:
    """One agent's view of how old decisions are. `grace`: how old they must be."""

    def __init__(self, grace: Grace) -> None:
        self._grace = grace

    def of(self, partition: Partition) -> Decided:
        """The partition's, as of now."""
        if not partition.skipped:
            return Decided(partition.held_start, (), ())
        grace, now_ms = self._grace, self._grace.now_ms()
        final: list[Skipped] = []
        recent: list[Skipped] = []
        for each in partition.skipped:
            name = (partition.handle, each.end, each.since_ms)
            (final if grace.is_over(name, each.since_ms, now_ms) else recent).append(each)
        return Decided(partition.held_start, tuple(final), tuple(recent))
