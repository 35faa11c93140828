"""Reading around damage that somebody decided to go on without (coordination/state/skipped.py).

Of a piece that is damaged or lost its sound batches are kept, and the rest becomes empty batches that take
its offsets, as a Fetch has shown it since the decision. An object is believed to be damaged or gone only
after two reads; between two that do not find it the log is caught up with. That the state of now still names
it the swap decides, which is refused where anything moved.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from crc32c import crc32c

from agent.background.rewriting.decisions import Decided
from coordination.state.types import Merged, Partition
from objectstore.batch import empty_batch, peek
from objectstore.manifest import Manifest
from objectstore.merged import DamagedIndex, MergedRanges
from objectstore.naming import SegmentId, SliceRef
from objectstore.offset_ranges import covered
from objectstore.reader import ChunkMissing, ChunkReader, CorruptSlice
from objectstore.salvage import lost
from objectstore.segment import SegmentInfo
from objectstore.store import StoreError

Piece = tuple[SliceRef, memoryview]
_Content = TypeVar("_Content")


def lost_piece(segment: SegmentId, start: int, end: int) -> SliceRef:
    """A piece of no bytes: all of [start, end) is lost."""
    return SliceRef(start, end, segment, 0, 0, -1, 0)


class Salvage:
    """Reads one partition's pieces for a rewriting. `catch_up`: a read barrier."""

    def __init__(
        self, ranges: MergedRanges, catch_up: Callable[[], Awaitable[object]], decided: Decided
    ) -> None:
        self._ranges = ranges
        self._catch_up = catch_up
        self._final = decided.final
        self._held_start = decided.held_start

    async def manifest(self, partition: Partition, merged: Merged) -> Manifest:
        """The partition's manifest; where it is lost and all of it is passed over, one without segments.

        Raises ChunkMissing, DamagedIndex and what the store raises.
        """
        try:
            return await self._twice(lambda: self._ranges.manifest(merged.manifest))
        except (ChunkMissing, DamagedIndex):
            if not self._final or not self._passed(merged.start_offset, merged.end_offset):
                raise
        bare = Manifest.empty(partition.handle, merged.end_offset)
        return bare.with_first_dirty(merged.first_dirty_offset)

    async def blocks(self, info: SegmentInfo) -> Sequence[SliceRef]:
        """The blocks of a segment; one piece of no bytes where the segment is lost and passed over.

        Raises as `manifest`.
        """
        try:
            return (await self._twice(lambda: self._ranges.index(info))).blocks
        except (ChunkMissing, DamagedIndex):
            if not self._final or not self._passed(info.base_offset, info.end_offset):
                raise
        return [lost_piece(info.segment, info.base_offset, info.end_offset)]

    async def read(self, reader: ChunkReader, refs: Sequence[SliceRef]) -> list[Piece]:
        """What the pieces hold, checked and with offsets, in order; empty batches for what is passed over.

        Raises ChunkMissing, CorruptSlice and what the store raises.
        """
        if not self._final:
            return list(zip(refs, await reader.read_many(refs), strict=True))
        there = [ref for ref in refs if ref.length]
        read = dict(zip(there, await reader.read_each(there), strict=True))
        gone = [ref for ref, outcome in read.items() if isinstance(outcome, ChunkMissing)]
        if gone:
            await self._catch_up()
            read.update(zip(gone, await reader.read_each(gone), strict=True))
        return [piece for ref in refs for piece in self._pieces(ref, read.get(ref))]

    def _pieces(
        self, ref: SliceRef, outcome: memoryview | StoreError | TimeoutError | None
    ) -> Iterator[Piece]:
        """A piece as it is, or its sound batches and empty ones; `outcome` None: all of it is lost."""
        if isinstance(outcome, memoryview):
            yield ref, outcome
            return
        if not isinstance(outcome, CorruptSlice | ChunkMissing | None):
            raise outcome
        runs = outcome.runs if isinstance(outcome, CorruptSlice) else ()
        gaps = lost(ref, runs)
        if outcome is not None and not all(self._passed(*gap) for gap in gaps):
            raise outcome
        found: list[Piece] = [(run.ref, run.data) for run in runs]
        found += [hole for gap in gaps for hole in _holes(ref, *gap)]
        yield from sorted(found, key=lambda piece: piece[0].base_offset)

    def _passed(self, start: int, end: int) -> bool:
        return covered(max(start, self._held_start), end, self._final)

    async def _twice(self, look: Callable[[], Awaitable[_Content]]) -> _Content:
        """A second look at what is gone, behind a read barrier, where that could be passed over."""
        try:
            return await look()
        except ChunkMissing:
            if not self._final:
                raise
        await self._catch_up()
        return await look()


def _holes(ref: SliceRef, start: int, end: int) -> Iterator[Piece]:
    """Empty batches that take the offsets [start, end) of a piece."""
    while start < end:
        data = memoryview(empty_batch(start, end))
        stop = peek(data).last_offset + 1
        size = len(data)
        yield ref._replace(base_offset=start, end_offset=stop, length=size, crc=crc32c(data)), data
        start = stop
