"""Values as schemas of AVRO and JSON give them → Arrow columns; the ways of both that are the same.

A struct is a tuple (or what its fields' functions take apart), a list a list, a map a list of pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import pyarrow as pa

from iceberg.decoder import ERROR_CHARS_MAX, Decoded
from iceberg.mapping import Field, Kind, Leaf, ListOf, MapOf, Node, Struct

Array = Callable[[Sequence[Any], pa.DataType], pa.Array]
"""Values, None for null → a column of that type."""


@dataclass(frozen=True, slots=True)
class Column:
    """What a type is in the table, and how its values get there."""

    node: Node
    array: Array


class Shape(Protocol):
    """The columns of a schema."""

    @property
    def struct(self) -> Struct:
        """As of a message (mapping.py)."""
        ...

    def read(self, payload: bytes) -> Any:
        """The value of a record. Raises ValueError, which says why it is none."""
        ...

    def arrays(self, values: Sequence[Any], fields: Sequence[pa.Field]) -> list[pa.Array]:
        """One for each field of `struct`, of values that `read` gave, or None."""
        ...


class ValueDecoder:
    """Decodes payloads of one schema into the columns that `fields` describe (same order as the shape)."""

    fast, why_slow = True, ""

    def __init__(self, shape: Shape, fields: Sequence[pa.Field]) -> None:
        self._shape = shape
        self.fields = list(fields)

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Decode; None stands for a row without record."""
        errors: dict[int, str] = {}
        values: list[Any] = []
        for row, payload in enumerate(payloads):
            value = None
            if payload is not None:
                try:
                    value = self._shape.read(payload)
                except ValueError as error:
                    errors[row] = str(error)[:ERROR_CHARS_MAX]
            values.append(value)
        return Decoded(self._shape.arrays(values, self.fields), errors)


def struct_of(inside: Sequence[tuple[Field, Column, Callable[[Any], Any]]], made_of: str) -> Column:
    """Of fields, each with what takes its value out of the struct's."""

    def array(values: Sequence[Any], target: pa.DataType) -> pa.Array:
        children = []
        for (_, column, item), wanted in zip(inside, target, strict=True):
            held = [None if each is None else item(each) for each in values]
            children.append(column.array(held, wanted.type))
        return pa.StructArray.from_arrays(children, fields=list(target), mask=_mask(values))

    return Column(Struct(tuple(field for field, _, _ in inside), made_of), array)


def list_of(inside: Column) -> Column:
    """Of elements that may be null."""

    def array(values: Sequence[Any], target: pa.DataType) -> pa.Array:
        held = [item for each in values if each is not None for item in each]
        made = inside.array(held, target.value_type)
        return pa.ListArray.from_arrays(_ends(values), made, type=target, mask=_mask(values))

    return Column(ListOf(inside.node, nullable=True), array)


def map_of(inside: Column) -> Column:
    """By text, of values that may be null."""

    def array(values: Sequence[Any], target: pa.DataType) -> pa.Array:
        unique = [None if each is None else dict(each) for each in values]  # the last one of a key counts
        keys = [key for each in unique if each is not None for key in each]
        held = [item for each in unique if each is not None for item in each.values()]
        made = inside.array(held, target.item_type)
        ends, texts = _ends(unique), pa.array(keys, pa.string())
        return pa.MapArray.from_arrays(ends, texts, made, type=target, mask=_mask(unique))

    return Column(MapOf(Leaf(Kind.STRING), inside.node, nullable=True), array)


def converted(function: Callable[[Any], Any]) -> Array:
    """Of single values, each made by this."""
    return lambda values, target: pa.array(
        [None if each is None else function(each) for each in values], target
    )


def _ends(values: Sequence[Any]) -> pa.Array:
    return pa.array(accumulate((len(each or ()) for each in values), initial=0), pa.int32())


def _mask(values: Sequence[Any]) -> pa.Array:
    return pa.array((each is None for each in values), pa.bool_(), size=len(values))
