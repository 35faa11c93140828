"""Batches of a partition that are held elsewhere as well: in segments and chunks that merging has replaced.

What was merged lies for `collection.grace_s` in the objects that it was copied from. Replaced segments tell
their own offsets; where in chunks the records of which offsets were, snapshots of the state remember, for as
long as they are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from coordination import snapshot
from coordination.replica import Replica
from coordination.state import State
from coordination.state.deleted import existing
from coordination.state.types import Partition
from objectstore import segment as segments
from objectstore.batch import CorruptBatch
from objectstore.markers import marker_batch
from objectstore.naming import ChunkId, MarkerId, SegmentId, SliceRef, chunk_key, segment_key
from objectstore.reader import patched
from objectstore.rebuilding import donors
from objectstore.segment import CorruptSegment
from objectstore.store import NotFound, ObjectStore, Retryable
from objectstore.transactions import without_aborted

SEGMENTS_MAX = 64  # replaced ones of a partition that are read for one damaged object
SNAPSHOT_BYTES_MAX = 64 << 20  # of a snapshot that is loaded for it


class Donors:
    """Finds batches by partition and offsets. Not before something is damaged."""

    def __init__(self, store: ObjectStore, replica: Replica) -> None:
        self._store = store
        self._replica = replica

    async def batches(self, handle: int, start: int, end: int) -> dict[int, memoryview]:
        """Sound batches of the offsets [start, end), by base offset. Raises StoreError."""
        found: dict[int, memoryview] = {}
        released = [each for each in self._replica.state.segment_garbage if each.partition == handle]
        for each in released[-SEGMENTS_MAX:]:
            found |= await self._of_segment(each, start, end)
        async for state in self._snapshots():
            partition = existing(state, handle) if handle < len(state.partitions) else None
            if partition is not None:
                found |= await self._of_tail(partition, start, end)
        return found

    async def _of_segment(self, named: SegmentId, start: int, end: int) -> dict[int, memoryview]:
        found: dict[int, memoryview] = {}
        try:
            view = memoryview(await self._store.get(segment_key(named)))
            told = await asyncio.to_thread(segments.described, view)
        except (NotFound, CorruptSegment):
            return found
        for block in told.index.blocks if told.segment == named else ():
            if block.base_offset < end and start < block.end_offset:
                found |= donors(view[block.position : block.position + block.length])
        return found

    async def _snapshots(self) -> AsyncIterator[State]:
        for record in list(self._replica.state.snapshots):
            if record.size > SNAPSHOT_BYTES_MAX:
                continue
            try:
                content = await self._store.get(record.key)
                state = State()
                for loaded in snapshot.decode_steps(content):
                    state = loaded
                    await asyncio.sleep(0)
            except (NotFound, snapshot.CorruptSnapshot):
                continue
            yield state

    async def _of_tail(self, partition: Partition, start: int, end: int) -> dict[int, memoryview]:
        found: dict[int, memoryview] = {}
        aborted = partition.aborted(start, end)
        for ref in partition.slices.plan(max(start, partition.slices.first_offset), 1 << 40):
            if ref.base_offset >= end:
                break
            data = await self._slice(ref)
            for run in () if data is None else without_aborted(data, aborted):
                found |= donors(run)
        return found

    async def _slice(self, ref: SliceRef) -> memoryview | None:
        if isinstance(ref.chunk, MarkerId):
            return memoryview(marker_batch(ref.chunk, ref.base_offset, ref.max_timestamp_ms))
        assert isinstance(ref.chunk, ChunkId), "rows of a tail are in chunks"
        try:
            return patched(await self._store.get_range(chunk_key(ref.chunk), ref.position, ref.length), ref)
        except (NotFound, CorruptBatch, Retryable):  # gone, damaged, or cut short
            return None
