"""Records of a JSON schema → columns, where the schema gives one type; else JSON text.

| the schema takes | column |
|---|---|
| string, boolean, integer, number | string, boolean, long, double |
| an object with `properties` | struct of those properties |
| an object without them, but one schema for all others | map of text to that |
| an array with one schema for all items | list |
| null besides, by `type` or as an alternative | the same column |
| anything else, what holds itself, what is deeper than 32 levels | string: JSON text |

Properties that the schema does not name have no column, nor have those whose names are others than letters,
digits and `_ $ @ -` (128 at most). A number beyond 64 bits in a column of integers makes the row one that
cannot be shown. A schema that is no object has one column, `value`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import itemgetter
from typing import Any, NoReturn

import pyarrow as pa

from iceberg.avro_columns import UNNAMED
from iceberg.mapping import COLUMNS_MAX, DEPTH_MAX, Field, Kind, Leaf, MappingError, Struct
from iceberg.value_columns import Column, list_of, map_of, struct_of
from schema.registry.json import schema as json_schema
from schema.registry.json.judging import Judge
from schema.registry.json.nodes import Node
from schema.registry.json.text import shown, written
from schema.registry.json.values import atom

_NAME = re.compile(r"[A-Za-z0-9_$@-]{1,128}")
_NUMBERS = frozenset({"integer", "fraction"})
_SCALARS = {
    frozenset({"string"}): Kind.STRING,
    frozenset({"boolean"}): Kind.BOOL,
    frozenset({"integer"}): Kind.INT64,
    _NUMBERS: Kind.DOUBLE,
    frozenset({"fraction"}): Kind.DOUBLE,
}
_PIECE = 40  # characters of a value in a message
_DOUBLE_MAX = Decimal(sys.float_info.max)
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1

Take = Callable[[Any], Any]
"""A value of JSON, not null → what makes its column takes. Raises ValueError where it has no place there."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a schema is in the table, and how its values get there."""

    column: Column
    take: Take


class JsonShape:
    """The columns of a schema. `struct` is its shape, as of a message (mapping.py)."""

    def __init__(self, form: bytes, imports: Mapping[str, bytes]) -> None:
        """CPU work. Raises InvalidSchema, and MappingError above COLUMNS_MAX."""
        root = json_schema.load(form, imports).root
        self._judge = Judge(root)
        self._budget = iter(range(COLUMNS_MAX))
        plan = self._of([root], ())
        column, self._take = plan.column, plan.take
        if not isinstance(column.node, Struct):
            column = struct_of([(_field(0, UNNAMED, column), column, lambda value: value)], "struct")
        assert isinstance(column.node, Struct)
        self._column, self.struct = column, column.node

    def read(self, payload: bytes) -> Any:
        """A record as columns take it. Raises ValueError, which says why it is none, or cannot be shown."""
        value = self._judge.read(payload)
        return None if value is None else self._take(value)

    def arrays(self, values: Sequence[Any], fields: Sequence[pa.Field]) -> list[pa.Array]:
        """One for each field of `struct`, of values that `read` gave, or None."""
        made = self._column.array(values, pa.struct(fields))
        return [made.field(at) for at in range(len(fields))]

    def _of(self, nodes: Sequence[Node], above: tuple[frozenset[Node], ...]) -> _Plan:
        """Of schemas that all say something of one value; `above`: those of the values around it."""
        parts = _parts(nodes)
        kinds = frozenset.intersection(*map(_kinds, parts)) - {"null"}
        if kinds in _SCALARS:
            kind = _SCALARS[kinds]
            return _Plan(Column(Leaf(kind), pa.array), _TAKES[kind])
        here = frozenset(parts)
        if len(above) >= DEPTH_MAX or any(here & each for each in above):
            return _TEXT
        if kinds == {"object"}:
            return self._object(parts, (*above, here)) or _TEXT
        return (self._array(parts, (*above, here)) if kinds == {"array"} else None) or _TEXT

    def _object(self, parts: Sequence[Node], above: tuple[frozenset[Node], ...]) -> _Plan | None:
        named: dict[str, list[Node]] = {}
        for part in parts:
            for name, node in part.properties.items():
                named.setdefault(name, []).append(node)
        if named:
            return self._struct(named, above)
        others = [part.additional for part in parts if part.additional is not None]
        if not others or any(part.patterns for part in parts) or any(each.never for each in others):
            return None
        inside = self._of(others, above)
        return _Plan(map_of(inside.column), _map_taken(inside.take))

    def _struct(
        self, named: Mapping[str, Sequence[Node]], above: tuple[frozenset[Node], ...]
    ) -> _Plan | None:
        plans = {}
        for name, nodes in named.items():
            if _NAME.fullmatch(name) and not any(each.never for each in nodes):
                if next(self._budget, None) is None:
                    raise MappingError(f"it has more than {COLUMNS_MAX} columns, nested ones counted")
                plans[name] = self._of(nodes, above)
        inside = [
            (_field(at, name, plan.column), plan.column, itemgetter(at))
            for at, (name, plan) in enumerate(plans.items())
        ]
        takes = [(name, plan.take) for name, plan in plans.items()]
        return _Plan(struct_of(inside, "struct"), _struct_taken(takes)) if inside else None

    def _array(self, parts: Sequence[Node], above: tuple[frozenset[Node], ...]) -> _Plan | None:
        items = [part.rest for part in parts if part.rest is not None]
        if not items or any(part.prefix for part in parts):
            return None
        inside = self._of(items, above)
        return _Plan(list_of(inside.column), _list_taken(inside.take))


def name_of(form: bytes) -> str:
    """How a schema is called, by which fields of its other versions are told from those of others."""
    return json_schema.title(form) or UNNAMED


def _field(at: int, name: str, column: Column) -> Field:
    return Field(at, name, column.node, presence=True, known_as=f".{name}")  # not to be taken for AVRO's


def _parts(nodes: Sequence[Node]) -> list[Node]:
    """The schemas, and those that they demand besides: by `allOf`, `$ref`, or as the one beside null."""
    found: dict[Node, None] = {}
    waiting = [*nodes]
    while waiting:
        node = waiting.pop(0)
        if node in found:
            continue
        found[node] = None
        waiting += node.all_of
        for several in (node.any_of, node.one_of):
            others = [each for each in several if each.types != {"null"}]
            waiting += others if len(others) == 1 and len(several) == 2 else ()
    return [*found]


def _kinds(node: Node) -> frozenset[str]:
    listed = node.types if node.values is None else {atom(each) for each in node.values}
    return frozenset(node.types & listed)


def _wrong(value: Any, column: str) -> NoReturn:
    raise ValueError(f"{shown(value)[:_PIECE]} has no place in a column of {column}")


def _string(value: Any) -> Any:
    return value if isinstance(value, str) else _wrong(value, "text")


def _boolean(value: Any) -> Any:
    return value if isinstance(value, bool) else _wrong(value, "booleans")


def _integer(value: Any) -> int:
    if atom(value) != "integer" or not _INT64_MIN <= value <= _INT64_MAX:
        _wrong(value, "integers of 64 bits")
    return int(value)


def _number(value: Any) -> float:
    if atom(value) not in _NUMBERS or not -_DOUBLE_MAX <= value <= _DOUBLE_MAX:
        _wrong(value, "doubles")
    return float(value)


def _struct_taken(takes: Sequence[tuple[str, Take]]) -> Take:
    def taken(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, dict):
            _wrong(value, "structs")
        held = ((value.get(name), take) for name, take in takes)
        return tuple(None if each is None else take(each) for each, take in held)

    return taken


def _list_taken(take: Take) -> Take:
    def taken(value: Any) -> list[Any]:
        if not isinstance(value, list):
            _wrong(value, "lists")
        return [None if each is None else take(each) for each in value]

    return taken


def _map_taken(take: Take) -> Take:
    def taken(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            _wrong(value, "maps")
        return [(name, None if each is None else take(each)) for name, each in value.items()]

    return taken


_TAKES: dict[Kind, Take] = {
    Kind.STRING: _string,
    Kind.BOOL: _boolean,
    Kind.INT64: _integer,
    Kind.DOUBLE: _number,
}
_TEXT = _Plan(Column(Leaf(Kind.STRING), pa.array), written)
