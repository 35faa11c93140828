"""Data of an AVRO schema → Arrow columns. One walk decides what is good, here and at the door (datum.py).

| AVRO | column |
|---|---|
| int, long, float, double, boolean, string, bytes | int, long, float, double, boolean, string, binary |
| enum, uuid | string |
| fixed | binary |
| decimal | decimal(precision, scale), binary above 38 digits |
| date | date |
| time-millis, time-micros | long, µs of the day: Spark reads no table that has Iceberg's time |
| timestamp-… | timestamptz, µs (nanoseconds cut off, out of range clamped) |
| local-timestamp-… | timestamp, µs |
| duration | struct of months, days, millis |
| record | struct |
| array, map | list, map; what is inside may be null |
| union of null and one other type | that type's column |
| other unions | struct with a column for each type but null, of which one is set |
| a record inside itself, or more than 32 levels deep | string: JSON text |
| what takes no bytes (null, an empty record, lists of it) | dropped |

A schema that is no record has one column, `value`; one that is a union has those of a union.
A column's identity is its parent column and the field's name, or an alias of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa

from iceberg.decoder import ERROR_CHARS_MAX, Decoded
from iceberg.mapping import (
    COLUMNS_MAX,
    DEPTH_MAX,
    Field,
    Kind,
    Leaf,
    ListOf,
    MapOf,
    MappingError,
    Node,
    Struct,
)
from schema.registry.avro import schema as avro_schema
from schema.registry.avro import shown
from schema.registry.avro.datum import BadDatum, Datum
from schema.registry.avro.logical import logical_of
from schema.registry.avro.types import Type, decimal_of

DIGITS_MAX = 38
"""Digits of an Iceberg decimal."""

UNNAMED = "value"
"""The one column of a schema that is no record; and how such a schema is called."""

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_KINDS = {
    "boolean": Kind.BOOL,
    "int": Kind.INT32,
    "long": Kind.INT64,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "bytes": Kind.BYTES,
    "string": Kind.STRING,
    "fixed": Kind.BYTES,
    "enum": Kind.STRING,
}

Array = Callable[[Sequence[Any], pa.DataType], pa.Array]
"""Values as the datum's walk gives them, None for null → a column of that type."""


@dataclass(frozen=True, slots=True)
class _Column:
    """What a type is in the table, and how its values get there."""

    node: Node
    array: Array


class AvroShape:
    """The columns of a schema. `struct` is its shape, as of a message (mapping.py)."""

    def __init__(self, form: bytes, imports: Mapping[str, bytes]) -> None:
        """CPU work. Raises InvalidSchema, and MappingError above COLUMNS_MAX."""
        top = avro_schema.load(form, imports)
        self.datum = Datum(top)
        self._budget = iter(range(COLUMNS_MAX))
        made = self._of(top, ())
        whole = top
        if top.kind == "union":
            others = [each for each in top.branches if each.kind != "null"]
            whole = others[0] if len(others) == 1 and len(top.branches) == 2 else top
        if made is not None and whole.kind not in ("record", "union"):
            made = _struct([(_field(0, UNNAMED, made.node), made, lambda value: value)], "struct")
        self._column = made
        node = made.node if made is not None else Struct(())
        assert isinstance(node, Struct), "records, unions and what was wrapped are structs"
        self.struct = node

    def arrays(self, values: Sequence[Any], fields: Sequence[pa.Field]) -> list[pa.Array]:
        """One for each field of `struct`, of values that are data of the schema, or None."""
        if self._column is None:
            return []
        made = self._column.array(values, pa.struct(fields))
        return [made.field(at) for at in range(len(fields))]

    def _of(self, one: Type, above: tuple[str, ...]) -> _Column | None:
        """None: there is nothing to show."""
        if self.datum.is_nothing(one):
            return None
        if one.kind == "union":
            return self._union(one, above)
        if one.kind == "record":
            return self._record(one, above)
        if one.items is None:
            return _leaf(one)
        if len(above) >= DEPTH_MAX:
            return self._text(one)
        inside = self._of(one.items, (*above, ""))
        if one.kind == "array":
            return _list(inside) if inside is not None else None
        return _map(inside) if inside is not None else None

    def _record(self, one: Type, above: tuple[str, ...]) -> _Column | None:
        if one.name in above or len(above) >= DEPTH_MAX:
            return self._text(one)
        found = []
        for at, field in enumerate(self.datum.fields(one)):
            column = self._of(field.type, (*above, one.name))
            if column is not None:
                self._spend()
                made = _field(at, field.name, column.node, tuple(field.aliases))
                found.append((made, column, _item(at)))
        return _struct(found, "struct") if found else None

    def _union(self, one: Type, above: tuple[str, ...]) -> _Column | None:
        branches = [(at, each) for at, each in enumerate(one.branches) if each.kind != "null"]
        if len(one.branches) == 2 and len(branches) == 1:
            return self._of(branches[0][1], above)
        if len(above) >= DEPTH_MAX:
            return self._text(one)
        found = []
        for at, each in branches:
            column = self._of(each, (*above, ""))
            if column is not None:
                self._spend()
                made = _field(at, each.simple or each.kind, column.node, known_as=each.name or each.kind)
                found.append((made, column, _branch(at)))
        return _struct(found, "union") if found else None

    def _text(self, one: Type) -> _Column:
        def array(values: Sequence[Any], target: pa.DataType) -> pa.Array:
            texts = (None if each is None else shown.text(self.datum, one, each) for each in values)
            return pa.array(texts, target, size=len(values))

        return _Column(Leaf(Kind.STRING), array)

    def _spend(self) -> None:
        if next(self._budget, None) is None:
            raise MappingError(f"it has more than {COLUMNS_MAX} columns, nested ones counted")


class AvroDecoder:
    """Decodes payloads of one schema into the columns that `fields` describe."""

    fast, why_slow = True, ""

    def __init__(self, shape: AvroShape, fields: Sequence[pa.Field]) -> None:
        self._shape = shape
        self.fields = list(fields)

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Decode; None stands for a row without datum."""
        errors: dict[int, str] = {}
        values: list[Any] = []
        read = self._shape.datum.read
        for row, payload in enumerate(payloads):
            value = None
            if payload is not None:
                try:
                    value = read(payload)
                except BadDatum as bad:
                    errors[row] = str(bad)[:ERROR_CHARS_MAX]
            values.append(value)
        return Decoded(self._shape.arrays(values, self.fields), errors)


def avro_name(form: bytes, imports: Mapping[str, bytes]) -> str:
    """How a schema is called, by which fields of its other versions are told from those of others.

    Raises InvalidSchema.
    """
    return avro_schema.load(form, imports).name or UNNAMED


def _field(at: int, name: str, node: Node, aliases: tuple[str, ...] = (), known_as: str = "") -> Field:
    return Field(at, name, node, presence=True, known_as=known_as or name, aliases=aliases)


def _item(at: int) -> Callable[[Any], Any]:
    return lambda values: values[at]


def _branch(at: int) -> Callable[[Any], Any]:
    return lambda value: value[1] if value[0] == at else None


def _struct(inside: Sequence[tuple[Field, _Column, Callable[[Any], Any]]], made_of: str) -> _Column:
    def array(values: Sequence[Any], target: pa.DataType) -> pa.Array:
        children = []
        for (_, column, item), wanted in zip(inside, target, strict=True):
            held = [None if each is None else item(each) for each in values]
            children.append(column.array(held, wanted.type))
        return pa.StructArray.from_arrays(children, fields=list(target), mask=_mask(values))

    return _Column(Struct(tuple(field for field, _, _ in inside), made_of), array)


def _list(inside: _Column) -> _Column:
    def array(values: Sequence[Any], target: pa.DataType) -> pa.Array:
        held = [item for each in values if each is not None for item in each]
        made = inside.array(held, target.value_type)
        return pa.ListArray.from_arrays(_ends(values), made, type=target, mask=_mask(values))

    return _Column(ListOf(inside.node, nullable=True), array)


def _map(inside: _Column) -> _Column:
    def array(values: Sequence[Any], target: pa.DataType) -> pa.Array:
        unique = [None if each is None else dict(each) for each in values]  # the last one of a key counts
        keys = [key for each in unique if each is not None for key in each]
        held = [item for each in unique if each is not None for item in each.values()]
        made = inside.array(held, target.item_type)
        ends, texts = _ends(unique), pa.array(keys, pa.string())
        return pa.MapArray.from_arrays(ends, texts, made, type=target, mask=_mask(unique))

    return _Column(MapOf(Leaf(Kind.STRING), inside.node, nullable=True), array)


def _ends(values: Sequence[Any]) -> pa.Array:
    return pa.array(accumulate((len(each or ()) for each in values), initial=0), pa.int32())


def _mask(values: Sequence[Any]) -> pa.Array:
    return pa.array((each is None for each in values), pa.bool_(), size=len(values))


def _leaf(one: Type) -> _Column:
    name, known = logical_of(one), decimal_of(one)
    if known is not None and known.precision <= DIGITS_MAX:
        scale, exact = known.scale, f"decimal({known.precision}, {known.scale})"
        return _Column(Leaf(Kind.DECIMAL, exact=exact), _each(lambda value: shown.decimal(value, scale)))
    if one.kind == "fixed" and name == "uuid":
        return _Column(Leaf(Kind.STRING), _each(shown.uuid_text))
    if name == "duration":
        return _duration()
    if name == "date":
        return _Column(Leaf(Kind.DATE), _numbers(pa.int32()))
    if name in _TIMES:
        kind, function = _TIMES[name]
        return _Column(Leaf(kind), _numbers(pa.int64(), function))
    return _Column(Leaf(_KINDS[one.kind]), pa.array)


def _each(function: Callable[[Any], Any]) -> Array:
    return lambda values, target: pa.array(
        [None if each is None else function(each) for each in values], target
    )


def _numbers(stored: pa.DataType, function: Callable[[int], int] | None = None) -> Array:
    """Numbers that mean a day or a time."""

    def array(values: Sequence[Any], target: pa.DataType) -> pa.Array:
        if function is not None:
            values = [None if each is None else function(each) for each in values]
        return pa.array(values, stored).cast(target)

    return array


def _of_millis(value: int) -> int:
    return max(_INT64_MIN, min(_INT64_MAX, value * 1000))


_TIMES: dict[str, tuple[Kind, Callable[[int], int] | None]] = {
    "time-millis": (Kind.INT64, _of_millis),
    "time-micros": (Kind.INT64, None),
    "timestamp-millis": (Kind.TIMESTAMP, _of_millis),
    "timestamp-micros": (Kind.TIMESTAMP, None),
    "timestamp-nanos": (Kind.TIMESTAMP, lambda value: value // 1000),
    "local-timestamp-millis": (Kind.LOCAL, _of_millis),
    "local-timestamp-micros": (Kind.LOCAL, None),
    "local-timestamp-nanos": (Kind.LOCAL, lambda value: value // 1000),
}


def _duration() -> _Column:
    parts = ("months", "days", "millis")

    def column(at: int) -> _Column:
        return _Column(Leaf(Kind.INT64), _each(lambda value: shown.duration(value)[at]))

    named = enumerate(parts)
    inside = [(_field(at, name, Leaf(Kind.INT64)), column(at), lambda value: value) for at, name in named]
    return _struct(inside, "duration")
