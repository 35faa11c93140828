"""What a message's fields are as cells: of one row (`read`), and of many rows at once (`same`).

`read` gives what cells.py makes of the table's cells, to tell where they differ. `same` says of whole columns
whether they are what is due, by Arrow and some three times faster; it may say no of what is right (a type
that it does not know), never yes of what is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Protocol

import pyarrow as pa

from iceberg.spark.cells import Plain, plain

_BITS = {"float": ("<f", "<I"), "double": ("<d", "<Q")}
_ARROW = {
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "decimal(20, 0)": pa.decimal128(20, 0),
    "timestamptz": pa.timestamp("us", "UTC"),
}
_STORED = {"float": pa.int32(), "double": pa.int64(), "timestamptz": pa.int64()}
"""What is compared by its bits or as a number."""

_MADE = {"decimal(20, 0)": pa.uint64(), "timestamptz": pa.int64()}
"""What Arrow makes of Python's numbers first."""


class Cells(Protocol):
    """A field's values and the cells of its column."""

    def read(self, value: Any) -> Plain:
        """The cell that a value of google.protobuf is due to have."""

    def same(self, values: Sequence[Any], actual: pa.Array) -> bool:
        """Whether the column holds these values; None is null."""


def unchanged(value: Any) -> Plain:
    """The conversion of what needs none."""
    return value


@dataclass(frozen=True, slots=True)
class ScalarCells:
    """Of a column of Iceberg's type `kind`; `convert` gives its plain value, null is not handed to it.

    `ready`: google.protobuf's values are what Arrow takes.
    """

    kind: str
    convert: Callable[[Any], Plain]
    ready: bool

    def read(self, value: Any) -> Plain:
        """The plain value; a real as its bits. Python has made a signalling NaN quiet before."""
        found = self.convert(value)
        if self.kind not in _BITS:
            return found
        real, bits = _BITS[self.kind]
        return int(struct.unpack(bits, struct.pack(real, found))[0])

    def same(self, values: Sequence[Any], actual: pa.Array) -> bool:
        """Whether the column holds these values."""
        if actual.type != _ARROW.get(self.kind):
            return False
        given = values if self.ready else [None if each is None else self.convert(each) for each in values]
        due = pa.array(given, _MADE.get(self.kind, actual.type))
        if self.kind.startswith("decimal"):
            due = due.cast(actual.type)
        stored = _STORED.get(self.kind)
        return bool(due.equals(actual) if stored is None else due.view(stored).equals(actual.view(stored)))


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a message, its column's id, and whether it is null where it is not set."""

    name: str
    presence: bool
    column: int
    cells: Cells


@dataclass(frozen=True, slots=True)
class StructCells:
    """Of a message that has columns. `numbers`: the ids of the struct's columns in their order."""

    numbers: Sequence[int]
    members: Mapping[int, Member]

    def read(self, value: Any) -> dict[int, Plain]:
        """{column id: cell} of the message."""
        return {
            column: None
            if each.presence and not type(value).HasField(value, each.name)
            else each.cells.read(getattr(value, each.name))
            for column, each in self.members.items()
        }

    def same(self, values: Sequence[Any], actual: pa.Array, apart: Sequence[int] = ()) -> bool:
        """Whether the columns hold these messages, null where it has no field; `apart` is not looked at."""
        there = [each is not None for each in values]
        if not pa.array(there, pa.bool_()).equals(actual.is_valid()):
            return False
        children = [actual.field(at) for at in range(len(self.numbers))]
        if not all(there):
            values = [each for each in values if each is not None]
            children = [each.filter(actual.is_valid()) for each in children]
        for number, child in zip(self.numbers, children, strict=True):
            member = self.members.get(number)
            if number in apart:
                continue
            if member is None:
                if child.null_count != len(child):
                    return False
            elif not member.cells.same(_of(values, member), child):
                return False
        return True


@dataclass(frozen=True, slots=True)
class WholeCells:
    """Of a message that is the struct `column` as a whole. `numbers`: the ids of all columns beside it."""

    numbers: Sequence[int]
    column: int
    inside: StructCells

    def read(self, value: Any) -> dict[int, Plain]:
        """{column id: cell} of the message."""
        return {self.column: self.inside.read(value)}

    def same(self, values: Sequence[Any], actual: pa.Array, apart: Sequence[int] = ()) -> bool:
        """Whether the column holds these messages, of which none is None, and the others are null."""
        if actual.null_count:
            return False
        for at, number in enumerate(self.numbers):
            child = actual.field(at)
            if number == self.column:
                if not self.inside.same(values, child):
                    return False
            elif number not in apart and child.null_count != len(child):
                return False
        return True


def _of(messages: Sequence[Any], member: Member) -> list[Any]:
    if not member.presence:
        return list(map(attrgetter(member.name), messages))
    name = member.name
    return [getattr(each, name) if type(each).HasField(each, name) else None for each in messages]


@dataclass(frozen=True, slots=True)
class ListCells:
    """Of a repeated field, which is never null."""

    element: Cells

    def read(self, value: Any) -> list[Plain]:
        """Its elements."""
        return [self.element.read(each) for each in value]

    def same(self, values: Sequence[Any], actual: pa.Array) -> bool:
        """Whether the column holds these lists."""
        lengths = pa.array(list(map(len, values)), pa.int32())
        if actual.null_count or not lengths.equals(actual.value_lengths()):
            return False
        return self.element.same(list(chain.from_iterable(values)), actual.flatten())


@dataclass(frozen=True, slots=True)
class MapCells:
    """Of a map, never null, whose pairs are in no order. `kind`: its column's type in Iceberg's JSON."""

    kind: Any
    key: Cells
    value: Cells

    def read(self, value: Any) -> list[tuple[Plain, Plain]]:
        """Its pairs in order of their keys."""
        return sorted(
            ((self.key.read(each), self.value.read(value[each])) for each in value), key=itemgetter(0)
        )

    def same(self, values: Sequence[Any], actual: pa.Array) -> bool:
        """Whether the column holds these maps: row by row, except where all are empty."""
        if actual.null_count == 0 and not any(map(len, values)) and len(actual.items) == 0:
            return True
        return [self.read(each) for each in values] == plain(actual, self.kind)
