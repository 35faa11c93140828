"""Messages → Arrow by plain Python: the reference conversion, and the way out where the fast one refuses."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from google.protobuf.message import Message

from iceberg.mapping import Field, Kind, Leaf, ListOf, Node, Struct
from objectstore.varint import varint

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_MICROS = 1_000_000


Row = tuple[Any, ...]


def rows(
    messages: Sequence[Message], shape: Struct, fields: Sequence[pa.Field]
) -> tuple[list[Row | None], list[str | None]]:
    """Per message its column values and None, or None and why its text cannot be shown."""
    values: list[Row | None] = []
    columns = [(each, target.type) for each, target in zip(shape.fields, fields, strict=True)]
    reasons: list[str | None] = []
    for message in messages:
        try:
            values.append(tuple(_field(message, each, target) for each, target in columns))
            reasons.append(None)
        except UnicodeDecodeError as error:
            values.append(None)
            reasons.append(f"text is not UTF-8: {error.reason}")
    return values, reasons


def arrays(values: Sequence[Row | None], fields: Sequence[pa.Field]) -> list[pa.Array]:
    """One Arrow array per field; a row that is None is null in all of them."""
    return [
        pa.array([None if row is None else row[position] for row in values], each.type)
        for position, each in enumerate(fields)
    ]


def _field(message: Any, each: Field, target: pa.DataType) -> Any:
    if each.presence and not type(message).HasField(message, each.name):
        return None
    return _value(getattr(message, each.name), each.node, target)


def _value(value: Any, node: Node, target: pa.DataType) -> Any:
    if isinstance(node, Leaf):
        return _leaf(value, node)
    if isinstance(node, Struct):
        return {
            column.name: _field(value, each, column.type)
            for each, column in zip(node.fields, target, strict=True)
        }
    if isinstance(node, ListOf):
        return [_value(each, node.element, target.value_type) for each in value]
    items = [(key, value[key]) for key in sorted(value)]
    return [(_leaf(key, node.key), _value(item, node.value, target.item_type)) for key, item in items]


def _leaf(value: Any, node: Leaf) -> Any:
    if node.wrapped:
        value = value.value
    match node.kind:
        case Kind.UINT64:
            return Decimal(value)
        case Kind.ENUM:
            assert node.enum is not None
            known = node.enum.values_by_number.get(value)
            return str(value) if known is None else known.name
        case Kind.TIMESTAMP | Kind.DURATION:
            return micros(value.seconds, value.nanos)
        case Kind.OPAQUE:
            return opaque(value)
        case Kind.STRING if isinstance(value, bytes):  # proto2's text that is not UTF-8 comes so
            return value.decode()
    return value


def micros(seconds: int, nanos: int) -> int:
    """Microseconds, nanoseconds cut off towards zero, held inside 64 bits."""
    part = nanos // 1000 if nanos >= 0 else -(-nanos // 1000)
    return max(_INT64_MIN, min(_INT64_MAX, seconds * _MICROS + part))


def opaque(message: Any) -> bytes:
    """The serialized form of a message that has no columns of its own."""
    of = type(message)  # a field of a method's name hides it from the message
    if of.DESCRIPTOR.full_name == "google.protobuf.Any":
        return any_bytes(message.type_url, message.value)
    return bytes(of.SerializePartialToString(message, deterministic=True))


def any_bytes(type_url: str, value: bytes) -> bytes:
    """A serialized google.protobuf.Any."""
    url = type_url.encode()
    parts = [b"\x0a", varint(len(url)), url] if url else []
    return b"".join((*parts, b"\x12", varint(len(value)), value) if value else parts)
