"""What is in the way of a topic's table: damaged records stop the rows of their own partition and no other's.

Damage that somebody asked to pass over (coordination/state/skipped.py) gives no rows and stops nothing; what
is sound beside it does give rows. An object that is gone is damage only once a newer state names it still.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from coordination.state.types import Partition
from iceberg.ledger import Range
from iceberg.plan import FilePlan, Lost
from objectstore.merged import DamagedIndex, MergedRanges
from objectstore.naming import ChunkId, ManifestId, SegmentId, SliceRef
from objectstore.offset_ranges import covered_to, tiles
from objectstore.reader import ChunkMissing, ChunkReader, CorruptSlice
from objectstore.salvage import lost

REASONS_MAX = 5  # that an error tells


class Replan(Exception):
    """Nothing was committed: something in the way was noted, or is gone. Catch up, then plan anew."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The offset of a partition from which on nothing can be read, and why."""

    partition: int
    offset: int
    reason: str


class Obstacles:
    """What is in the way of one topic's table. Kept between commits: known damage is not read again."""

    def __init__(self, reader: ChunkReader, merged: MergedRanges) -> None:
        self._reader = reader
        self._merged = merged
        self._stops: dict[int, Stop] = {}  # by handle
        self._passed: dict[int, int] = {}  # by handle, up to where merged records are lost and passed over
        self._gone: set[ChunkId | SegmentId | ManifestId] = set()
        self._told = False

    def __bool__(self) -> bool:
        """Whether something is in the way."""
        return bool(self._stops)

    def told(self) -> str:
        """All that is in the way, for people. The next `begin` looks whether it still is."""
        self._told = True
        reasons = [
            f"partition {s.partition} from offset {s.offset} on: {s.reason}" for s in self._stops.values()
        ]
        more = f" and {len(reasons) - REASONS_MAX} more" if len(reasons) > REASONS_MAX else ""
        return "; ".join(reasons[:REASONS_MAX]) + more

    async def begin(self, partitions: Sequence[Partition]) -> None:
        """Begin a commit: forget which objects were gone, and what was told and is readable again."""
        self._gone.clear()
        handles = {partition.handle: partition for partition in partitions}
        self._passed = {handle: end for handle, end in self._passed.items() if handle in handles}
        again, self._told = self._told, False
        for handle, stop in list(self._stops.items()):
            partition = handles.get(handle)
            over = partition is None or partition.log_start > stop.offset
            if over or (again and partition and await self._is_readable(partition, stop.offset)):
                del self._stops[handle]

    def limits(self, partitions: Sequence[Partition]) -> dict[int, int]:
        """By partition index, where there is something in the way: the offset that no row may reach."""
        return {p.index: self._stops[p.handle].offset for p in partitions if p.handle in self._stops}

    def passed(self, partitions: Sequence[Partition], known: Sequence[int]) -> list[FilePlan]:
        """Files without rows, for lost parts of merged ranges that somebody asked to pass over."""
        found = []
        for partition in partitions:
            end = self._passed.get(partition.handle, 0)
            start = max(known[partition.index] if partition.index < len(known) else 0, partition.log_start)
            if start < end:
                found.append(FilePlan(Range(partition.index, start, end), ()))
        return found

    def note(self, partition: Partition, lost: Lost) -> None:
        """Note that merged records cannot be found: they stop the partition if no newer state has them."""
        error, start = lost.trouble, lost.start
        if isinstance(error, ChunkMissing) and error.chunk not in self._gone:
            self._gone.add(error.chunk)
            return
        merged = partition.merged
        if merged is None:
            return
        _, end = error.offsets or (start, merged.end_offset)
        free = min(end, covered_to(start, partition.skipped))
        if free > start:
            self._passed[partition.handle] = free
        else:
            self._stops[partition.handle] = Stop(partition.index, start, str(error))

    async def records(self, partition: Partition, file: FilePlan) -> list[memoryview]:
        """The sound batches of a file. Raises Replan, and what the store raises."""
        found: list[memoryview] = []
        read = await self._reader.read_each(file.slices)
        gone = {each.chunk for each in read if isinstance(each, ChunkMissing)}
        if gone - self._gone:
            self._gone |= gone
            raise Replan
        for ref, outcome in zip(file.slices, read, strict=True):
            if isinstance(outcome, memoryview):
                found.append(outcome)
                continue
            runs = outcome.runs if isinstance(outcome, CorruptSlice) else ()
            if not isinstance(outcome, CorruptSlice | ChunkMissing):
                raise outcome
            first = next(_in_the_way(partition, file.range, lost(ref, runs)), None)
            if first is not None:
                known = self._stops.get(partition.handle)
                if known is None or first < known.offset:
                    self._stops[partition.handle] = Stop(partition.index, first, str(outcome))
                raise Replan from outcome
            found += [run.data for run in runs]
        return found

    async def _is_readable(self, partition: Partition, offset: int) -> bool:
        """Whether what was in the way is there again, or is passed over by now."""
        if covered_to(offset, partition.skipped) > offset:
            return True
        try:
            plan = await self._merged.slices(partition, offset, 1)
            refs: Sequence[SliceRef] = plan.plan(offset, 1)[:1]
            (outcome,) = await self._reader.read_each(refs) if refs else [memoryview(b"")]
        except (ChunkMissing, DamagedIndex):
            return False
        return not isinstance(outcome, ChunkMissing | CorruptSlice)


def _in_the_way(partition: Partition, wanted: Range, gaps: Sequence[tuple[int, int]]) -> Iterator[int]:
    """Offsets where something of a file is lost that nobody asked to pass over."""
    for start, end in gaps:
        for tile in tiles(max(start, wanted.start), min(end, wanted.end), partition.skipped):
            if not tile.covered:
                yield tile.start
