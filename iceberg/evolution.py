"""A table's columns, and how the messages that are bound to its topic add to them.

Columns are never taken away: rows that were written stay readable, and a message that comes back finds its
columns again (column_ids.py says which those are). The message that is bound now gives its columns their
names; of columns that only other messages have, one whose name it takes is called `name__<id>`.
int becomes long and float becomes double where any message needs it, and never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from iceberg.column_ids import KEY_ID, VALUE_ID, ColumnIds
from iceberg.mapping import Field, Leaf, ListOf, MapOf, Node, Struct

IcebergType = str | dict[str, Any]
Column = dict[str, Any]

RAW = "__raw__"
ERROR = "__err__"

COLUMNS_MAX = 10_000
"""Decoded columns of one table, nested and retired ones counted."""

# The columns every table has. Their ids never change meaning.
KAFKA_ID, PARTITION_ID, OFFSET_ID, TIMESTAMP_ID, TIMESTAMP_TYPE_ID = 1, 2, 3, 4, 5
KEY_RAW_ID, VALUE_RAW_ID, VALUE_ERROR_ID = 7, 9, 10
OWN_IDS = (KEY_RAW_ID, VALUE_RAW_ID, VALUE_ERROR_ID)  # a field that has such a name gets its number appended
HEADERS_ID, HEADER_ID, HEADER_KEY_ID, HEADER_VALUE_ID = 11, 12, 13, 14


WIDE = ("long", "double")
"""Types that a column keeps where a message would do with less (mapping.FAMILIES)."""


class TooManyColumns(ValueError):
    """The message cannot be added to this table; the reason says the figure."""


def new_fields() -> list[Column]:
    """The top-level fields of a table without any message, in Iceberg's JSON."""
    kafka = [
        _column(PARTITION_ID, "partition", "int", required=True),
        _column(OFFSET_ID, "offset", "long", required=True),
        _column(TIMESTAMP_ID, "timestamp", "timestamptz"),
        _column(TIMESTAMP_TYPE_ID, "timestamp_type", "int", required=True),
    ]
    values = [_column(VALUE_RAW_ID, RAW, "binary"), _column(VALUE_ERROR_ID, ERROR, "string")]
    header = [
        _column(HEADER_KEY_ID, "key", "string", required=True),
        _column(HEADER_VALUE_ID, "value", "binary"),
    ]
    headers = {
        "type": "list",
        "element-id": HEADER_ID,
        "element": _struct(header),
        "element-required": True,
    }
    return [
        _column(KAFKA_ID, "kafka", _struct(kafka), required=True),
        _column(KEY_ID, "key", _struct([_column(KEY_RAW_ID, RAW, "binary")])),
        _column(VALUE_ID, "value", _struct(values)),
        _column(HEADERS_ID, "headers", headers),
    ]


def with_message(
    fields: Sequence[Column], top: int, shape: Struct, message: str, ids: ColumnIds, *, names: bool
) -> tuple[list[Column], ColumnIds]:
    """The table's fields with the columns of a message in `top` (KEY_ID or VALUE_ID), and their ids.

    `names`: it is the one bound now, and says how its columns are called and in which order they come; of one
    that has a struct of its own, those inside.
    Raises TooManyColumns.
    """
    ids = ids.copy()
    merge = _Merge(ids, message, names)
    after = [
        {**each, "type": _struct(merge.struct(shape, top, each["type"]["fields"]))}
        if each["id"] == top
        else each
        for each in fields
    ]
    count = sum(_count(each["type"]) for each in after) - sum(_count(each["type"]) for each in new_fields())
    if count > COLUMNS_MAX:
        raise TooManyColumns(f"with {message} the table would have {count} columns: at most {COLUMNS_MAX}")
    return after, ids


def columns_of(
    shape: Struct, parent: int, message: str, ids: ColumnIds, columns: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The columns that the message's fields have inside column `parent`, in the order of `shape`."""
    by_id = {each["id"]: each for each in columns}
    found = []
    for each, column in zip(shape.fields, ids.find(parent, shape.fields, message), strict=True):
        assert column is not None, f"field {each.name} of {message} has no column"
        found.append(by_id[column])
    return found


def numbers_of(
    shape: Struct, parent: int, message: str, ids: ColumnIds, columns: Iterable[Mapping[str, Any]]
) -> Iterator[int]:
    """The ids of the columns that the message's fields have inside column `parent`, nested ones too."""
    for each, column in zip(shape.fields, columns_of(shape, parent, message, ids, columns), strict=True):
        yield column["id"]
        node, kind, number = each.node, column["type"], column["id"]
        if isinstance(node, ListOf):
            node, kind, number = node.element, kind["element"], kind["element-id"]
        elif isinstance(node, MapOf):
            node, kind, number = node.value, kind["value"], kind["value-id"]
        if isinstance(node, Struct):
            yield from numbers_of(node, number, message, ids, kind["fields"])


class _Merge:
    """Merges the shape of a message into the columns that a table has."""

    def __init__(self, ids: ColumnIds, message: str, names: bool) -> None:
        self._ids = ids
        self._message = message
        self._names = names

    def struct(self, shape: Struct, parent: int, before: Sequence[Column]) -> list[Column]:
        """The columns of a struct: Floe's own, the message's, and those that only other messages have."""
        own = [each for each in before if each["id"] in OWN_IDS]
        taken = self._ids.take(parent, shape.fields, self._message)
        old = {each["id"]: each for each in before if each["id"] not in OWN_IDS}
        kinds = {
            number: self._type(each.node, number, old[number]["type"] if number in old else None)
            for each, number in zip(shape.fields, taken, strict=True)
        }
        names = {each["name"] for each in own}
        if not self._names or any(each.otherwise for each in shape.fields):
            names |= {each["name"].lower() for each in old.values()}
            kept = [{**each, "type": kinds.get(each["id"], each["type"])} for each in old.values()]
            added = [
                _column(number, _free_of(each, number, names), kinds[number])
                for each, number in zip(shape.fields, taken, strict=True)
                if number not in old
            ]
            return [*own, *kept, *added]
        named = [
            _column(number, _free(each.name, each.number, names, "_"), kinds[number])
            for each, number in zip(shape.fields, taken, strict=True)
        ]
        left = [old[number] for number in sorted(old.keys() - set(taken))]
        return [*own, *named, *({**each, "name": _free(each["name"], each["id"], names)} for each in left)]

    def _type(self, node: Node, column: int, before: IcebergType | None) -> IcebergType:
        """The column's type; `before`, of the same signature, is what it was."""
        if isinstance(node, Leaf):
            kind = node.iceberg_type
            return before if isinstance(before, str) and before in WIDE else kind
        old: Mapping[str, Any] = before if isinstance(before, dict) else {}
        if isinstance(node, Struct):
            return _struct(self.struct(node, column, old.get("fields", ())))
        if isinstance(node, ListOf):
            element = old.get("element-id") or self._ids.give()
            return {
                "type": "list",
                "element-id": element,
                "element": self._type(node.element, element, old.get("element")),
                "element-required": not node.nullable,
            }
        return self._map(node, old)

    def _map(self, node: MapOf, old: Mapping[str, Any]) -> IcebergType:
        value = old.get("value-id")
        key = old.get("key-id") or self._ids.give()
        value = value or self._ids.give()
        return {
            "type": "map",
            "key-id": key,
            "key": node.key.kind.iceberg_type,
            "value-id": value,
            "value": self._type(node.value, value, old.get("value")),
            "value-required": not node.nullable,
        }


def _free_of(each: Field, number: int, names: set[str]) -> str:
    taken = each.otherwise and each.name.lower() in names
    return _free(each.otherwise if taken else each.name, number, names)


def _free(name: str, number: int, names: set[str], join: str = "__") -> str:
    """The name, or with its number where that is taken; readers fold case. It is taken from now on."""
    while name.lower() in names:
        name = f"{name}{join}{number}"
    names.add(name.lower())
    return name


def _count(kind: IcebergType) -> int:
    """Columns inside a type."""
    if isinstance(kind, str):
        return 0
    if kind["type"] == "struct":
        return sum(1 + _count(each["type"]) for each in kind["fields"])
    if kind["type"] == "list":
        return _count(kind["element"])
    return _count(kind["value"])


def _column(number: int, name: str, kind: IcebergType, *, required: bool = False) -> Column:
    return {"id": number, "name": name, "required": required, "type": kind}


def _struct(fields: list[Column]) -> dict[str, Any]:
    return {"type": "struct", "fields": fields}
