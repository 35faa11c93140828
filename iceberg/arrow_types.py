"""The Arrow form of a table's columns, each with its Iceberg field id for Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from iceberg.evolution import ColumnIds
from iceberg.mapping import Kind, Leaf, ListOf, MapOf, Node, Struct

ARROW_OF_KIND: dict[Kind, pa.DataType] = {
    Kind.BOOL: pa.bool_(),
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.UINT32: pa.int64(),
    Kind.UINT64: pa.decimal128(20, 0),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.ENUM: pa.string(),
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Kind.DURATION: pa.int64(),
    Kind.OPAQUE: pa.binary(),
}

_PRIMITIVES: dict[str, pa.DataType] = {
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}


def message_fields(
    shape: Struct, path: str, ids: ColumnIds, columns: Sequence[Mapping[str, Any]]
) -> list[pa.Field]:
    """One Arrow field per field of `shape`, in its order, named and numbered as the table's `columns`."""
    by_id = {each["id"]: each for each in columns}
    fields = []
    for each in shape.fields:
        below = f"{path}.{each.number}"
        column = by_id[ids.ids[below]]
        fields.append(field(column["name"], column["id"], _type(each.node, below, ids, column["type"])))
    return fields


def plain_field(column: Mapping[str, Any]) -> pa.Field:
    """The Arrow field of a column that is no part of a message (kafka, headers, raw bytes)."""
    return field(column["name"], column["id"], _plain_type(column["type"]), nullable=not column["required"])


def field(name: str, number: int, kind: pa.DataType, *, nullable: bool = True) -> pa.Field:
    """An Arrow field with an Iceberg id."""
    return pa.field(name, kind, nullable=nullable, metadata={"PARQUET:field_id": str(number)})


def _type(node: Node, path: str, ids: ColumnIds, column: Any) -> pa.DataType:
    if isinstance(node, Leaf):
        return ARROW_OF_KIND[node.kind]
    if isinstance(node, Struct):
        return pa.struct(message_fields(node, path, ids, column["fields"]))
    if isinstance(node, ListOf):
        element = _type(node.element, f"{path}[]", ids, column["element"])
        return pa.list_(field("element", column["element-id"], element, nullable=False))
    return _map_type(node, path, ids, column)


def _map_type(node: MapOf, path: str, ids: ColumnIds, column: Any) -> pa.DataType:
    key = _type(node.key, f"{path}{{k}}", ids, column["key"])
    value = _type(node.value, f"{path}{{v}}", ids, column["value"])
    return pa.map_(
        field("key", column["key-id"], key, nullable=False),
        field("value", column["value-id"], value, nullable=False),
    )


def _plain_type(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        return _PRIMITIVES[kind]
    if kind["type"] == "struct":
        return pa.struct([plain_field(each) for each in kind["fields"]])
    return pa.list_(field("element", kind["element-id"], _plain_type(kind["element"]), nullable=False))
