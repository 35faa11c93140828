"""The Arrow form of a table's columns, each with its Iceberg field id for Parquet."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from iceberg import evolution
from iceberg.column_ids import ColumnIds
from iceberg.mapping import Kind, Leaf, ListOf, Node, Struct

_PRIMITIVES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(20, 0)": pa.decimal128(20, 0),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "timestamp": pa.timestamp("us"),
    "date": pa.date32(),
}
_DECIMAL = re.compile(r"decimal\((\d+), (\d+)\)")

ARROW_OF_KIND: dict[Kind, pa.DataType] = {
    each: _PRIMITIVES[each.iceberg_type] for each in Kind if each is not Kind.DECIMAL
}
"""What holds a scalar of a message in a column that no other message has made wider."""

FIELD_ID = b"PARQUET:field_id"
_ALL = range(1 << 31)  # Iceberg's ids are ints


def message_fields(
    shape: Struct, parent: int, message: str, ids: ColumnIds, columns: Sequence[Mapping[str, Any]]
) -> list[pa.Field]:
    """One Arrow field per field of `shape`, in its order, named and numbered as the table's `columns`."""
    found = evolution.columns_of(shape, parent, message, ids, columns)
    return [
        field(column["name"], column["id"], _type(each.node, column["id"], message, ids, column["type"]))
        for each, column in zip(shape.fields, found, strict=True)
    ]


def within(column: Mapping[str, Any], wanted: Collection[int]) -> pa.Field:
    """The Arrow field of a column, of whose inside only what is `wanted` is left, in the table's order."""
    kind = _within(column["type"], wanted)
    return field(column["name"], column["id"], kind, nullable=not column["required"])


def whole(column: Mapping[str, Any]) -> pa.Field:
    """The Arrow field of a column with all that is inside."""
    return within(column, _ALL)


def numbers(fields: Iterable[pa.Field]) -> Iterator[int]:
    """The Iceberg ids of all columns in these, nested ones too."""
    for each in fields:
        if each.metadata is not None:
            yield int(each.metadata[FIELD_ID])
        yield from numbers(inside(each.type))


def inside(kind: pa.DataType) -> list[pa.Field]:
    """The fields that a type is made of."""
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_list(kind):
        return [kind.value_field]
    return [kind.key_field, kind.item_field] if pa.types.is_map(kind) else []


def plain_field(column: Mapping[str, Any]) -> pa.Field:
    """The Arrow field of a column that is no part of a message (kafka, headers, raw bytes)."""
    return field(column["name"], column["id"], _plain_type(column["type"]), nullable=not column["required"])


def field(name: str, number: int, kind: pa.DataType, *, nullable: bool = True) -> pa.Field:
    """An Arrow field with an Iceberg id."""
    return pa.field(name, kind, nullable=nullable, metadata={FIELD_ID: str(number)})


def _type(node: Node, parent: int, message: str, ids: ColumnIds, column: Any) -> pa.DataType:
    if isinstance(node, Leaf):
        return _primitive(column)
    if isinstance(node, Struct):
        return pa.struct(message_fields(node, parent, message, ids, column["fields"]))
    if isinstance(node, ListOf):
        number = column["element-id"]
        element = _type(node.element, number, message, ids, column["element"])
        return pa.list_(field("element", number, element, nullable=not column["element-required"]))
    number = column["value-id"]
    value = _type(node.value, number, message, ids, column["value"])
    return pa.map_(
        field("key", column["key-id"], _PRIMITIVES[column["key"]], nullable=False),
        field("value", number, value, nullable=not column["value-required"]),
    )


def _within(kind: Any, wanted: Collection[int]) -> pa.DataType:
    if isinstance(kind, str):
        return _primitive(kind)
    if kind["type"] == "struct":
        return pa.struct([within(each, wanted) for each in kind["fields"] if each["id"] in wanted])
    if kind["type"] == "list":
        element = _within(kind["element"], wanted)
        return pa.list_(field("element", kind["element-id"], element, nullable=not kind["element-required"]))
    value = _within(kind["value"], wanted)
    return pa.map_(
        field("key", kind["key-id"], _PRIMITIVES[kind["key"]], nullable=False),
        field("value", kind["value-id"], value, nullable=not kind["value-required"]),
    )


def _primitive(name: str) -> pa.DataType:
    """What holds values of an Iceberg primitive type."""
    exact = _DECIMAL.fullmatch(name)
    return _PRIMITIVES[name] if exact is None else pa.decimal128(int(exact[1]), int(exact[2]))


def _plain_type(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        return _PRIMITIVES[kind]
    if kind["type"] == "struct":
        return pa.struct([plain_field(each) for each in kind["fields"]])
    return pa.list_(field("element", kind["element-id"], _plain_type(kind["element"]), nullable=False))
