"""The Confluent wire format for protobuf records.

Layout: 0x00, schema id (int32 big-endian), message indexes (zigzag varints: a count, then that many;
the path [0] is written as the single byte 0x00), payload. A protobuf message never starts with 0x00
(field number 0 is illegal), so framed and plain records can be told apart by their first byte.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from objectstore.varint import zigzag

MAGIC = 0
INDEXES_MAX = 32
"""Longest path of message indexes accepted: deeper nesting than any real schema."""

_HEADER = struct.Struct(">bi")
ID_END = _HEADER.size
"""Bytes of a frame up to the end of its schema id."""

_VARINT_BYTES_MAX = 5


class FramingError(ValueError):
    """The bytes are not in the Confluent wire format; the message says where they stop being so."""


class Frame(NamedTuple):
    """A parsed prefix. The payload begins at byte `start`."""

    schema_id: int
    indexes: tuple[int, ...]
    start: int


def prefix(schema_id: int, indexes: tuple[int, ...]) -> bytes:
    """The bytes that come before the payload."""
    header = _HEADER.pack(MAGIC, schema_id)
    if indexes == (0,):
        return header + b"\x00"
    return header + b"".join(zigzag(number) for number in (len(indexes), *indexes))


def schema_id(record: bytes) -> int:
    """The id that a framed record of any type of schemas names. Raises FramingError."""
    if len(record) < _HEADER.size:
        raise FramingError(f"Confluent frame of {len(record)} bytes: at least {_HEADER.size} are needed")
    return int(_HEADER.unpack_from(record)[1])


def parse(record: bytes) -> Frame:
    """Read the prefix of a framed record. Raises FramingError."""
    if len(record) < _HEADER.size + 1:
        raise FramingError(f"Confluent frame of {len(record)} bytes: at least {_HEADER.size + 1} are needed")
    magic, schema_id = _HEADER.unpack_from(record)
    if magic != MAGIC:
        raise FramingError(f"Confluent frame begins with byte {magic & 0xFF:#04x}: 0x00 is needed")
    count, position = _read_zigzag(record, _HEADER.size)
    if count == 0:
        return Frame(schema_id, (0,), position)
    if not 0 < count <= INDEXES_MAX:
        raise FramingError(f"Confluent frame has {count} message indexes: 1 to {INDEXES_MAX} are possible")
    indexes = []
    for _ in range(count):
        index, position = _read_zigzag(record, position)
        if index < 0:
            raise FramingError(f"Confluent frame has the message index {index}")
        indexes.append(index)
    return Frame(schema_id, tuple(indexes), position)


def _read_zigzag(record: bytes, position: int) -> tuple[int, int]:
    value = 0
    for count in range(_VARINT_BYTES_MAX):
        if position >= len(record):
            raise FramingError("Confluent frame ends inside its message indexes")
        byte = record[position]
        position += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise FramingError(f"Confluent frame has a message index longer than {_VARINT_BYTES_MAX} bytes")
