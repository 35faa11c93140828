"""Offsets by time: which record of a slice is the first at or after a timestamp, or has the highest one."""

from __future__ import annotations

import asyncio
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from objectstore.batch import BatchHeader, CorruptBatch, peek, records, split
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
    batches = [(peek(slice_bytes, at), slice_bytes[at : at + size]) for at, size in split(slice_bytes)]
    live = [(header, batch) for header, batch in batches if header.last_offset >= start]
    across = live.pop(0) if live and live[0][0].base_offset < start else None
    top = max((header.max_timestamp for header, _ in live), default=-1)
    found = None if across is None else await _highest(*across, start)
    if found is not None and found.timestamp >= top:
        return found
    return await first_at_or_after(slice_bytes, top, live[0][0].base_offset) if live else found


async def _highest(header: BatchHeader, batch: memoryview, start: int) -> Found | None:
    """Of a batch that lies across `start`: what its header says may be of a record before that."""
    try:
        return await opened(partial(_newest, start), batch, INLINE_BYTES_MAX)
    except CorruptBatch:
        return Found(start, header.max_timestamp)


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


def _newest(start: int, batch: memoryview, decoded_bytes_max: int) -> Found | None:
    live = (each for each in records(batch, decoded_bytes_max) if each.offset >= start)
    newest = max(live, key=attrgetter("timestamp"), default=None)
    return None if newest is None else Found(newest.offset, newest.timestamp)
