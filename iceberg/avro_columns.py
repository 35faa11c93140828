"""Data of an AVRO schema → columns. One walk decides what is good, here and at the door (datum.py).

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
Of a newer schema there are the fields besides that it has defaults for, other than null, in records that are
structs: each row has the default there (avro_defaults.py).
A column's identity is its parent column and the field's name, or an alias of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from iceberg import avro_defaults
from iceberg.mapping import COLUMNS_MAX, DEPTH_MAX, Field, Kind, Leaf, MappingError, Node, Struct
from iceberg.value_columns import Array, Column, converted, list_of, map_of, struct_of
from schema.registry.avro import schema as avro_schema
from schema.registry.avro import shown
from schema.registry.avro.datum import Datum
from schema.registry.avro.logical import logical_of
from schema.registry.avro.types import Type, decimal_of

DIGITS_MAX = 38
"""Digits of an Iceberg decimal."""

UNNAMED = "value"
"""The one column of a schema that is no record; and how such a schema is called."""

_Inside = tuple[Field, Column, Callable[[Any], Any]]
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


class AvroShape:
    """The columns of a schema. `struct` is its shape, as of a message (mapping.py)."""

    def __init__(
        self,
        form: bytes,
        imports: Mapping[str, bytes],
        newer: tuple[bytes, Mapping[str, bytes]] | None = None,
    ) -> None:
        """CPU work. Raises InvalidSchema, and MappingError above COLUMNS_MAX.

        `newer`: a schema, and what it refers to, of which rows have the defaults.
        """
        top = avro_schema.load(form, imports)
        self._newer = avro_schema.load(*newer) if newer is not None else None  # kept: types are known by id
        self.datum = Datum(top)
        self._budget = iter(range(COLUMNS_MAX))
        made = self._of(top, (), self._newer)
        whole = top
        if top.kind == "union":
            others = [each for each in top.branches if each.kind != "null"]
            whole = others[0] if len(others) == 1 and len(top.branches) == 2 else top
        if made is not None and whole.kind not in ("record", "union"):
            made = struct_of([(_field(0, UNNAMED, made.node), made, lambda value: value)], "struct")
        self._column = made
        node = made.node if made is not None else Struct(())
        assert isinstance(node, Struct), "records, unions and what was wrapped are structs"
        self.struct = node

    def read(self, payload: bytes) -> Any:
        """A datum. Raises ValueError, which says why it is none."""
        return self.datum.read(payload)

    def arrays(self, values: Sequence[Any], fields: Sequence[pa.Field]) -> list[pa.Array]:
        """One for each field of `struct`, of values that are data of the schema, or None."""
        if self._column is None:
            return []
        made = self._column.array(values, pa.struct(fields))
        return [made.field(at) for at in range(len(fields))]

    def _of(self, one: Type, above: tuple[str, ...], newer: Type | None = None) -> Column | None:
        """None: there is nothing to show. `newer`: what stands there in the newer schema."""
        if self.datum.is_nothing(one):
            return None
        newer = avro_defaults.read_as(one, newer)
        if one.kind == "union":
            return self._union(one, above, newer)
        if one.kind == "record":
            return self._record(one, above, newer)
        if one.items is None:
            return _leaf(one)
        if len(above) >= DEPTH_MAX:
            return self._text(one)
        inside = self._of(one.items, (*above, ""), newer.items if newer is not None else None)
        if one.kind == "array":
            return list_of(inside) if inside is not None else None
        return map_of(inside) if inside is not None else None

    def _record(self, one: Type, above: tuple[str, ...], newer: Type | None) -> Column | None:
        if one.name in above or len(above) >= DEPTH_MAX:
            return self._text(one)
        found = []
        later = avro_defaults.fields_of(newer)
        for at, field in enumerate(self.datum.fields(one)):
            column = self._of(field.type, (*above, one.name), later.get(field.name))
            if column is not None:
                self._spend()
                made = _field(at, field.name, column.node, tuple(field.aliases))
                found.append((made, column, _item(at)))
        if newer is not None:
            found += self._defaults(one, newer, above)
        return struct_of(found, "struct") if found else None

    def _defaults(self, one: Type, newer: Type, above: tuple[str, ...]) -> Iterator[_Inside]:
        """The fields that the newer schema's record has besides, each with its default."""
        for at, field in enumerate(avro_defaults.added(one, newer), len(one.fields)):
            try:
                value = avro_defaults.default_of(self.datum, field)
            except avro_defaults.NoDefault:
                continue  # null, as where there is none
            column = self._of(field.type, (*above, one.name))
            if column is not None:
                self._spend()
                made = _field(at, field.name, column.node, tuple(field.aliases))
                yield made, column, _always(value)

    def _union(self, one: Type, above: tuple[str, ...], newer: Type | None) -> Column | None:
        branches = [(at, each) for at, each in enumerate(one.branches) if each.kind != "null"]
        if len(one.branches) == 2 and len(branches) == 1:
            return self._of(branches[0][1], above, newer)
        if len(above) >= DEPTH_MAX:
            return self._text(one)
        found = []
        for at, each in branches:
            column = self._of(each, (*above, ""), newer)
            if column is not None:
                self._spend()
                made = _field(at, each.simple or each.kind, column.node, known_as=each.name or each.kind)
                found.append((made, column, _branch(at)))
        return struct_of(found, "union") if found else None

    def _text(self, one: Type) -> Column:
        def array(values: Sequence[Any], target: pa.DataType) -> pa.Array:
            texts = (None if each is None else shown.text(self.datum, one, each) for each in values)
            return pa.array(texts, target, size=len(values))

        return Column(Leaf(Kind.STRING), array)

    def _spend(self) -> None:
        if next(self._budget, None) is None:
            raise MappingError(f"it has more than {COLUMNS_MAX} columns, nested ones counted")


def name_of(form: bytes, imports: Mapping[str, bytes]) -> str:
    """How a schema is called, by which fields of its other versions are told from those of others.

    Raises InvalidSchema.
    """
    return avro_schema.load(form, imports).name or UNNAMED


def _field(at: int, name: str, node: Node, aliases: tuple[str, ...] = (), known_as: str = "") -> Field:
    return Field(at, name, node, presence=True, known_as=known_as or name, aliases=aliases)


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


def _item(at: int) -> Callable[[Any], Any]:
    return lambda values: values[at]


def _branch(at: int) -> Callable[[Any], Any]:
    return lambda value: value[1] if value[0] == at else None


def _leaf(one: Type) -> Column:
    name, known = logical_of(one), decimal_of(one)
    if known is not None and known.precision <= DIGITS_MAX:
        scale, exact = known.scale, f"decimal({known.precision}, {known.scale})"
        return Column(Leaf(Kind.DECIMAL, exact=exact), converted(lambda value: shown.decimal(value, scale)))
    if one.kind == "fixed" and name == "uuid":
        return Column(Leaf(Kind.STRING), converted(shown.uuid_text))
    if name == "duration":
        return _duration()
    if name == "date":
        return Column(Leaf(Kind.DATE), _numbers(pa.int32()))
    if name in _TIMES:
        kind, function = _TIMES[name]
        return Column(Leaf(kind), _numbers(pa.int64(), function))
    return Column(Leaf(_KINDS[one.kind]), pa.array)


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


def _duration() -> Column:
    parts = ("months", "days", "millis")

    def column(at: int) -> Column:
        return Column(Leaf(Kind.INT64), converted(lambda value: shown.duration(value)[at]))

    named = enumerate(parts)
    inside = [(_field(at, name, Leaf(Kind.INT64)), column(at), lambda value: value) for at, name in named]
    return struct_of(inside, "duration")
