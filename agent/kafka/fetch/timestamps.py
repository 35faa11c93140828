"""Offsets by time: which record of a slice is the first at or after a timestamp, or has the highest one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from objectstore.batch import CorruptBatch, peek, records, split


class Found(NamedTuple):
    """A record's offset and timestamp (Unix ms)."""

    offset: int
    timestamp: int


INLINE_BYTES_MAX = 16 * 1024  # uncompressed slices up to this size are looked through on the event loop


async def first_at_or_after(slice_bytes: memoryview, timestamp_ms: int, start: int = 0) -> Found | None:
    """The first record of the slice from offset `start` on whose timestamp is at least `timestamp_ms`.

    In a batch that cannot be opened it is the batch's first offset.
    """
    return await _looked_through(_first_of, slice_bytes, timestamp_ms, start)


async def highest(slice_bytes: memoryview, start: int = 0) -> Found | None:
    """The first record with the highest timestamp that the slice has from offset `start` on (KIP-734)."""
    return await _looked_through(_highest, slice_bytes, start)


async def _looked_through(
    look: Callable[..., Found | None], slice_bytes: memoryview, *how: int
) -> Found | None:
    """In a thread unless the slice is small and has nothing compressed: that may decode to any size."""
    if len(slice_bytes) <= INLINE_BYTES_MAX and not any(
        peek(slice_bytes, position).compression for position, _ in split(slice_bytes)
    ):
        return look(slice_bytes, *how)
    return await asyncio.to_thread(look, slice_bytes, *how)


def _highest(slice_bytes: memoryview, start: int) -> Found | None:
    headers = [peek(slice_bytes, position) for position, _ in split(slice_bytes)]
    live = [each for each in headers if each.base_offset + each.last_offset_delta >= start]
    top = max((each.max_timestamp for each in live), default=0)
    return _first_of(slice_bytes, top, start)


def _first_of(slice_bytes: memoryview, timestamp_ms: int, start: int) -> Found | None:
    for position, size in split(slice_bytes):
        header = peek(slice_bytes, position)
        if header.max_timestamp < timestamp_ms or header.base_offset + header.last_offset_delta < start:
            continue
        found = _first(slice_bytes[position : position + size], timestamp_ms, start)
        if found is not None:
            return found
    return None


def _first(batch: memoryview, timestamp_ms: int, start: int) -> Found | None:
    try:
        for record in records(batch):
            if record.timestamp >= timestamp_ms and record.offset >= start:
                return Found(record.offset, record.timestamp)
    except CorruptBatch:  # stored as its producer sent it; its header is all that can be known
        header = peek(batch)
        return Found(max(header.base_offset, start), header.max_timestamp)
    return None
