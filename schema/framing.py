"""The Confluent wire format for protobuf records.

Layout: 0x00, schema id (int32 big-endian), message indexes (zigzag varints: a count, then that many;
the path [0] is written as the single byte 0x00), payload. A protobuf message never starts with 0x00
(field number 0 is illegal), so framed and plain records can be told apart by their first byte.

Newer serializers (Confluent Platform 8) may put the frame into a header of the record: 0x01, the schema's
guid (16 bytes), message indexes; the record is then the payload alone. Here such records are taken as the
header's bytes with the payload behind them (`composed`), so that whoever reads frames reads these as well.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from objectstore.varint import zigzag

MAGIC = 0
INDEXES_MAX = 32
"""Longest path of message indexes accepted: deeper nesting than any real schema."""

_HEADER = struct.Struct(">bi")
ID_END = _HEADER.size
"""Bytes of a frame up to the end of its schema id."""

GUID_MAGIC = 1
GUID_END = 17
"""Bytes of a frame up to the end of its schema's guid."""

ID_HEADERS = {"key": "__key_schema_id", "value": "__value_schema_id"}
"""By role, the header of a record that has its frame."""

SchemaName: TypeAlias = int | bytes
"""How a frame names a schema: by its id, or by its guid."""

_VARINT_BYTES_MAX = 5

_GUID = bytes([GUID_MAGIC])
"""Alone it stands for a record whose header is no frame: whoever reads it is told so."""


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


class Named(NamedTuple):
    """A parsed prefix that names its schema by id or guid. The payload begins at byte `start`."""

    schema: SchemaName
    indexes: tuple[int, ...]
    start: int


def composed(
    role: str, record: bytes | None, headers: Iterable[tuple[str, bytes | None]], *, exact: bool = False
) -> bytes | None:
    """The record behind its frame, where a header has that; else the record as it is. Null stays null.

    `exact`: a header with bytes behind the frame has none.
    """
    if record is None:
        return None
    wanted = ID_HEADERS[role]
    for name, content in headers:
        if name == wanted:
            good = content is not None and (_is_whole(content) if exact else is_frame(content))
            return content + record if good and content is not None else _GUID
    return record


def composed_all(
    role: str,
    records: Sequence[bytes | None],
    headers: Sequence[Sequence[tuple[str, bytes | None]]],
    *,
    exact: bool = False,
) -> Sequence[bytes | None]:
    """`composed` of each."""
    if not any(headers):
        return records
    return [
        composed(role, record, own, exact=exact) if own else record
        for record, own in zip(records, headers, strict=True)
    ]


def first_bytes(schema: SchemaName) -> bytes:
    """What frames that name the schema begin with."""
    return _HEADER.pack(MAGIC, schema) if isinstance(schema, int) else _GUID + schema


def is_frame(content: bytes) -> bool:
    """Whether a header's bytes are as long as what their first byte says."""
    return len(content) >= {MAGIC: ID_END, GUID_MAGIC: GUID_END}.get(content[0] if content else -1, 1 << 31)


def _is_whole(content: bytes) -> bool:
    """Whether a header's bytes are a frame with nothing behind it."""
    if len(content) == (GUID_END if content[:1] == _GUID else ID_END):
        return is_frame(content)
    try:
        return named(content).start == len(content)
    except FramingError:
        return False


def shown(schema: SchemaName) -> str:
    """A schema's id or guid, for people."""
    if isinstance(schema, int):
        return str(schema)
    digits = schema.hex()
    return "-".join(digits[start:end] for start, end in pairwise((0, 8, 12, 16, 20, 32)))


def schema_named(record: bytes) -> tuple[SchemaName, int]:
    """By what a framed record names its schema, of any type, and where that ends. Raises FramingError."""
    if record[:1] != _GUID:
        return schema_id(record), ID_END
    if len(record) < GUID_END:
        told = f"Confluent frame of {len(record)} bytes: {GUID_END} are needed with a guid"
        raise FramingError(f"{told}; a header has a frame with nothing behind it, or none")
    return record[1:GUID_END], GUID_END


def named(record: bytes) -> Named:
    """Read the prefix of a framed record, with an id or a guid. Raises FramingError."""
    if record[:1] != _GUID:
        return Named(*parse(record))
    guid, at = schema_named(record)
    return Named(guid, *_indexes(record, at))


def parse(record: bytes) -> Frame:
    """Read the prefix of a framed record. Raises FramingError."""
    if len(record) < _HEADER.size + 1:
        raise FramingError(f"Confluent frame of {len(record)} bytes: at least {_HEADER.size + 1} are needed")
    magic, schema_id = _HEADER.unpack_from(record)
    if magic != MAGIC:
        raise FramingError(f"Confluent frame begins with byte {magic & 0xFF:#04x}: 0x00 is needed")
    return Frame(schema_id, *_indexes(record, _HEADER.size))


def _indexes(record: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """The message indexes that begin there, and where the payload begins."""
    count, position = _read_zigzag(record, position)
    if count == 0:
        return (0,), position
    if not 0 < count <= INDEXES_MAX:
        raise FramingError(f"Confluent frame has {count} message indexes: 1 to {INDEXES_MAX} are possible")
    indexes = []
    for _ in range(count):
        index, position = _read_zigzag(record, position)
        if index < 0:
            raise FramingError(f"Confluent frame has the message index {index}")
        indexes.append(index)
    return tuple(indexes), position


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
