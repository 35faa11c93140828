"""Reads a partition's records from the store, whatever is in memory, to find which are damaged or lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from objectstore import merged
from objectstore.merged import DamagedIndex, MergedRanges
from objectstore.naming import ChunkId, ManifestId, SegmentId, SliceRef
from objectstore.reader import ChunkMissing, ChunkReader, CorruptSlice
from objectstore.salvage import lost
from objectstore.store import ObjectStore

PIECE_BYTES = 4 << 20  # that are held at once
DAMAGED_MAX = 1_000  # ranges that one look finds


class Partition(merged.Partition, Protocol):
    """A partition of the state as far as it is looked through."""

    @property
    def held_start(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...


class Damaged(NamedTuple):
    """Offsets [start, end) that cannot be read any more, and why."""

    start: int
    end: int
    reason: str


class Verified(NamedTuple):
    """What was found of the offsets [start, end)."""

    start: int
    end: int
    damaged: list[Damaged]


class Verification:
    """Looks through one partition.

    `look` gives the partition as it is in the state of now and raises what ends the look. `catch_up` brings
    that state up to date with the log: a missing object is lost only where a newer state names it still.
    """

    def __init__(
        self, store: ObjectStore, look: Callable[[], Partition], catch_up: Callable[[], Awaitable[object]]
    ) -> None:
        self._reader = ChunkReader(store, 0)
        self._ranges = MergedRanges(store, 0)
        self._look = look
        self._catch_up = catch_up
        self._gone: set[ChunkId | SegmentId | ManifestId] = set()

    async def run(self, start: int, bytes_max: int) -> Verified:
        """Look through about `bytes_max` bytes from offset `start` on, or up to DAMAGED_MAX ranges.

        Raises what the store, `look` and `catch_up` raise.
        """
        start = end = max(start, self._look().held_start)
        damaged: list[Damaged] = []
        left = bytes_max
        try:
            while left > 0 and len(damaged) < DAMAGED_MAX:
                partition = self._look()
                end = max(end, partition.held_start)
                if end >= partition.high_watermark:
                    break
                try:
                    end, size, found = await self._piece(partition, end)
                except ChunkMissing as error:
                    self._gone.add(error.chunk)
                    await self._catch_up()
                    continue
                left -= max(size, 1)
                _add(damaged, found)
        finally:
            await self._reader.close()
            await self._ranges.close()
        return Verified(start, end, damaged)

    async def _piece(self, partition: Partition, offset: int) -> tuple[int, int, list[Damaged]]:
        """The end of a piece from `offset` on, its bytes, and what is damaged in it."""
        pointer, end = partition.merged, partition.high_watermark
        try:
            plan = await self._ranges.slices(partition, offset, PIECE_BYTES)
        except (ChunkMissing, DamagedIndex) as error:
            if isinstance(error, ChunkMissing) and error.chunk not in self._gone:
                raise
            assert pointer is not None, "only what is merged is looked up"
            first, end = error.offsets or (offset, pointer.end_offset)
            return end, 0, [Damaged(max(first, offset), end, str(error))]
        refs = plan.plan(offset, PIECE_BYTES)
        if not refs:
            return end, 0, []
        read = await self._reader.read_each(refs)
        found = [each for ref, outcome in zip(refs, read, strict=True) for each in self._lost(ref, outcome)]
        within = [Damaged(max(each.start, offset), each.end, each.reason) for each in found]
        return refs[-1].end_offset, sum(ref.length for ref in refs), [e for e in within if e.start < e.end]

    def _lost(self, ref: SliceRef, outcome: memoryview | Exception) -> list[Damaged]:
        if isinstance(outcome, memoryview):
            return []
        if isinstance(outcome, CorruptSlice):
            return [Damaged(*gap, str(outcome)) for gap in lost(ref, outcome.runs)]
        if isinstance(outcome, ChunkMissing) and outcome.chunk in self._gone:
            return [Damaged(ref.base_offset, ref.end_offset, str(outcome))]
        raise outcome


def _add(damaged: list[Damaged], found: Sequence[Damaged]) -> None:
    """Ranges of one reason that touch become one."""
    for each in found:
        last = damaged[-1] if damaged else None
        if last is not None and last.end == each.start and last.reason == each.reason:
            damaged[-1] = last._replace(end=each.end)
        else:
            damaged.append(each)
