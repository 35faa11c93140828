"""Which records an object holds, and which of them are lost where it is damaged."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from coordination.state import State
from coordination.state.deleted import existing
from objectstore.batch import CorruptBatch
from objectstore.naming import ChunkId, SliceRef
from objectstore.reader import patched
from objectstore.salvage import lost, sound_runs
from objectstore.segment import BlockIndex, CorruptSegment, SegmentInfo, decode_index

TURN = 256  # partitions looked at before the event loop gets its turn
_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class Place:
    """Records that cannot be read: offsets [start, end) of a topic's partition."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def slice_of(content: bytes | memoryview, ref: SliceRef) -> memoryview | None:
    """The slice's bytes as they lie there, where they are what was committed."""
    data = memoryview(content)[ref.position : ref.position + ref.length]
    try:
        if len(data) == ref.length:
            patched(data, ref)
            return data
    except CorruptBatch:
        pass
    return None


def gaps(content: bytes, ref: SliceRef) -> list[tuple[int, int]]:
    """The offsets of a slice that are damaged."""
    if slice_of(content, ref) is not None:
        return []
    return lost(ref, sound_runs(content[ref.position : ref.position + ref.length], ref))


def places_of(state: State, handle: int, start: int, end: int) -> tuple[Place, ...]:
    """These offsets of a partition, as far as they are readable, or held and can come back."""
    partition = existing(state, handle) if handle < len(state.partitions) else None
    if partition is None or max(start, partition.held_start) >= end:
        return ()
    return (Place(partition.topic.name, partition.index, max(start, partition.held_start), end),)


async def refs_in(state: State, chunk: ChunkId) -> list[tuple[int, SliceRef]]:
    """The slices that the state has in a chunk, with their partitions' handles."""
    serial = state.chunks.serials.get(chunk)
    found: list[tuple[int, SliceRef]] = []
    for handle in range(len(state.partitions)) if serial is not None else ():
        if handle % TURN == 0:
            await asyncio.sleep(0)
        partition = existing(state, handle)
        if partition is not None and serial in partition.slices.serials():
            rows = partition.slices.oldest(len(partition.slices), _ALL)
            found += [(handle, row) for row in rows if row.chunk == chunk]
    return found


async def lost_of_chunk(state: State, chunk: ChunkId, content: bytes) -> tuple[Place, ...]:
    """The records of a chunk that cannot be read of these bytes under its name."""
    return tuple(
        place
        for handle, ref in await refs_in(state, chunk)
        for start, end in gaps(content, ref)
        for place in places_of(state, handle, start, end)
    )


def lost_of_segment(state: State, handle: int, info: SegmentInfo, content: bytes) -> tuple[Place, ...]:
    """Likewise of a segment, block by block; all of it where its index is damaged."""
    try:
        index: BlockIndex = decode_index(content[info.index_position : info.size], info)
    except CorruptSegment:
        return places_of(state, handle, info.base_offset, info.end_offset)
    return tuple(
        place
        for block in index.blocks
        for start, end in gaps(content, block)
        for place in places_of(state, handle, start, end)
    )
