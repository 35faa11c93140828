"""The wire's part of the audit: the Confluent frame, and whether a message's bytes are of its schema's types.

Written for the audit alone, so that it shares no mistake with what Floe decodes by. Rules: protobuf.dev
"Encoding"; docs/tables.md for what counts as an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.descriptor import Descriptor, FieldDescriptor

VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)

_FRAME_BYTES = 6  # 0x00, four bytes of schema id, at least one of message indexes
_INDEXES_MAX = 32

_WIRE = {
    **dict.fromkeys(
        (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64), FIXED64
    ),
    **dict.fromkeys(
        (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32), FIXED32
    ),
    **dict.fromkeys(
        (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE), LENGTH
    ),
    FieldDescriptor.TYPE_GROUP: START_GROUP,
}


GUID, GUID_END = b"\1", 17  # a frame that names its schema by 16 bytes
RowHeaders = Sequence[tuple[str | None, bytes | None]]
"""A row's headers: names and contents."""


class Bad(ValueError):
    """The bytes are not what their schema, or their frame, says."""


def with_header(role: str, record: bytes, headers: RowHeaders) -> bytes:
    """The record behind the frame that the first header of that name has. Raises Bad."""
    for name, content in headers:
        if name == f"__{role}_schema_id":
            if content is None or not (
                (content[:1] == GUID and len(content) >= GUID_END)
                or (content[:1] == b"\0" and len(content) >= _FRAME_BYTES - 1)
            ):
                raise Bad("a header that should have a frame has none")
            return content + record
    return record


def frame(record: bytes) -> tuple[int, tuple[int, ...], bytes]:
    """Schema id, message indexes and payload of a record in the Confluent wire format. Raises Bad."""
    if len(record) < _FRAME_BYTES:
        raise Bad("a Confluent frame is cut short")
    schema_id = int.from_bytes(record[1:5], "big", signed=True)
    numbers: list[int] = []
    count, at = _zigzag(record, 5)
    if not 0 <= count <= _INDEXES_MAX:
        raise Bad(f"a Confluent frame with {count} message indexes")
    for _ in range(count):
        number, at = _zigzag(record, at)
        numbers.append(number)
    if any(number < 0 for number in numbers):
        raise Bad("a Confluent frame with a negative message index")
    return schema_id, tuple(numbers or (0,)), record[at:]


def _zigzag(record: bytes, at: int) -> tuple[int, int]:
    value, end = _varint(record, at)
    if end - at > 5:
        raise Bad("a Confluent frame with an overlong message index")
    return (value >> 1) ^ -(value & 1), end


def mistyped(payload: bytes, descriptor: Descriptor) -> str | None:
    """The first field, of a message that parses, whose bytes are of another type than its own; None: none."""
    try:
        _walk(payload, 0, len(payload), descriptor)
    except Bad as bad:
        return str(bad)
    return None


def _walk(data: bytes, at: int, end: int, descriptor: Descriptor | None, group: int = 0) -> int:
    """Go through a message, `descriptor` None: of which nothing is known; where it ends."""
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == END_GROUP:
            if number != group:
                raise Bad(f"a group {number} ends that did not begin")
            return at
        field = _field(descriptor, number)
        if field is not None and not _fits(field, wire):
            raise Bad(f"field {field.full_name} has bytes of wire type {wire}")
        inner = field.message_type if field is not None else None
        if wire == VARINT:
            _, at = _varint(data, at)
        elif wire in (FIXED64, FIXED32):
            at += 8 if wire == FIXED64 else 4
        elif wire == START_GROUP:
            at = _walk(data, at, end, inner, number)
        elif wire == LENGTH:
            size, at = _varint(data, at)
            if inner is not None:
                _walk(data, at, at + size, inner)
            at += size
        else:
            raise Bad(f"no field begins at byte {at}")
    return at


def _field(descriptor: Descriptor | None, number: int) -> FieldDescriptor | None:
    if descriptor is None:
        return None
    found = descriptor.fields_by_number.get(number)
    if found is None and descriptor.is_extendable:
        try:
            found = descriptor.file.pool.FindExtensionByNumber(descriptor, number)
        except KeyError:
            found = None
    return found


def _fits(field: FieldDescriptor, wire: int) -> bool:
    own = _WIRE.get(field.type, VARINT)
    packed = wire == LENGTH and field.is_repeated and own in (VARINT, FIXED64, FIXED32)
    return wire == own or packed


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise Bad("a number is cut short")
