"""Offsets by time: which record of a slice is the first at or after a timestamp, or has the highest one."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from objectstore.batch import CorruptBatch, peek, records, split
from objectstore.opening import opened


class Found(NamedTuple):
    """A record's offset and timestamp (Unix ms)."""

    offset: int
    timestamp: int


INLINE_BYTES_MAX = 16 * 1024  # batches up to this size are decoded on the event loop


async def first_at_or_after(slice_bytes: memoryview, timestamp_ms: int, start: int = 0) -> Found | None:
    """The first record of the slice from offset `start` on whose timestamp is at least `timestamp_ms`.

    In a batch that cannot be opened it is the batch's first offset.
    """
    for position, size in split(slice_bytes):
        header = peek(slice_bytes, position)
        if header.max_timestamp < timestamp_ms or header.base_offset + header.last_offset_delta < start:
            continue
        batch = slice_bytes[position : position + size]
        found = await _decoded(batch, timestamp_ms, start)
        if found is not None:
            return found
        await asyncio.sleep(0)  # a slice may have thousands of batches
    return None


async def highest(slice_bytes: memoryview, start: int = 0) -> Found | None:
    """The first record with the highest timestamp that the slice has from offset `start` on (KIP-734)."""
    headers = [peek(slice_bytes, position) for position, _ in split(slice_bytes)]
    live = [each for each in headers if each.base_offset + each.last_offset_delta >= start]
    top = max((each.max_timestamp for each in live), default=0)
    return await first_at_or_after(slice_bytes, top, start)


async def _decoded(batch: memoryview, timestamp_ms: int, start: int) -> Found | None:
    try:
        return await opened(partial(_first, timestamp_ms, start), batch, INLINE_BYTES_MAX)
    except CorruptBatch:  # stored as its producer sent it; its header is all that can be known
        header = peek(batch)
        return Found(max(header.base_offset, start), header.max_timestamp)


def _first(timestamp_ms: int, start: int, batch: memoryview, decoded_bytes_max: int) -> Found | None:
    for record in records(batch, decoded_bytes_max):
        if record.timestamp >= timestamp_ms and record.offset >= start:
            return Found(record.offset, record.timestamp)
    return None
