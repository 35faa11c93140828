"""A batch whose records have other keys, values and headers, at the same offsets and times.

Batch header, order, offsets, timestamps, producer and codec stay: a reader counts on as before. Which record
becomes what is the caller's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from objectstore.batch import (
    DECODED_BYTES_MAX,
    HEADER_BYTES,
    OVERRUN_BYTES,
    Buffer,
    CorruptBatch,
    peek,
    seal,
    uncompressed,
)
from objectstore.compression import compress
from objectstore.varint import zigzag

_CODEC_BITS = 0x07  # of a batch's attributes (KIP-98)


class Changed(NamedTuple):
    """What a record has instead; `headers` come behind those it has, without those named `dropped`."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    dropped: frozenset[str] = frozenset()


Change = Callable[[int, bytes | None, bytes | None, Buffer], Changed | None]
"""From offset, key, value and headers (`headers_of`; empty: none); None: the record stays as it is."""


def revalued(batch: memoryview, change: Change, decoded_bytes_max: int = DECODED_BYTES_MAX) -> Buffer:
    """The one batch that fills `batch` with changed records; `batch` itself where none is changed.

    Raises CorruptBatch where the records cannot be read; the CRC is not looked at.
    """
    header = peek(batch)
    plain = uncompressed(batch, decoded_bytes_max)
    end = len(plain) - OVERRUN_BYTES
    view, at, count, changed = memoryview(plain), HEADER_BYTES, 0, False
    kept: list[Buffer] = []
    while at < end:
        length, begin = _number(plain, at)
        stop = begin + length
        if length < 0 or stop > end:
            raise CorruptBatch(f"a record at byte {at} of {length} bytes in a batch that ends at {end}")
        told = _record(plain, begin, stop, header.base_offset, change)
        if told is None:
            kept.append(view[at:stop])
        else:
            changed = True
            kept += (zigzag(len(told)), told)
        at, count = stop, count + 1
    if count != header.record_count:
        raise CorruptBatch(f"{count} of {header.record_count} records end at byte {at} of {end}")
    return seal(header, compress(header.compression, b"".join(kept))) if changed else batch


def headers_of(told: Buffer) -> list[tuple[str, bytes | None]]:
    """Headers as a Change is given them. Raises CorruptBatch."""
    if not told:
        return []
    plain = bytearray(told) + bytes(OVERRUN_BYTES)
    number, at = _number(plain, 0)
    if number < 0:
        raise CorruptBatch(f"{number} headers")
    found: list[tuple[str, bytes | None]] = []
    for _ in range(number):
        name, at = _sized(plain, at, len(told))
        content, at = _sized(plain, at, len(told))
        if name is None or at > len(told):
            raise CorruptBatch(f"a header without name or end at byte {at} of {len(told)}")
        found.append((name.decode(errors="surrogateescape"), content))
    return found


def hollow(batch: memoryview) -> bytes:
    """A batch without records in the place of one that nobody can open; its producer and offsets stay."""
    header = peek(batch)
    return seal(header._replace(record_count=0, attributes=header.attributes & ~_CODEC_BITS), b"")


def _record(plain: bytearray, begin: int, stop: int, base: int, change: Change) -> bytes | None:
    """A record behind its length, changed: attributes, timestamp, offset, key, value, headers."""
    _, at = _number(plain, begin + 1)
    delta, at = _number(plain, at)
    front = plain[begin:at]
    key, at = _sized(plain, at, stop)
    value, at = _sized(plain, at, stop)
    if at > stop:
        raise CorruptBatch(f"a value ends at byte {at} of a record that ends at {stop}")
    headers: bytes | bytearray = plain[at:stop]
    told = change(base + delta, key, value, headers if stop - at > 1 else b"")
    if told is None:
        return None
    if told.dropped:
        kept = [each for each in headers_of(headers) if each[0] not in told.dropped]
        headers = _headers([*kept, *told.headers])
    elif told.headers:
        number, at = _number(plain, at)
        more = (
            part
            for name, content in told.headers
            for part in (_with_size(name.encode()), _with_size(content))
        )
        headers = b"".join((zigzag(number + len(told.headers)), plain[at:stop], *more))
    return b"".join((front, _with_size(told.key), _with_size(told.value), headers))


def _headers(given: Sequence[tuple[str, bytes | None]]) -> bytes:
    named = ((name.encode(errors="surrogateescape"), content) for name, content in given)
    return b"".join((zigzag(len(given)), *(_with_size(part) for pair in named for part in pair)))


def _with_size(content: bytes | None) -> bytes:
    return b"\x01" if content is None else zigzag(len(content)) + content


def _sized(plain: bytearray, at: int, stop: int) -> tuple[bytes | None, int]:
    """A key or a value, and where it ends."""
    size, at = _number(plain, at)
    if size < 0:
        return None, at
    if at + size > stop:
        raise CorruptBatch(f"{size} bytes at byte {at} of a record that ends at {stop}")
    return bytes(plain[at : at + size]), at + size


def _number(plain: bytearray, at: int) -> tuple[int, int]:
    """A signed number, and where it ends. OVERRUN_BYTES behind the records end the last one."""
    byte = plain[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        at += 1
        byte = plain[at]
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise CorruptBatch(f"a number of more than ten bytes at byte {at}")
    return (value >> 1) ^ -(value & 1), at + 1
