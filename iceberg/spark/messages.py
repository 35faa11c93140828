"""What columns a message's bytes mean, decoded for the audit alone: google.protobuf and an own conversion.

Nothing of Floe's decoder is used (docs/decisions/0013); the rules are those of docs/tables.md and the table
at the top of iceberg/mapping.py. Values come out as cells.py makes them of the table's: text as bytes, reals
as their bits, times as µs, structs as {Iceberg id: value}, maps as sorted pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from iceberg.column_ids import ColumnIds
from iceberg.spark.vectors import (
    Cells,
    ListCells,
    MapCells,
    Member,
    ScalarCells,
    StructCells,
    WholeCells,
    unchanged,
)
from iceberg.spark.wire import Bad, mistyped
from schema.descriptors import MessageType

COLUMNS_MAX = 2_000
"""Columns of one message, nested ones counted: a larger one has none (docs/tables.md)."""

TABLE_COLUMNS_MAX = 10_000
"""Decoded columns of one table, likewise."""

_TYPE = "@"  # before a message's full name: what a struct for it alone is known as
_DEPTH_MAX = 32  # messages inside each other; what is deeper is binary
_INT64 = 1 << 63

Plain = Any
Columns = Sequence[Mapping[str, Any]]

_T = FieldDescriptor
_TYPES = {
    **dict.fromkeys((_T.TYPE_INT32, _T.TYPE_SINT32, _T.TYPE_SFIXED32), "int"),
    **dict.fromkeys(
        (_T.TYPE_INT64, _T.TYPE_SINT64, _T.TYPE_SFIXED64, _T.TYPE_UINT32, _T.TYPE_FIXED32), "long"
    ),
    **dict.fromkeys((_T.TYPE_UINT64, _T.TYPE_FIXED64), "decimal(20, 0)"),
    _T.TYPE_FLOAT: "float",
    _T.TYPE_DOUBLE: "double",
    _T.TYPE_BOOL: "boolean",
    _T.TYPE_STRING: "string",
    _T.TYPE_ENUM: "string",
    _T.TYPE_BYTES: "binary",
}
_WIDER = {"int": "long", "float": "double"}
_FAMILY = {"int": "integer", "long": "integer", "float": "real", "double": "real"}
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value of Iceberg's `type`, as narrow as the field needs; `plain` of what google.protobuf gives."""

    type: str
    plain: Callable[[Any], Plain]


@dataclass(frozen=True, slots=True)
class Struct:
    """A message that has columns."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class List:
    """A repeated field."""

    element: Scalar | Struct


@dataclass(frozen=True, slots=True)
class Map:
    """A map."""

    key: Scalar
    value: Scalar | Struct


Node = Scalar | Struct | List | Map


@dataclass(frozen=True, slots=True)
class Field:
    """A field that has a column."""

    number: int
    name: str
    node: Node
    presence: bool


def shape(descriptor: Descriptor, above: tuple[str, ...] = ()) -> Struct:
    """The fields of a message that have columns; none of one without."""
    path = (*above, str(descriptor.full_name))
    found = []
    for each in descriptor.fields:
        node = _node(each, path)
        if node is not None:
            found.append(Field(int(each.number), str(each.name), node, bool(each.has_presence)))
    return Struct(tuple(found))


def count(node: Node) -> int:
    """Columns inside."""
    if isinstance(node, Struct):
        return sum(1 + count(each.node) for each in node.fields)
    if isinstance(node, List):
        return count(node.element)
    return count(node.value) if isinstance(node, Map) else 0


def _node(field: FieldDescriptor, path: tuple[str, ...]) -> Node | None:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, value = (_single(message.fields_by_name[name], path) for name in ("key", "value"))
        return Map(key, value) if isinstance(key, Scalar) and value is not None else None
    single = _single(field, path)
    return List(single) if single is not None and field.is_repeated else single


def _single(field: FieldDescriptor, path: tuple[str, ...]) -> Scalar | Struct | None:
    message = field.message_type
    if message is None:
        return Scalar(_TYPES[field.type], _conversion(field))
    name = str(message.full_name)
    if name == "google.protobuf.Timestamp":
        return Scalar("timestamptz", _micros)
    if name == "google.protobuf.Duration":
        return Scalar("long", _micros)
    if name in _WRAPPERS:
        inner = message.fields_by_name["value"]
        convert = _conversion(inner)
        return Scalar(_TYPES[inner.type], lambda wrapper: convert(wrapper.value))
    if name == "google.protobuf.Any" or name in path or len(path) >= _DEPTH_MAX:
        return Scalar("binary", _serialized)
    found = shape(message, path)
    return found if found.fields else None


def _serialized(message: Any) -> bytes:
    return bytes(type(message).SerializePartialToString(message, deterministic=True))


def _conversion(field: FieldDescriptor) -> Callable[[Any], Plain]:
    if field.enum_type is not None:
        names: dict[int, bytes] = {}
        for each in field.enum_type.values:
            names.setdefault(each.number, each.name.encode())
        return lambda number: names.get(number) or b"%d" % number
    return _text if field.type == _T.TYPE_STRING else unchanged


def _text(value: str | bytes) -> bytes:
    """Text as bytes. Of proto2's, google.protobuf gives bytes where they are not UTF-8."""
    if isinstance(value, bytes):
        raise UnicodeError(value)
    return value.encode()


def _micros(time: Any) -> int:
    """Microseconds; nanoseconds are cut off towards zero, what is beyond 64 bits stops at their end."""
    whole = abs(time.nanos) // 1_000
    micros = time.seconds * 1_000_000 + (whole if time.nanos >= 0 else -whole)
    return int(max(-_INT64, min(_INT64 - 1, micros)))


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A field without its column: in every row of its message that column is wrong."""

    column: str
    detail: str


class Reader:
    """Bytes of one message → {Iceberg id: value} of the columns inside `parent` (key or value) of a table.

    They are in a struct of the message's own where the table has one for it. `problems`: fields that have no
    column there, or one of another type. `several`: the topic's records may be of other messages, for which
    the table may have had no more room.
    """

    def __init__(
        self, kind: MessageType, parent: int, columns: Columns, ids: ColumnIds, *, several: bool = False
    ) -> None:
        self._kind = kind
        self._ids = ids
        self.problems: list[Misplaced] = []
        found = shape(kind.descriptor)
        size = count(found)
        self.has_columns = size <= COLUMNS_MAX and not (
            self._table_is_full(size, columns) or (several and self._had_no_room(parent))
        )
        self._cells = self._whole(found if self.has_columns else Struct(()), parent, columns)

    def read(self, payload: bytes) -> dict[int, Plain]:
        """The columns. Raises Bad where the strict parse fails."""
        try:
            return self._cells.read(self.parse(payload))
        except UnicodeError:
            raise Bad("text is not UTF-8") from None

    def same(self, messages: Sequence[Any], actual: pa.StructArray, apart: Sequence[int]) -> bool:
        """Whether the columns of these rows, but for those `apart`, are known to be what `parse` gave.

        Where not, `read` tells which are not, if any.
        """
        try:
            return not self.problems and self._cells.same(messages, actual, apart)
        except (UnicodeError, pa.ArrowException, TypeError, ValueError, OverflowError):
            return False  # a value that no column can hold

    def parse(self, payload: bytes) -> Any:
        """The message, of whose text it is not known whether it is UTF-8. Raises Bad."""
        try:
            message = self._kind.message_class.FromString(payload)
        except DecodeError:
            raise Bad(f"not a {self._kind.name}") from None
        of = self._kind.message_class  # a field of a method's name hides it from the message
        if not of.IsInitialized(message):
            raise Bad("a required field is missing")
        of.DiscardUnknownFields(message)
        # Written again it is the same: then all of it was read, each field by its own type.
        if of.SerializePartialToString(message, deterministic=True) != payload:
            why = mistyped(payload, self._kind.descriptor)
            if why is not None:
                raise Bad(why)
        return message

    def _whole(self, found: Struct, parent: int, columns: Columns) -> StructCells | WholeCells:
        """The message as the table has it: its fields beside each other, or in a struct of its own."""
        known = self._ids.known.get(f"{parent}.{_TYPE}{self._kind.name}:struct", {})
        own = next((each for each in columns if each["id"] in known), None)
        if own is None or not found.fields:
            return self._struct(found, parent, columns, "")
        inside = self._struct(found, own["id"], own["type"]["fields"], own["name"])
        return WholeCells([each["id"] for each in columns], own["id"], inside)

    def _had_no_room(self, parent: int) -> bool:
        """Whether others have structs, and the message has nothing."""
        beginning = f"{parent}."
        several = any(key.startswith(f"{beginning}{_TYPE}") for key in self._ids.known)
        return several and not any(
            key.startswith(beginning) and self._kind.name in names
            for key, columns in self._ids.known.items()
            for names in columns.values()
        )

    def _table_is_full(self, size: int, columns: Columns) -> bool:
        """Whether the message found no place in the table, and there was none."""
        named = any(
            self._kind.name in names for columns in self._ids.known.values() for names in columns.values()
        )
        return not named and size + _columns_in({"type": "struct", "fields": columns}) > TABLE_COLUMNS_MAX

    def _place(self, field: Field, parent: int) -> int | None:
        """The column of a field: its message's own, else the newest that some message calls by that name."""
        columns = self._ids.known.get(f"{parent}.{field.number}:{_signature(field.node)}", {})
        own = [column for column, names in columns.items() if self._kind.name in names or "" in names]
        shared = [column for column, names in columns.items() if field.name in names.values()]
        return own[0] if own else shared[-1] if shared else None

    def _struct(self, shape: Struct, parent: int, columns: Columns, path: str) -> StructCells:
        by_id = {each["id"]: each for each in columns}
        members = {}
        for field in shape.fields:
            name = f"{path}.{field.name}" if path else field.name
            column = by_id.get(self._place(field, parent))
            if column is None:
                self.problems.append(Misplaced(name, f"the table has no column for it of {self._kind.name}"))
                continue
            cells = self._value(field.node, column["id"], column["type"], name)
            if cells is not None:
                members[column["id"]] = Member(field.name, field.presence, column["id"], cells)
        return StructCells([each["id"] for each in columns], members)

    def _value(self, node: Node, parent: int, kind: Any, path: str) -> Cells | None:
        """A field's values as its column, of type `kind`, holds them."""
        if isinstance(node, Scalar):
            if kind not in (node.type, _WIDER.get(node.type)):
                self.problems.append(Misplaced(path, f"its column is {_named(kind)}, {node.type} is due"))
                return None
            return ScalarCells(kind, node.plain, node.plain in (unchanged, _text))
        wanted = {Struct: "struct", List: "list", Map: "map"}[type(node)]
        if isinstance(kind, str) or kind["type"] != wanted:
            self.problems.append(Misplaced(path, f"its column is {_named(kind)}, a {wanted} is due"))
            return None
        if isinstance(node, Struct):
            return self._struct(node, parent, kind["fields"], path)
        if isinstance(node, List):
            element = self._value(node.element, kind["element-id"], kind["element"], path)
            return None if element is None else ListCells(element)
        key = self._value(node.key, kind["key-id"], kind["key"], path)
        value = self._value(node.value, kind["value-id"], kind["value"], path)
        return None if key is None or value is None else MapCells(kind, key, value)


def _signature(node: Node) -> str:
    """What a column has to hold to be the field's; docs/tables.md says what widens."""
    if isinstance(node, Scalar):
        return _FAMILY.get(node.type, node.type)
    if isinstance(node, Struct):
        return "struct"
    if isinstance(node, List):
        return f"list<{_signature(node.element)}>"
    return f"map<{node.key.type},{_signature(node.value)}>"


def _named(kind: Any) -> str:
    return kind if isinstance(kind, str) else f"a {kind['type']}"


def _columns_in(kind: Any) -> int:
    if isinstance(kind, str):
        return 0
    if kind["type"] == "struct":
        return sum(1 + _columns_in(each["type"]) for each in kind["fields"])
    return _columns_in(kind["element"] if kind["type"] == "list" else kind["value"])
