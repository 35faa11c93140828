"""Kafka's five codecs, decoded with a bound on what comes out.

A compressed batch is hostile until decoded: a few kilobytes may stand for gigabytes. Nothing here
allocates more than the caller's limit. Framing follows the Java clients: LZ4 frames with independent
blocks and no content checksum, Snappy in xerial's blocks (raw Snappy, librdkafka's habit, is read too).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

import cramjam

Buffer = bytes | bytearray | memoryview

GUESS_BYTES_MIN = 64 * 1024  # first output buffer where the size is not announced
GUESS_FACTOR = 4  # … or this many times the input; the next buffer is this many times larger
XERIAL_BLOCK_BYTES = 32 * 1024  # what xerial's own writer uses
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version and lowest compatible version
_length = struct.Struct(">i")
_BUFFER_FULL = "failed to write whole buffer"  # cramjam's one sign that the output did not fit


class Compression(IntEnum):
    """The codec numbers of a record batch's attributes (KIP-98, KIP-110)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CannotDecompress(ValueError):
    """The bytes are not what the codec's name says, or would become larger than the limit."""


def compress(codec: Compression, data: Buffer) -> Buffer:
    """`data` as the Java client would compress it."""
    if codec is Compression.NONE:
        return data
    if codec is Compression.GZIP:
        return memoryview(cramjam.gzip.compress(data))
    if codec is Compression.SNAPPY:
        return _compress_xerial(data)
    if codec is Compression.LZ4:
        frame = cramjam.lz4.Compressor(block_linked=False, content_checksum=False)
        frame.compress(bytes(data))
        return memoryview(frame.finish())
    return memoryview(cramjam.zstd.compress(data))


def decompress(codec: Compression, data: Buffer, limit: int, front: int, back: int) -> bytearray:
    """The decoded bytes with `front` and `back` zero bytes around them.

    The room saves the caller a copy where it wants to put a header before the content. Raises
    CannotDecompress when `data` is broken or decodes to more than `limit` bytes.
    """
    if codec is Compression.NONE:
        _check_limit(len(data), limit)
        return bytearray(front) + data + bytes(back)
    try:
        if codec is Compression.SNAPPY:
            return _decompress_snappy(data, limit, front, back)
        into = _STREAMS[codec]
        return _decompress_growing(into, data, limit, front, back)
    except cramjam.DecompressionError as error:
        raise CannotDecompress(f"{codec.name.lower()}: {error}") from error


_STREAMS: dict[Compression, Callable[[Buffer, memoryview], int]] = {
    Compression.GZIP: cramjam.gzip.decompress_into,
    Compression.LZ4: cramjam.lz4.decompress_into,
    Compression.ZSTD: cramjam.zstd.decompress_into,
}


def _check_limit(size: int, limit: int) -> None:
    if size > limit:
        raise CannotDecompress(f"decodes to more than the limit of {limit} bytes")


def _decompress_growing(
    into: Callable[[Buffer, memoryview], int], data: Buffer, limit: int, front: int, back: int
) -> bytearray:
    room = min(limit, max(GUESS_BYTES_MIN, GUESS_FACTOR * len(data)))
    while True:
        out = bytearray(front + room + back)
        try:
            with memoryview(out) as view:
                size = into(data, view[front : front + room])
        except cramjam.DecompressionError as error:
            if str(error) != _BUFFER_FULL:
                raise
            _check_limit(room + 1, limit)
            room = min(limit, room * GUESS_FACTOR)
        else:
            del out[front + size + back :]
            return out


def _decompress_snappy(data: Buffer, limit: int, front: int, back: int) -> bytearray:
    blocks = _xerial_blocks(data) if bytes(data[:8]) == _XERIAL_MAGIC else [data]
    sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
    total = sum(sizes)
    _check_limit(total, limit)
    out = bytearray(front + total + back)
    position = front
    with memoryview(out) as view:
        for block, size in zip(blocks, sizes, strict=True):
            cramjam.snappy.decompress_raw_into(block, view[position : position + size])
            position += size
    return out


def _xerial_blocks(data: Buffer) -> list[memoryview]:
    view = memoryview(data)
    position = len(_XERIAL_HEADER)
    blocks = []
    while position < len(view):
        if position + 4 > len(view):
            raise CannotDecompress("snappy: a xerial block's length is cut short")
        (size,) = _length.unpack_from(view, position)
        position += 4
        if size < 0 or position + size > len(view):
            raise CannotDecompress(f"snappy: a xerial block claims {size} bytes, {len(view) - position} left")
        blocks.append(view[position : position + size])
        position += size
    return blocks


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts: list[Buffer] = [_XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts += (_length.pack(len(block)), block)
    return b"".join(parts)
