"""Protobuf message → the shape of its columns, before Iceberg ids are given (iceberg/evolution.py does that).

| protobuf | column |
|---|---|
| int32, sint32, sfixed32 | int |
| int64, sint64, sfixed64, uint32, fixed32 | long |
| uint64, fixed64 | decimal(20, 0) |
| float, double, bool, string, bytes | float, double, boolean, string, binary |
| enum | string: the value's name, or its number in decimal when the schema has no such value |
| Timestamp | timestamptz, µs (nanoseconds cut off, out of range clamped) |
| Duration | long, µs |
| wrappers (Int64Value …) | nullable scalar |
| message | struct; null when unset |
| repeated, map | list, map; empty when there is none |
| oneof | each member an optional column |
| google.protobuf.Any, a message inside itself | binary: the serialized message |
| a message without any column | dropped |

Extensions and unknown fields have no column: they stay in `__raw__`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from schema.descriptors import is_map, is_repeated

COLUMNS_MAX = 2_000
"""Columns of one message, nested ones counted: beyond it a topic's table holds raw bytes only."""

FAMILIES = {"int": "integer", "long": "integer", "float": "real", "double": "real"}
"""Types of columns that widen to one that holds both: the first of a family to the second."""

DEPTH_MAX = 32
"""Nesting of messages that become structs; deeper ones are binary."""


class MappingError(ValueError):
    """The message cannot become columns; the reason says why."""


class Kind(Enum):
    """What a scalar column holds; the value is its Iceberg type."""

    BOOL = "boolean"
    INT32 = "int"
    INT64 = "long"
    UINT32 = "long "
    UINT64 = "decimal(20, 0)"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "binary"
    ENUM = "string "
    TIMESTAMP = "timestamptz"
    DURATION = "long  "
    OPAQUE = "binary "
    DECIMAL = "decimal"  # a leaf says which (Leaf.exact)
    DATE = "date"
    LOCAL = "timestamp"

    @property
    def iceberg_type(self) -> str:
        """The Iceberg primitive type's name (spaces only keep the members apart)."""
        return self.value.rstrip()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A scalar. `wrapped`: it comes out of a google.protobuf wrapper message. `exact`: its Iceberg type,
    where the kind alone does not say it.
    """

    kind: Kind
    wrapped: bool = False
    enum: EnumDescriptor | None = None
    exact: str = ""

    @property
    def iceberg_type(self) -> str:
        """The Iceberg primitive type's name."""
        return self.exact or self.kind.iceberg_type


@dataclass(frozen=True, slots=True)
class Struct:
    """A message; its fields in order of their numbers. `made_of`: what else it shows, if it is none."""

    fields: tuple[Field, ...]
    made_of: str = "struct"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A repeated field. Elements are never null, unless `nullable`."""

    element: Node
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map field. Keys are never null, and values neither, unless `nullable`."""

    key: Leaf
    value: Node
    nullable: bool = False


Node = Leaf | Struct | ListOf | MapOf


@dataclass(frozen=True, slots=True)
class Field:
    """A field that has a column. `name` is the schema's; a column's name may differ (evolution.py).

    `known_as`: what tells it from others where it has no number of its own, and `aliases`: what it was known
    as before; then `number` is its place. `otherwise`: it is no field but a whole type (unions.py), whose
    column keeps its name, and is called so where that is taken.
    """

    number: int
    name: str
    node: Node
    presence: bool
    known_as: str = ""
    aliases: tuple[str, ...] = ()
    otherwise: str = ""


_SCALARS = {
    FieldDescriptor.TYPE_DOUBLE: Kind.DOUBLE,
    FieldDescriptor.TYPE_FLOAT: Kind.FLOAT,
    FieldDescriptor.TYPE_INT64: Kind.INT64,
    FieldDescriptor.TYPE_UINT64: Kind.UINT64,
    FieldDescriptor.TYPE_INT32: Kind.INT32,
    FieldDescriptor.TYPE_FIXED64: Kind.UINT64,
    FieldDescriptor.TYPE_FIXED32: Kind.UINT32,
    FieldDescriptor.TYPE_BOOL: Kind.BOOL,
    FieldDescriptor.TYPE_STRING: Kind.STRING,
    FieldDescriptor.TYPE_BYTES: Kind.BYTES,
    FieldDescriptor.TYPE_UINT32: Kind.UINT32,
    FieldDescriptor.TYPE_ENUM: Kind.ENUM,
    FieldDescriptor.TYPE_SFIXED32: Kind.INT32,
    FieldDescriptor.TYPE_SFIXED64: Kind.INT64,
    FieldDescriptor.TYPE_SINT32: Kind.INT32,
    FieldDescriptor.TYPE_SINT64: Kind.INT64,
}

_WELL_KNOWN = {
    "google.protobuf.Timestamp": Leaf(Kind.TIMESTAMP),
    "google.protobuf.Duration": Leaf(Kind.DURATION),
    "google.protobuf.Any": Leaf(Kind.OPAQUE),
    "google.protobuf.DoubleValue": Leaf(Kind.DOUBLE, wrapped=True),
    "google.protobuf.FloatValue": Leaf(Kind.FLOAT, wrapped=True),
    "google.protobuf.Int64Value": Leaf(Kind.INT64, wrapped=True),
    "google.protobuf.UInt64Value": Leaf(Kind.UINT64, wrapped=True),
    "google.protobuf.Int32Value": Leaf(Kind.INT32, wrapped=True),
    "google.protobuf.UInt32Value": Leaf(Kind.UINT32, wrapped=True),
    "google.protobuf.BoolValue": Leaf(Kind.BOOL, wrapped=True),
    "google.protobuf.StringValue": Leaf(Kind.STRING, wrapped=True),
    "google.protobuf.BytesValue": Leaf(Kind.BYTES, wrapped=True),
}


def shape(descriptor: Descriptor) -> Struct:
    """The columns of a message. Raises MappingError above COLUMNS_MAX."""
    budget = iter(range(COLUMNS_MAX))
    return Struct(_fields(descriptor, (), budget))


def signature(node: Node) -> str:
    """What a column has to hold, in short: nodes with one signature can share a column.

    Integers and reals widen to what holds both; keys of a map cannot be changed in Iceberg: theirs are exact.
    """
    if isinstance(node, Leaf):
        return FAMILIES.get(node.iceberg_type, node.iceberg_type)
    if isinstance(node, Struct):
        return node.made_of
    if isinstance(node, ListOf):
        return f"list<{signature(node.element)}>"
    return f"map<{node.key.kind.iceberg_type},{signature(node.value)}>"


def _fields(descriptor: Descriptor, above: tuple[str, ...], budget: Iterator[int]) -> tuple[Field, ...]:
    path = (*above, str(descriptor.full_name))
    fields = []
    for field in sorted(descriptor.fields, key=lambda each: int(each.number)):
        node = _node(field, path, budget)
        if node is None:
            continue
        if next(budget, None) is None:
            raise MappingError(f"{path[0]} has more than {COLUMNS_MAX} columns, nested ones counted")
        fields.append(Field(int(field.number), str(field.name), node, bool(field.has_presence)))
    return tuple(fields)


def _node(field: FieldDescriptor, path: tuple[str, ...], budget: Iterator[int]) -> Node | None:
    if is_map(field):
        entry = field.message_type
        assert entry is not None
        key = _single(entry.fields_by_name["key"], path, budget)
        value = _single(entry.fields_by_name["value"], path, budget)
        return MapOf(key, value) if isinstance(key, Leaf) and value is not None else None
    node = _single(field, path, budget)
    return ListOf(node) if node is not None and is_repeated(field) else node


def _single(field: FieldDescriptor, path: tuple[str, ...], budget: Iterator[int]) -> Leaf | Struct | None:
    message = field.message_type
    if message is None:
        return Leaf(_SCALARS[field.type], enum=field.enum_type)
    if message.full_name in _WELL_KNOWN:
        return _WELL_KNOWN[message.full_name]
    if message.full_name in path or len(path) >= DEPTH_MAX:
        return Leaf(Kind.OPAQUE)
    fields = _fields(message, path, budget)
    return Struct(fields) if fields else None
