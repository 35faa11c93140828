"""Which damage rewriting may pass over for good: the decisions of a partition that are old enough.

Once a swap is made a decision cannot be taken back: nothing reads the old object any more. So rewriting
leaves a range alone until its decision is `wait_ms` old, and an object that is restored by then is read.

A decision's stamp is the log's time, which may be ahead for a while, or for long, where all clocks were wrong
and were set right (docs/retention.md). So a decision is also old enough when this agent has known it for as
long by its own watch: a partition must not stay unmerged until the years of a wrong clock are over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from coordination.state.types import Partition, Skipped
from objectstore.naming import SliceRef
from objectstore.offset_ranges import tiles

NOWHERE = (1 << 63) - 1
WATCHED_MAX = 10_000  # decisions; the ones known for longest are forgotten first, and known anew


class Decided(NamedTuple):
    """Offsets of a partition to pass over: `final` for good, `recent` so new that nothing is rewritten yet.

    What lies below `log_start` is of no use to anybody, and passed over without a decision.
    """

    log_start: int
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
    """One agent's view of how old decisions are. `monotonic`: its own watch, seconds."""

    def __init__(self, wait_ms: int, monotonic: Callable[[], float]) -> None:
        self._wait_ms = wait_ms
        self._monotonic = monotonic
        self._known_s: OrderedDict[tuple[int, int, int], float] = OrderedDict()

    def of(self, partition: Partition, now_ms: int) -> Decided:
        """The partition's as of `now_ms`, which is no later than most agents say it is."""
        final: list[Skipped] = []
        recent: list[Skipped] = []
        for each in partition.skipped:
            (final if self._is_old(partition.handle, each, now_ms) else recent).append(each)
        return Decided(partition.log_start, tuple(final), tuple(recent))

    def _is_old(self, handle: int, each: Skipped, now_ms: int) -> bool:
        if now_ms - each.since_ms >= self._wait_ms:
            return True
        now_s, name = self._monotonic(), (handle, each.end, each.since_ms)
        known_s = self._known_s.setdefault(name, now_s)
        while len(self._known_s) > WATCHED_MAX:
            self._known_s.popitem(last=False)
        return (now_s - known_s) * 1000 >= self._wait_ms
