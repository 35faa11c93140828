"""Random messages: the fast conversion gives exactly what the plain one gives, and bad rows harm no other."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg import plain_decoder
from iceberg.decoder import Decoder
from schema.descriptors import is_map, is_repeated
from tests.unit.iceberg import rows
from tests.unit.schema import samples

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
SECONDS_MAX = 9_000_000_000_000
UINT32 = st.integers(0, (1 << 32) - 1)
UINT64 = st.integers(0, (1 << 64) - 1)
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_DOUBLE: st.floats(allow_nan=False),
    FieldDescriptor.TYPE_FLOAT: st.floats(width=32, allow_nan=False),
    FieldDescriptor.TYPE_INT64: INT64,
    FieldDescriptor.TYPE_SINT64: INT64,
    FieldDescriptor.TYPE_SFIXED64: INT64,
    FieldDescriptor.TYPE_UINT64: UINT64,
    FieldDescriptor.TYPE_FIXED64: UINT64,
    FieldDescriptor.TYPE_INT32: INT32,
    FieldDescriptor.TYPE_SINT32: INT32,
    FieldDescriptor.TYPE_SFIXED32: INT32,
    FieldDescriptor.TYPE_UINT32: UINT32,
    FieldDescriptor.TYPE_FIXED32: UINT32,
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_STRING: st.text(max_size=8),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=8),
}


def scalar(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    """Values of one scalar field."""
    if field.enum_type is not None:
        known = st.sampled_from(sorted(field.enum_type.values_by_number))
        return known if field.enum_type.is_closed else known | st.integers(0, 99)
    if field.full_name in ("google.protobuf.Timestamp.seconds", "google.protobuf.Duration.seconds"):
        return st.integers(-SECONDS_MAX, SECONDS_MAX)  # beyond, values are held at the end of 64 bits
    return SCALARS[field.type]


def fill(draw: st.DrawFn, message: Any, depth: int) -> None:
    """Set a random subset of the fields."""
    for field in message.DESCRIPTOR.fields:
        if not draw(st.integers(0, 2)) and not field.is_required:
            continue
        if is_map(field):
            entry = field.message_type.fields_by_name
            for key in draw(st.lists(scalar(entry["key"]), max_size=3)):
                if entry["value"].message_type is not None:
                    fill(draw, getattr(message, field.name)[key], depth + 1)
                else:
                    getattr(message, field.name)[key] = draw(scalar(entry["value"]))
        elif field.message_type is not None:
            if depth > 3:
                continue
            targets = (
                [getattr(message, field.name).add() for _ in range(draw(st.integers(0, 3)))]
                if is_repeated(field)
                else [getattr(message, field.name)]
            )
            for target in targets:
                target.SetInParent()
                fill(draw, target, depth + 1)
        elif is_repeated(field):
            getattr(message, field.name).extend(draw(st.lists(scalar(field), max_size=4)))
        else:
            setattr(message, field.name, draw(scalar(field)))


@st.composite
def payloads(draw: st.DrawFn, message_class: type[Message], broken: bytes) -> list[bytes | None]:
    """Rows of a table: messages, merged messages, tombstones and broken ones."""
    rows_: list[bytes | None] = []
    for _ in range(draw(st.integers(0, 4))):
        message = message_class()
        fill(draw, message, 0)
        payload = message.SerializeToString()
        match draw(st.integers(0, 5)):
            case 0:
                rows_.append(None)
            case 1:
                rows_.append(payload + broken)
            case 2:
                other = message_class()
                fill(draw, other, 0)
                rows_.append(payload + other.SerializeToString())
            case _:
                rows_.append(payload)
    return rows_


def reference(decoder: Decoder, kind: Any, given_rows: list[bytes | None], broken: bytes) -> list[pa.Array]:
    """Straight from parsed messages, row by row."""
    bad = [row is None or row.endswith(broken) for row in given_rows]
    messages = [
        kind.message_class() if skip else kind.message_class.FromString(row)
        for row, skip in zip(given_rows, bad, strict=True)
    ]
    values, _ = plain_decoder.rows(messages, decoder.shape, decoder.fields)
    kept = [None if skip else value for value, skip in zip(values, bad, strict=True)]
    return plain_decoder.arrays(kept, decoder.fields)


def plain(value: pa.Scalar) -> Any:
    """A scalar as Python: times as integers (years beyond 9999 exist), maps without order."""
    if not value.is_valid:
        return None
    if pa.types.is_map(value.type):
        keys, items = value.values.field(0), value.values.field(1)
        return sorted(((plain(key), repr(plain(item))) for key, item in zip(keys, items, strict=True)))
    if pa.types.is_list(value.type):
        return [plain(each) for each in value.values]
    if pa.types.is_struct(value.type):
        return {each.name: plain(value[each.name]) for each in value.type}
    return value.value if pa.types.is_timestamp(value.type) else value.as_py()


BROKEN = b"\x0b\x07\x07"
ALL = samples.message_type(samples.ZOO, "zoo.All")
ORDER = samples.message_type(samples.LEGACY, "legacy.Order")
ALL_DECODER = rows.decoder(samples.ZOO, "zoo.All")
ORDER_DECODER = rows.decoder(samples.LEGACY, "legacy.Order")
BAG = samples.message_type(samples.LEGACY, "legacy.Bag")
BAG_DECODER = rows.decoder(samples.LEGACY, "legacy.Bag")


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_every_kind_of_field(data: st.DataObject) -> None:
    check(ALL_DECODER, ALL, data.draw(payloads(ALL.message_class, BROKEN)))


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_proto2(data: st.DataObject) -> None:
    check(ORDER_DECODER, ORDER, data.draw(payloads(ORDER.message_class, BROKEN)))


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_groups_take_the_plain_way(data: st.DataObject) -> None:
    check(BAG_DECODER, BAG, data.draw(payloads(BAG.message_class, BROKEN)))


def test_the_fast_way_is_taken_where_it_can_be() -> None:
    assert (ALL_DECODER.fast, ORDER_DECODER.fast, BAG_DECODER.fast) == (True, True, False)


def check(decoder: Decoder, kind: Any, given_rows: list[bytes | None]) -> None:
    decoded = decoder.decode(given_rows)
    expected = reference(decoder, kind, given_rows, BROKEN)
    for field, got, want in zip(decoder.fields, decoded.arrays, expected, strict=True):
        got.validate(full=True)
        assert got.type == want.type, field.name
        assert [plain(each) for each in got] == [plain(each) for each in want], field.name
    assert sorted(decoded.errors) == [
        position for position, row in enumerate(given_rows) if row is not None and row.endswith(BROKEN)
    ]
