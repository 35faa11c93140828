"""Avro's binary numbers and strings, read at a place and written. Pure."""

from __future__ import annotations

from collections.abc import Callable


class Broken(ValueError):
    """The bytes are no Avro."""


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it. Raises Broken, IndexError behind the end."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise Broken("a number of more than 64 bits")


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """The string at a place, and the place behind it. Raises Broken, IndexError."""
    size, at = read_long(data, at)
    if size < 0 or at + size > len(data):
        raise Broken(f"a string of {size} bytes where {len(data) - at} are left")
    return data[at : at + size], at + size


def written_long(value: int) -> bytes:
    """A number as it is stored."""
    left = (value << 1) ^ (value >> 63)
    made = bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def skip_blocks(data: bytes, at: int, item: Callable[[int], int]) -> int:
    """The place behind an array or a map. `item`: the place behind one of its items."""
    while True:
        count, at = read_long(data, at)
        if count == 0:
            return at
        if count < 0:
            size, at = read_long(data, at)
            at += size
            continue
        for _ in range(count):
            at = item(at)
