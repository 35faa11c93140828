"""Gives columns their Iceberg field ids and keeps them when the message changes.

The identity of a column is the path of protobuf field numbers that leads to it, prefixed by `k` or `v`
(key or value): `v.20.1`; list elements are `[]`, map keys `{k}`, map values `{v}`. {path → id} is kept
with the table, retired paths included. Same number renamed = rename; int → long and float → double
promote; a field that the message lost keeps its column (old rows have it); any other change of type is a
new column, and the old one stays under its name with `__<id>` appended.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from iceberg.mapping import Field, Leaf, ListOf, MapOf, Node, Struct

IcebergType = str | dict[str, Any]

RAW = "__raw__"
ERROR = "__err__"
OWN_NAMES = (
    RAW,
    ERROR,
)  # of key and value; a field of a message that has such a name gets its number appended

_PROMOTIONS = {"int": "long", "float": "double"}

# The columns every table has. Their ids never change meaning.
KAFKA_ID, PARTITION_ID, OFFSET_ID, TIMESTAMP_ID, TIMESTAMP_TYPE_ID = 1, 2, 3, 4, 5
KEY_ID, KEY_RAW_ID, VALUE_ID, VALUE_RAW_ID, VALUE_ERROR_ID = 6, 7, 8, 9, 10
HEADERS_ID, HEADER_ID, HEADER_KEY_ID, HEADER_VALUE_ID = 11, 12, 13, 14
FIRST_MESSAGE_ID = 15


class _Incompatible(Exception):
    """The new type cannot be read from the old column's files."""


@dataclass
class ColumnIds:
    """{path → Iceberg id} of a table's decoded columns and the last id given, ever."""

    ids: dict[str, int] = field(default_factory=dict)
    last: int = FIRST_MESSAGE_ID - 1

    def give(self, path: str) -> int:
        """A new id for `path`; the one it had is forgotten by the path, not reused."""
        self.last += 1
        self.ids[path] = self.last
        return self.last

    def to_json(self) -> str:
        """The form in which the table's properties hold it."""
        return json.dumps({"last": self.last, "ids": self.ids}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ColumnIds:
        """Inverse of to_json. Raises ValueError."""
        content = json.loads(text)
        return cls({str(path): int(number) for path, number in content["ids"].items()}, int(content["last"]))

    def copy(self) -> ColumnIds:
        """An independent copy."""
        return ColumnIds(dict(self.ids), self.last)


def table_fields(
    key: Struct | None,
    value: Struct | None,
    ids: ColumnIds,
    previous: Iterable[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """The table's top-level fields in Iceberg's JSON. `ids` is extended in place.

    `previous` are the fields of the table's current schema; none when the table is new.
    """
    before = {each["name"]: each["type"]["fields"] for each in previous if each["name"] in ("key", "value")}
    merge = _Merge(ids)
    keys = merge.struct(key or Struct(()), "k", before.get("key", ()), reserved=(RAW,))
    values = merge.struct(value or Struct(()), "v", before.get("value", ()), reserved=(RAW, ERROR))
    kafka = [
        _column(PARTITION_ID, "partition", "int", required=True),
        _column(OFFSET_ID, "offset", "long", required=True),
        _column(TIMESTAMP_ID, "timestamp", "timestamptz"),
        _column(TIMESTAMP_TYPE_ID, "timestamp_type", "int", required=True),
    ]
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
        _column(KEY_ID, "key", _struct([_column(KEY_RAW_ID, RAW, "binary"), *keys])),
        _column(
            VALUE_ID,
            "value",
            _struct(
                [
                    _column(VALUE_RAW_ID, RAW, "binary"),
                    _column(VALUE_ERROR_ID, ERROR, "string"),
                    *values,
                ]
            ),
        ),
        _column(HEADERS_ID, "headers", headers),
    ]


class _Merge:
    """Merges the shape of a message into the columns that a table has."""

    def __init__(self, ids: ColumnIds) -> None:
        self._ids = ids

    def struct(
        self, shape: Struct, path: str, previous: Iterable[Mapping[str, Any]], reserved: Iterable[str] = ()
    ) -> list[dict[str, Any]]:
        names = set(reserved)
        old = {each["id"]: each for each in previous if each["name"] not in names}
        fields = []
        for each in shape.fields:
            fields.append(self._field(each, f"{path}.{each.number}", old, names))
            old.pop(fields[-1]["id"], None)
        for left in old.values():
            name = left["name"] if left["name"].lower() not in names else f"{left['name']}__{left['id']}"
            names.add(name.lower())
            fields.append({**left, "name": name})
        return fields

    def _field(
        self, each: Field, path: str, old: Mapping[int, Mapping[str, Any]], names: set[str]
    ) -> dict[str, Any]:
        """One column; readers fold case, so names that differ in case only get their number appended."""
        name = each.name if each.name.lower() not in names else f"{each.name}_{each.number}"
        names.add(name.lower())
        before = old.get(self._ids.ids.get(path, 0))
        if before is not None:
            trial = self._ids.copy()
            try:
                kind = _Merge(trial).type(each.node, path, before["type"])
            except _Incompatible:
                self._forget(path)
            else:
                self._ids.ids, self._ids.last = trial.ids, trial.last
                return _column(before["id"], name, kind)
        number = self._ids.give(path)
        return _column(number, name, self.type(each.node, path, None))

    def type(self, node: Node, path: str, previous: IcebergType | None) -> IcebergType:
        """The column's type; raises _Incompatible when files with `previous` cannot be read as it."""
        if isinstance(node, Leaf):
            kind = node.kind.iceberg_type
            if previous is None or previous == kind:
                return kind
            if isinstance(previous, str) and _PROMOTIONS.get(previous) == kind:
                return kind
            raise _Incompatible
        if isinstance(node, Struct):
            return _struct(self.struct(node, path, self._old(previous, "struct").get("fields", ())))
        if isinstance(node, ListOf):
            old = self._old(previous, "list")
            return {
                "type": "list",
                "element-id": old.get("element-id") or self._ids.give(f"{path}[]"),
                "element": self.type(node.element, f"{path}[]", old.get("element")),
                "element-required": True,
            }
        return self._map(node, path, self._old(previous, "map"))

    def _map(self, node: MapOf, path: str, old: Mapping[str, Any]) -> IcebergType:
        return {
            "type": "map",
            "key-id": old.get("key-id") or self._ids.give(f"{path}{{k}}"),
            "key": self.type(node.key, f"{path}{{k}}", old.get("key")),
            "value-id": old.get("value-id") or self._ids.give(f"{path}{{v}}"),
            "value": self.type(node.value, f"{path}{{v}}", old.get("value")),
            "value-required": True,
        }

    @staticmethod
    def _old(previous: IcebergType | None, kind: str) -> Mapping[str, Any]:
        if previous is None:
            return {}
        if isinstance(previous, str) or previous["type"] != kind:
            raise _Incompatible
        return previous

    def _forget(self, path: str) -> None:
        """The column at `path` and all below it stop following the message."""
        below = (f"{path}.", f"{path}[", f"{path}{{")
        for known in [each for each in self._ids.ids if each == path or each.startswith(below)]:
            del self._ids.ids[known]


def _column(number: int, name: str, kind: IcebergType, *, required: bool = False) -> dict[str, Any]:
    return {"id": number, "name": name, "required": required, "type": kind}


def _struct(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "struct", "fields": fields}
