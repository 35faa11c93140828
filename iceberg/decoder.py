"""Serialized messages → Arrow columns, fast where possible and exact always.

Every payload is parsed and written again by google.protobuf first, all of them in one call where they are
as it would write them (together.py), else each by itself: that finds the bad rows, settles
what the wire leaves open (merged submessages, two members of a oneof, repeated map keys) and makes the
result independent of which library reads it next. Then ptars turns all rows into columns at once. Where
its schema for a message is not what the mapping expects, or it refuses a row, the plain conversion works.

A row is bad too when a field has bytes of another type than the message says, which parsers take for an
unknown field, or when a required one is missing: there the columns would say what the record does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ptars
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from iceberg import plain_decoder
from iceberg.arrow_types import ARROW_OF_KIND
from iceberg.mapping import Kind, Leaf, ListOf, Node, Struct
from iceberg.native import NativePanic, no_panic
from iceberg.together import Together
from schema import diagnosis
from schema.descriptors import MessageType
from schema.rules.presence import reachable

ERROR_CHARS_MAX = 400
"""Characters of one row's error."""

MESSAGES_MAX = 1_000
"""Types of messages that are inside one, up to which ptars is asked: it calls itself as deep as they go, and
some thousands end the process.
"""

_CONFIG = ptars.PtarsConfig(timestamp_unit="us", duration_unit="us", list_value_name="element")
_ANY = pa.struct([("type_url", pa.string()), ("value", pa.binary())])
_FAST_OF_KIND = {
    **ARROW_OF_KIND,
    Kind.UINT32: pa.uint32(),
    Kind.UINT64: pa.uint64(),
    Kind.ENUM: pa.int32(),
    Kind.DURATION: pa.duration("us"),
}


@dataclass(frozen=True, slots=True)
class Decoded:
    """One array per field of the shape, as long as the payloads; null where a row has no good message."""

    arrays: list[pa.Array]
    errors: dict[int, str]


class Decoder:
    """Decodes payloads of one message into the columns that `fields` describe (same order as `shape`)."""

    def __init__(self, kind: MessageType, shape: Struct, fields: Sequence[pa.Field]) -> None:
        self._kind = kind
        self.shape = shape
        self.fields = list(fields)
        self._fast, self.why_slow = _fast_handler(kind, shape)
        # Only the order of maps is left open by the serializer; asking for it costs even where there is none.
        self._options = {"deterministic": True} if _has_map(shape) else {}
        self._together = Together(kind, self._options)

    @property
    def fast(self) -> bool:
        """Whether ptars can serve this message."""
        return self._fast is not None

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Decode; None stands for a row without message."""
        good = [each for each in payloads if each is not None]
        rows: Sequence[int] = range(len(payloads))
        if len(good) < len(payloads):
            rows = [row for row, each in enumerate(payloads) if each is not None]
        errors: dict[int, str] = {}
        if not self._together.canonical(good):
            good, rows = self._one_by_one(payloads, errors)
        arrays = self._arrays(good, rows, errors)
        if len(good) < len(payloads):
            arrays = _spread(arrays, rows, len(payloads))
        return Decoded(arrays, errors)

    def _one_by_one(
        self, payloads: Sequence[bytes | None], errors: dict[int, str]
    ) -> tuple[list[bytes], list[int]]:
        """The good ones, written again, and their rows; why the others are bad goes to `errors`."""
        of, options, required = self._kind.message_class, self._options, self._kind.has_required
        good: list[bytes] = []
        rows: list[int] = []
        for row, payload in enumerate(payloads):
            if payload is None:
                continue
            try:
                message = of.FromString(payload)
            except DecodeError:
                errors[row] = diagnosis.why_unparsable(payload, self._kind.descriptor)[:ERROR_CHARS_MAX]
                continue
            of.DiscardUnknownFields(message)  # a field of a method's name hides it from the message
            written = of.SerializePartialToString(message, **options)
            # Written again it is the same: then all of it was read. Else unknown fields may have been there.
            if written != payload or required:
                why = self._why_bad(message, payload, written)
                if why is not None:
                    errors[row] = why[:ERROR_CHARS_MAX]
                    continue
            good.append(written)
            rows.append(row)
        return good, rows

    def _why_bad(self, message: Message, payload: bytes, written: bytes) -> str | None:
        """Why a parsed message, without its unknown fields, is not what its schema says; None: it is."""
        of = self._kind.message_class
        if self._kind.has_required and not of.IsInitialized(message):
            return diagnosis.why_incomplete(message)
        if written == payload:
            return None
        if of.ByteSize(of.FromString(payload)) == of.ByteSize(message):
            return None
        return diagnosis.why_mistyped(payload, self._kind.descriptor)

    def _arrays(self, good: list[bytes], rows: Sequence[int], errors: dict[int, str]) -> list[pa.Array]:
        if self._fast is not None:
            try:
                with no_panic():
                    batch = self._fast.list_to_record_batch(good)
            except (ValueError, NativePanic):  # proto2 text that is not UTF-8; ptars does not say which row
                pass
            else:
                return [
                    _adapt(batch.column(each.name), each.node, field.type)
                    for each, field in zip(self.shape.fields, self.fields, strict=True)
                ]
        parse = self._kind.message_class.FromString
        messages: list[Message] = [parse(payload) for payload in good]
        values, reasons = plain_decoder.rows(messages, self.shape, self.fields)
        for row, reason in zip(rows, reasons, strict=True):
            if reason is not None:
                errors[row] = reason[:ERROR_CHARS_MAX]
        return plain_decoder.arrays(values, self.fields)


def _has_map(node: Node) -> bool:
    """Whether the columns hold a map, or serialized messages, which may."""
    if isinstance(node, Leaf):
        return node.kind is Kind.OPAQUE
    if isinstance(node, Struct):
        return any(_has_map(each.node) for each in node.fields)
    return not isinstance(node, ListOf) or _has_map(node.element)


def _spread(arrays: list[pa.Array], rows: Sequence[int], length: int) -> list[pa.Array]:
    """Put row n of the arrays at position rows[n] of `length` rows, the others null."""
    positions: list[int | None] = [None] * length
    for source, row in enumerate(rows):
        positions[row] = source
    taken = pa.array(positions, pa.int64())
    return [array.take(taken) for array in arrays]


def _fast_handler(kind: MessageType, shape: Struct) -> tuple[Any, str]:
    """ptars' handler; None, and why, when the columns it would give are not the mapping's."""
    inside = [*reachable(kind.descriptor)]
    if len(inside) > MESSAGES_MAX:
        return None, f"more than {MESSAGES_MAX} messages can be inside it"
    if any(field.type == FieldDescriptor.TYPE_GROUP for each in inside for field in each.fields):
        return None, "it has groups"  # ptars gives null for them
    try:
        with no_panic():
            handler = ptars.HandlerPool([kind.descriptor.file], config=_CONFIG).get_for_message(
                kind.descriptor
            )
            given = handler.schema()
    except Exception as error:  # whatever it cannot do with this message, the plain way can
        return None, str(error)[-ERROR_CHARS_MAX:]
    fits = all(
        given.get_field_index(each.name) >= 0 and _fits(given.field(each.name).type, each.node)
        for each in shape.fields
    )
    return (handler, "") if fits else (None, "it gives other types")


def _fits(given: pa.DataType, node: Node) -> bool:
    if isinstance(node, Leaf):
        return given == _FAST_OF_KIND[node.kind] or (node.kind is Kind.OPAQUE and _is_any(given))
    if isinstance(node, Struct):
        return pa.types.is_struct(given) and all(
            given.get_field_index(each.name) >= 0 and _fits(given.field(each.name).type, each.node)
            for each in node.fields
        )
    if isinstance(node, ListOf):
        return pa.types.is_list(given) and _fits(given.value_type, node.element)
    return pa.types.is_map(given) and _fits(given.key_type, node.key) and _fits(given.item_type, node.value)


def _is_any(given: pa.DataType) -> bool:
    return pa.types.is_struct(given) and [(each.name, each.type) for each in given] == [
        (each.name, each.type) for each in _ANY
    ]


def _adapt(array: pa.Array, node: Node, target: pa.DataType) -> pa.Array:
    """ptars' array in the table's type."""
    if isinstance(node, Leaf):
        return _adapt_leaf(array, node, target)
    if isinstance(node, Struct):
        children = [
            _adapt(array.field(each.name), each.node, target.field(position).type)
            for position, each in enumerate(node.fields)
        ]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    if isinstance(node, ListOf):
        values = _adapt(array.values, node.element, target.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=target, mask=_mask(array))
    keys = _adapt(array.keys, node.key, target.key_type)
    items = _adapt(array.items, node.value, target.item_type)
    return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=_mask(array))


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _adapt_leaf(array: pa.Array, node: Leaf, target: pa.DataType) -> pa.Array:
    """The column may be wider than this message needs."""
    match node.kind:
        case Kind.UINT32 | Kind.DURATION:
            return array.cast(pa.int64())
        case Kind.UINT64:
            return array.cast(pa.decimal128(20, 0))
        case Kind.ENUM:
            return _enum_names(array, node)
        case Kind.OPAQUE if pa.types.is_struct(array.type):
            return pa.array(
                [
                    None if each is None else plain_decoder.any_bytes(each["type_url"], each["value"])
                    for each in array.to_pylist()
                ],
                pa.binary(),
            )
    return array if array.type == target else array.cast(target)


def _enum_names(array: pa.Array, node: Leaf) -> pa.Array:
    assert node.enum is not None
    known = node.enum.values_by_number
    numbers = pa.array(list(known), pa.int32())
    names = pa.array([known[number].name for number in known], pa.string())
    found = names.take(pc.index_in(array, numbers))
    if found.null_count == array.null_count:
        return found
    return pc.coalesce(found, array.cast(pa.string()))
