"""A table's cells as plain values that can be compared with `==`, and where two of them differ.

Text is bytes, reals are their bits (NaN equals itself, -0.0 is not 0.0), times are µs, a struct is
{Iceberg id: value}, a map its pairs in order of their keys. Null is None.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from decimal import Decimal
from operator import itemgetter
from typing import Any

import pyarrow as pa

Plain = Any

_QUIET = 1 << 22
_NAN = 0x7F800000
_SHOWN_CHARS_MAX = 60
_DIFFERENCES_MAX = 8
"""Columns of one row that are told."""

Difference = tuple[str, str]
"""The column's path, and what is wrong there."""


def plain(array: pa.Array, kind: Any) -> list[Plain]:
    """The array's values; `kind` is the column's type in Iceberg's JSON."""
    if isinstance(kind, str):
        return _scalars(array, kind)
    valid = array.is_valid().to_pylist()
    if kind["type"] == "struct":
        numbers = [each["id"] for each in kind["fields"]]
        children = [plain(array.field(at), each["type"]) for at, each in enumerate(kind["fields"])]
        rows = zip(*children, strict=True) if children else [()] * len(array)
        return [
            dict(zip(numbers, row, strict=True)) if there else None
            for there, row in zip(valid, rows, strict=True)
        ]
    offsets = array.offsets.to_pylist()
    if kind["type"] == "list":
        elements = plain(array.values, kind["element"])
        return [elements[offsets[at] : offsets[at + 1]] if there else None for at, there in enumerate(valid)]
    pairs = list(zip(plain(array.keys, kind["key"]), plain(array.items, kind["value"]), strict=True))
    return [
        sorted(pairs[offsets[at] : offsets[at + 1]], key=itemgetter(0)) if there else None
        for at, there in enumerate(valid)
    ]


def _scalars(array: pa.Array, kind: str) -> list[Plain]:
    if kind in ("timestamptz", "timestamp"):
        return list(array.view(pa.int64()).to_pylist())
    if kind == "double":
        return list(array.view(pa.uint64()).to_pylist())
    if kind == "float":
        bits = array.view(pa.uint32()).to_pylist()
        return [None if each is None else _quiet(each) for each in bits]
    if kind == "string":
        return list(array.cast(pa.binary()).to_pylist())
    if kind.startswith("decimal"):
        return [None if each is None else _whole(each) for each in array.to_pylist()]
    return list(array.to_pylist())


def _quiet(bits: int) -> int:
    """A NaN as Python gives it on: quiet."""
    return bits | _QUIET if bits & 0x7FFFFFFF > _NAN else bits


def _whole(value: Decimal) -> int | Decimal:
    return int(value) if value == value.to_integral_value() else value


def differences(kind: Any, expected: Plain, actual: Plain, path: str) -> Iterator[Difference]:
    """Where a cell of type `kind` is not what is due, by column, nested ones by themselves.

    A column of a struct that `expected` does not name is one that the row's schema does not have: null.
    """
    if expected == actual:
        return
    if expected is None or actual is None or isinstance(kind, str):
        yield path, f"is {shown(actual, kind)}, {shown(expected, kind)} is due"
        return
    if kind["type"] == "struct":
        for each in kind["fields"]:
            number = each["id"]
            yield from differences(
                each["type"], expected.get(number), actual.get(number), f"{path}.{each['name']}"
            )
        return
    if kind["type"] == "list":
        yield from _in_list(kind, expected, actual, path)
        return
    yield from _in_map(kind, expected, actual, path)


def _in_list(kind: Any, expected: list[Plain], actual: list[Plain], path: str) -> Iterator[Difference]:
    if len(expected) != len(actual):
        yield path, f"has {len(actual)} elements, {len(expected)} are due"
        return
    for at, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        if ours != theirs:
            yield from differences(kind["element"], ours, theirs, f"{path}[{at}]")
            return


def _in_map(
    kind: Any, expected: list[tuple[Plain, Plain]], actual: list[tuple[Plain, Plain]], path: str
) -> Iterator[Difference]:
    keys, due = [[key for key, _ in pairs] for pairs in (actual, expected)]
    if keys != due:
        yield path, f"has the keys {shown(keys, 'binary')}, {shown(due, 'binary')} are due"
        return
    for (key, ours), (_, theirs) in zip(expected, actual, strict=True):
        if ours != theirs:
            yield from differences(kind["value"], ours, theirs, f"{path}[{shown(key, kind['key'])}]")
            return


def shown(value: Plain, kind: Any) -> str:
    """A value for people, not longer than a line."""
    if value is None:
        return "null"
    if kind == "float":
        text = repr(struct.unpack("<f", struct.pack("<I", value))[0])
    elif kind == "double":
        text = repr(struct.unpack("<d", struct.pack("<Q", value))[0])
    elif kind == "string":
        text = repr(value.decode(errors="replace"))
    elif isinstance(kind, str):
        text = repr(value)
    else:
        text = f"a {kind['type']}"
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"


def first(found: Iterator[Difference]) -> list[Difference]:
    """The first of them."""
    return [each for _, each in zip(range(_DIFFERENCES_MAX), found, strict=False)]
