"""What a compaction reads: the blocks of a partition's segments, then the rows of its tail."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.background.rewriting.salvage import Salvage
from coordination.state.types import Partition
from objectstore.naming import SliceRef
from objectstore.reader import ChunkReader

READ_BYTES = 4 << 20  # read, sent to the worker and got back at once, about
ROWS_STEP_BYTES = 256 << 10  # rows of the tail that are planned without a turn of the event loop
ROWS_MAX = 20_000  # of the tail in one compaction
TAIL_BYTES_MAX = 256 << 20  # likewise


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a compaction ends: before `limit`, and before the first piece newer than `newest_ms`."""

    limit: int
    newest_ms: int

    def admits(self, ref: SliceRef) -> bool:
        """Whether the piece may be compacted."""
        return ref.end_offset <= self.limit and ref.max_timestamp_ms <= self.newest_ms


class Sources:
    """Reads a partition without touching the caches that serve clients."""

    def __init__(self, reader: ChunkReader) -> None:
        self._reader = reader

    async def read(self, salvage: Salvage, refs: Sequence[SliceRef]) -> list[memoryview]:
        """The pieces' batches, checked and with their offsets. Raises what `salvage` raises."""
        return [data for _, data in await salvage.read(self._reader, refs)]

    async def tail(self, partition: Partition, start: int, bounds: Bounds) -> list[SliceRef]:
        """The rows from `start` on that may be compacted, side by side, as many as one compaction takes."""
        rows: list[SliceRef] = []
        offset, size = start, 0
        while len(rows) < ROWS_MAX and size < TAIL_BYTES_MAX:
            planned = partition.slices.plan(offset, ROWS_STEP_BYTES)
            for row in planned:
                if row.base_offset != offset or not bounds.admits(row):
                    return rows
                rows.append(row)
                offset, size = row.end_offset, size + row.length
            if not planned:
                return rows
            await asyncio.sleep(0)
        return rows


def groups(refs: Sequence[SliceRef], bytes_max: int = READ_BYTES) -> Iterator[list[SliceRef]]:
    """The pieces in runs of at most `bytes_max`, or one piece that is larger."""
    group: list[SliceRef] = []
    size = 0
    for ref in refs:
        if group and size + ref.length > bytes_max:
            yield group
            group, size = [], 0
        group.append(ref)
        size += ref.length
    if group:
        yield group
