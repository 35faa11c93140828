"""Says why a record is not a valid message: the slow path, taken only by records that were refused.

google.protobuf's parser answers yes or no. This walk over the wire format finds the first byte at which
a record stops being the message and names the field. Rules: protobuf.dev "Encoding".
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from schema.descriptors import is_repeated

_JSON_BEGINS = re.compile(rb"\s*(?:\{\s*[\"}]|\[\s*[\[{\"\]\d-])")
_JSON_ENDS = (b"}", b"]")
_CONFLUENT_BYTES = 5
"""The frame that Confluent's JSON serializers put before the text: 0x00 and a schema id."""

DEPTH_MAX = 100
"""Nesting of messages that google.protobuf's parser accepts."""

_MISSING_NAMED = 5
_VARINT_BYTES_MAX = 10
_FIELD_NUMBER_MAX = (1 << 29) - 1
_BAD_PIECE_BYTES = 8


class Wire(IntEnum):
    """Wire types."""

    VARINT = 0
    FIXED64 = 1
    LENGTH_DELIMITED = 2
    START_GROUP = 3
    END_GROUP = 4
    FIXED32 = 5


_WIRE_OF_TYPE = {
    FieldDescriptor.TYPE_DOUBLE: Wire.FIXED64,
    FieldDescriptor.TYPE_FIXED64: Wire.FIXED64,
    FieldDescriptor.TYPE_SFIXED64: Wire.FIXED64,
    FieldDescriptor.TYPE_FLOAT: Wire.FIXED32,
    FieldDescriptor.TYPE_FIXED32: Wire.FIXED32,
    FieldDescriptor.TYPE_SFIXED32: Wire.FIXED32,
    FieldDescriptor.TYPE_STRING: Wire.LENGTH_DELIMITED,
    FieldDescriptor.TYPE_BYTES: Wire.LENGTH_DELIMITED,
    FieldDescriptor.TYPE_MESSAGE: Wire.LENGTH_DELIMITED,
    FieldDescriptor.TYPE_GROUP: Wire.START_GROUP,
}


class _Bad(Exception):
    """Carries the reason out of the walk."""


def why_unparsable(payload: bytes, descriptor: Descriptor) -> str:
    """The reason why `payload`, which the parser refused, cannot be parsed as the message."""
    for utf8 in (False, True):  # structure first: a broken length makes any text look broken
        try:
            _Walk(payload, check_utf8=utf8, strict=False).message(descriptor, 0, len(payload), "", 0)
        except _Bad as bad:
            return str(bad)
    return f"cannot be parsed as {descriptor.full_name}"


def why_unknown(payload: bytes, descriptor: Descriptor) -> str:
    """Names the first field of a parsable `payload` that the message does not have."""
    try:
        _Walk(payload, check_utf8=False, strict=True).message(descriptor, 0, len(payload), "", 0)
    except _Bad as bad:
        return str(bad)
    return f"has fields that {descriptor.full_name} does not have"


def why_mistyped(payload: bytes, descriptor: Descriptor) -> str | None:
    """Names the first field of a parsable `payload` whose bytes are of another type than the message's.

    The parser takes such a field for unknown, and the message for one that lacks it. None: there is none;
    fields that the message does not have at all may be there.
    """
    try:
        walk = _Walk(payload, check_utf8=False, strict=True, unknown=True)
        walk.message(descriptor, 0, len(payload), "", 0)
    except _Bad as bad:
        return str(bad)
    return None


def why_incomplete(message: Message) -> str:
    """Names the required fields (proto2, editions) that a parsed message lacks."""
    names = cast(Any, type(message)).FindInitializationErrors(message)
    more = f" and {len(names) - _MISSING_NAMED} more" if len(names) > _MISSING_NAMED else ""
    named = ", ".join(f"`{name}`" for name in names[:_MISSING_NAMED])
    return f"required field {named}{more} is missing"


def looks_like_json(record: bytes) -> bool:
    """Whether a refused record has the shape of a JSON object or array, with or without Confluent's frame."""
    text = record[_CONFLUENT_BYTES:] if record[:1] == b"\x00" else record
    return _JSON_BEGINS.match(text) is not None and text.rstrip().endswith(_JSON_ENDS)


class _Walk:
    def __init__(self, payload: bytes, *, check_utf8: bool, strict: bool, unknown: bool = False) -> None:
        self._payload = payload
        self._check_utf8 = check_utf8
        self._strict = strict
        self._unknown = unknown  # fields and values of enums that the message does not have may be there

    def message(
        self, descriptor: Descriptor | None, position: int, end: int, path: str, depth: int, group: int = 0
    ) -> int:
        """Walk one message (or, with `group`, until that group's end tag); returns where it ended."""
        if depth > DEPTH_MAX:
            raise _Bad(f"{_field(path)}: messages nested deeper than {DEPTH_MAX}")
        while position < end:
            start = position
            tag, position = self._varint(position, end, f"{_inside(path)}truncated or overlong tag", "")
            number, wire = tag >> 3, tag & 7
            if wire == Wire.END_GROUP and group and number == group:
                return position
            if not 0 < number <= _FIELD_NUMBER_MAX or wire > Wire.FIXED32 or wire == Wire.END_GROUP:
                piece = self._payload[start : start + _BAD_PIECE_BYTES].hex()
                raise _Bad(f"{_inside(path)}no field starts at byte {start} (bytes {piece})")
            field = _find(descriptor, number)
            name = (
                f"{path}.{field.name if field else number}" if path else str(field.name if field else number)
            )
            if self._strict:
                self._judge(field, wire, number, name, descriptor)
            position = self._value(field, number, wire, position, end, name, depth)
        if group:
            raise _Bad(f"{_field(path)}: group without end")
        return position

    def _value(
        self,
        field: FieldDescriptor | None,
        number: int,
        wire: int,
        position: int,
        end: int,
        name: str,
        depth: int,
    ) -> int:
        if wire == Wire.VARINT:
            value, position = self._varint(position, end, f"{_field(name)}: truncated varint", name)
            self._closed_enum(field, value, name)
            return position
        if wire in (Wire.FIXED64, Wire.FIXED32):
            size = 8 if wire == Wire.FIXED64 else 4
            if position + size > end:
                raise _Bad(f"{_field(name)}: {size} bytes needed at byte {position}, {end - position} left")
            return position + size
        known = field is not None and expected_wire(field) == wire
        inner = field.message_type if field is not None and known else None
        if wire == Wire.START_GROUP:
            return self.message(inner, position, end, name, depth + 1, group=number)
        length, position = self._varint(position, end, f"{_field(name)}: truncated length", name)
        if position + length > end:
            raise _Bad(
                f"{_field(name)}: length {length} at byte {position}, but {end - position} bytes are left"
            )
        stop = position + length
        if inner is not None:
            return self.message(inner, position, stop, name, depth + 1)
        if field is not None:
            self._blob(field, known, position, stop, name)
        return stop

    def _blob(self, field: FieldDescriptor, known: bool, position: int, stop: int, name: str) -> None:
        """The inside of a length-delimited value that is not a message: text or packed numbers."""
        if known:
            if field.type == FieldDescriptor.TYPE_STRING and self._check_utf8:
                self._utf8(position, stop, name)
            return
        if not _packable(field):
            return
        wire = expected_wire(field)
        size = {Wire.FIXED64: 8, Wire.FIXED32: 4}.get(wire)
        if size and (stop - position) % size:
            raise _Bad(f"{_field(name)}: {stop - position} packed bytes are no multiple of {size}")
        while not size and position < stop:
            _, position = self._varint(position, stop, f"{_field(name)}: truncated varint", name)

    def _judge(
        self, field: FieldDescriptor | None, wire: int, number: int, name: str, descriptor: Descriptor | None
    ) -> None:
        if field is None and self._unknown:
            return
        if field is None:
            owner = descriptor.full_name if descriptor is not None else "the message"
            raise _Bad(f"{_field(name)}: {owner} has no field number {number}")
        expected = expected_wire(field)
        if wire != expected and not (wire == Wire.LENGTH_DELIMITED and _packable(field)):
            raise _Bad(
                f"{_field(name)}: wire type {_wire_name(wire)}, but its type needs {_wire_name(expected)}"
            )

    def _closed_enum(self, field: FieldDescriptor | None, value: int, name: str) -> None:
        if not self._strict or self._unknown or field is None:
            return
        if field.enum_type is None or not field.enum_type.is_closed:
            return
        signed = value - (1 << 64) if value >> 63 else value
        if signed not in field.enum_type.values_by_number:
            raise _Bad(f"{_field(name)}: {field.enum_type.full_name} has no value {signed}")

    def _utf8(self, position: int, stop: int, name: str) -> None:
        try:
            self._payload[position:stop].decode()
        except UnicodeDecodeError as error:
            raise _Bad(f"{_field(name)}: invalid UTF-8 at byte {position + error.start}") from None

    def _varint(self, position: int, end: int, truncated: str, name: str) -> tuple[int, int]:
        value = 0
        for count in range(_VARINT_BYTES_MAX):
            if position >= end:
                raise _Bad(f"{truncated} at byte {position}")
            byte = self._payload[position]
            position += 1
            value |= (byte & 0x7F) << (7 * count)
            if byte < 0x80:
                return value & ((1 << 64) - 1), position
        raise _Bad(f"{_inside(name)}varint longer than {_VARINT_BYTES_MAX} bytes before byte {position}")


def expected_wire(field: FieldDescriptor) -> Wire:
    """The wire type of one value of the field."""
    return _WIRE_OF_TYPE.get(field.type, Wire.VARINT)


def _packable(field: FieldDescriptor) -> bool:
    return is_repeated(field) and expected_wire(field) in (Wire.VARINT, Wire.FIXED32, Wire.FIXED64)


def _find(descriptor: Descriptor | None, number: int) -> FieldDescriptor | None:
    if descriptor is None:
        return None
    found = descriptor.fields_by_number.get(number)
    if found is None and descriptor.is_extendable:
        try:
            return descriptor.file.pool.FindExtensionByNumber(descriptor, number)
        except KeyError:
            return None
    return found


def _field(path: str) -> str:
    return f"field `{path}`" if path else "record"


def _inside(path: str) -> str:
    return f"in field `{path}`: " if path else ""


def _wire_name(wire: int) -> str:
    return Wire(wire).name.lower().replace("_", "-")
