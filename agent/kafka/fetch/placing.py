"""Where one record is, and how it came: the object, the bytes, the batch, the producer. For people who ask.

A record below the log start, or behind the end, is told as that. A chunk that is gone was replaced or trimmed
meanwhile: catch up and look again (rule 9), a few times.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from agent.telemetry.shown import RecordLife, SegmentShown, Stored, Written
from coordination.log import Unavailable
from objectstore.batch import BatchHeader, CorruptBatch, peek, records, split
from objectstore.naming import ChunkId, ManifestId, MarkerId, SegmentId, SliceRef, manifest_key, object_key
from objectstore.opening import opened
from objectstore.reader import ChunkMissing
from objectstore.store import StoreError
from objectstore.transactions import Transactions

if TYPE_CHECKING:
    from coordination.replica import Replica
    from coordination.state.types import Partition
    from objectstore.merged import MergedRanges
    from objectstore.reader import ChunkReader

LOOKS_MAX: Final = 3
"""Times that it is looked for while objects are replaced."""
_SEQUENCE_MASK: Final = (1 << 31) - 1


class Placing:
    """Finds records, by the state, merged ranges and the reader of one agent."""

    def __init__(self, replica: Replica, merged: MergedRanges, reader: ChunkReader) -> None:
        self._replica, self._merged, self._reader = replica, merged, reader

    async def life(self, partition: Partition, offset: int) -> RecordLife:
        """What is known of an offset, which may be any number."""
        for left in reversed(range(LOOKS_MAX)):
            bounds = RecordLife(partition.log_start, partition.last_stable, partition.high_watermark)
            if not bounds.log_start <= offset < bounds.end_offset:
                return bounds
            try:
                return await self._found(partition, offset, bounds)
            except ChunkMissing as error:
                if not left:
                    return bounds._replace(problem=str(error))
                with suppress(Unavailable):
                    await self._replica.barrier()
            except (StoreError, CorruptBatch, TimeoutError) as error:
                return bounds._replace(problem=str(error) or "the store does not answer in time")
        raise AssertionError("the last look gives an answer")

    async def _found(self, partition: Partition, offset: int, bounds: RecordLife) -> RecordLife:
        merged = partition.merged
        plan = await self._merged.slices(partition, offset, 1)
        ref = next(iter(plan.plan(offset, 1)), None)
        if ref is None or ref.base_offset > offset:
            return bounds  # nothing is left there: compaction, or an aborted transaction that was merged
        if isinstance(ref.chunk, MarkerId):
            return bounds._replace(marker=ref.chunk.committed)
        segment = None
        if isinstance(ref.chunk, SegmentId) and merged is not None:
            segment = await self._segment(merged.manifest, offset)
        (read,) = await self._reader.read_each([ref])
        if isinstance(read, StoreError | TimeoutError):
            raise read
        position, size = _batch_at(read, offset)
        stored = _stored(ref, position, size, segment)
        if not size:
            return bounds._replace(stored=stored._replace(length=ref.length))
        batch = read[position : position + size]
        header = peek(batch)
        aborted = Transactions(partition.aborted(offset, offset + 1)).aborted(header)
        found = await _written(batch, header, offset, aborted=aborted)
        return bounds._replace(stored=stored, written=found)

    async def _segment(self, named: ManifestId, offset: int) -> SegmentShown | None:
        """Of a manifest, the segment that holds the offset."""
        manifest = await self._merged.manifest(named)
        number = manifest.find(offset)
        if number == len(manifest):
            return None
        info = manifest[number]
        times = info.begun_ms, info.max_timestamp_ms
        return SegmentShown(info.records, info.size, *times, manifest_key(named))


def _batch_at(read: memoryview, offset: int) -> tuple[int, int]:
    """Position and size of the batch that takes the offset; (0, 0) where none does."""
    for position, size in split(read):
        header = peek(read, position)
        if header.base_offset <= offset <= header.last_offset:
            return position, size
    return 0, 0


def _stored(ref: SliceRef, position: int, size: int, segment: SegmentShown | None) -> Stored:
    assert not isinstance(ref.chunk, MarkerId), "a marker lies in no object"
    chunk = ref.chunk if isinstance(ref.chunk, ChunkId) else None
    place = object_key(ref.chunk), ref.position + position, size
    return Stored(*place, ref.chunk.incarnation, ref.base_offset, ref.end_offset, chunk, segment)


async def _written(batch: memoryview, header: BatchHeader, offset: int, *, aborted: bool) -> Written:
    def find(opened_batch: memoryview, decoded_bytes_max: int) -> int | None:
        found = (each.timestamp for each in records(opened_batch, decoded_bytes_max) if each.offset == offset)
        return next(found, None)

    timestamp = None if header.control else await opened(find, batch, 0)
    counts = header.producer_id >= 0 and header.base_sequence >= 0
    sequence = (header.base_sequence + offset - header.base_offset) & _SEQUENCE_MASK if counts else -1
    return Written(
        header.base_offset,
        header.last_offset,
        header.record_count,
        header.producer_id,
        header.producer_epoch,
        sequence,
        timestamp,
        "the broker" if header.timestamp_type else "the producer",
        header.compression.name.lower(),
        header.transactional,
        header.control,
        aborted,
    )
