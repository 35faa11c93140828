"""Offsets by time: which record of a slice is the first at or after a timestamp, or has the highest one."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from objectstore.batch import CorruptBatch, peek, records, split


class Found(NamedTuple):
    """A record's offset and timestamp (Unix ms)."""

    offset: int
    timestamp: int


INLINE_BYTES_MAX = 16 * 1024  # batches up to this size are decoded on the event loop


async def first_at_or_after(slice_bytes: memoryview, timestamp_ms: int) -> Found | None:
    """The first record of the slice whose timestamp is at least `timestamp_ms`.

    In a batch that cannot be opened it is the batch's first offset.
    """
    for position, size in split(slice_bytes):
        if peek(slice_bytes, position).max_timestamp < timestamp_ms:
            continue
        batch = slice_bytes[position : position + size]
        found = await _decoded(batch, timestamp_ms)
        if found is not None:
            return found
    return None


async def highest(slice_bytes: memoryview) -> Found | None:
    """The first record with the slice's highest timestamp (KIP-734)."""
    top = max(peek(slice_bytes, position).max_timestamp for position, _ in split(slice_bytes))
    return await first_at_or_after(slice_bytes, top)


async def _decoded(batch: memoryview, timestamp_ms: int) -> Found | None:
    if len(batch) <= INLINE_BYTES_MAX:
        return _first(batch, timestamp_ms)
    return await asyncio.to_thread(_first, batch, timestamp_ms)


def _first(batch: memoryview, timestamp_ms: int) -> Found | None:
    try:
        for record in records(batch):
            if record.timestamp >= timestamp_ms:
                return Found(record.offset, record.timestamp)
    except CorruptBatch:  # stored as its producer sent it; its header is all that can be known
        header = peek(batch)
        return Found(header.base_offset, header.max_timestamp)
    return None
