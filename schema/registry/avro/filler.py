"""Data that say nothing: defaults, and the empty value of a type, as AVRO's bytes.

| type | empty value |
|---|---|
| null, boolean, numbers | null, false, 0; so a date is 1970-01-01, a decimal 0 |
| string, bytes | empty; a uuid is all zeros |
| fixed, enum | zeros; its default, else its first symbol |
| array, map | empty |
| record | each field's default, else its type's empty value |
| union | null, else the empty value of the first type that has one |
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from objectstore.varint import zigzag
from schema.registry.avro.datum import BadDatum, Datum
from schema.registry.avro.logical import logical_of
from schema.registry.avro.types import ABSENT, Field, Type

BYTES_MAX = 64 << 10
"""Of one value that says nothing: records within records may each double it."""

STEPS_MAX = 10_000
"""Types and values that are looked at for one."""

_UUID = "00000000-0000-0000-0000-000000000000"
_NUMBERS = ("int", "long")


class Endless(ValueError):
    """A type without a value that ends, or without one of BYTES_MAX."""


class Filler:
    """Makes such data of one schema. Keeps nothing of one value for the next."""

    def __init__(self) -> None:
        self._left = 0
        self._open: set[int] = set()

    def of(self, field: Field) -> bytes:
        """What stands in a field: null where it may, else its default, else its type's empty value.

        Raises Endless.
        """
        null = null_of(field.type)
        if null is not None:
            return null
        return self._made(lambda: self._default(field) or self._empty(field.type))

    def empty(self, one: Type) -> bytes:
        """A type's empty value. Raises Endless."""
        return self._made(lambda: self._empty(one))

    def _made(self, make: Callable[[], bytes]) -> bytes:
        self._left, self._open = STEPS_MAX, set()
        try:
            return make()
        except RecursionError:
            raise Endless("records within one another, deeper than data may be") from None

    def _default(self, field: Field) -> bytes:
        """Empty: it has none that its type takes, logical types and all."""
        if field.default is ABSENT:
            return b""
        try:
            made = self._said(field.type, field.default)
            Datum(field.type).read(made)
        except (_Unfit, BadDatum):
            return b""
        return made

    def _empty(self, one: Type) -> bytes:
        self._spend()
        if one.kind == "union":
            return self._union(one)
        if one.kind == "record":
            return self._record(one)
        if one.items is not None:
            return b"\x00"
        if one.kind == "enum":
            return zigzag(one.symbols.index(one.default) if one.default is not None else 0)
        if one.kind == "fixed":
            if one.size > BYTES_MAX:
                raise Endless(f"{one} has {one.size} bytes")
            return bytes(one.size)
        if logical_of(one) == "uuid":
            return zigzag(len(_UUID)) + _UUID.encode()
        if logical_of(one) == "decimal":
            return zigzag(1) + b"\x00"
        return _EMPTY[one.kind]

    def _union(self, one: Type) -> bytes:
        null = null_of(one)
        if null is not None:
            return null
        for index, each in enumerate(one.branches):
            try:
                return zigzag(index) + self._empty(each)
            except Endless:
                if self._left < 0:
                    raise
        raise Endless(f"no type of the union has a value that ends: {', '.join(map(str, one.branches[:8]))}")

    def _record(self, one: Type) -> bytes:
        if id(one) in self._open:
            raise Endless(f"{one} holds itself")
        self._open.add(id(one))
        try:
            made = b"".join(self._default(each) or self._empty(each.type) for each in one.fields)
        finally:
            self._open.discard(id(one))
        if len(made) > BYTES_MAX:
            raise Endless(f"{one} has {len(made)} bytes at least")
        return made

    def _said(self, one: Type, value: Any) -> bytes:
        """A default, as JSON says it. Raises _Unfit where it is none of the type, and Endless."""
        self._spend()
        if one.kind == "union":
            return self._said_of_union(one, value)
        if one.kind == "record":
            _need(isinstance(value, Mapping))
            given = {each.name: value.get(each.name, each.default) for each in one.fields}
            _need(all(each is not ABSENT for each in given.values()))
            return b"".join(self._said(each.type, given[each.name]) for each in one.fields)
        if one.items is not None:
            return self._said_of_many(one, one.items, value)
        if one.kind == "enum":
            _need(isinstance(value, str) and value in one.symbols)
            return zigzag(one.symbols.index(value))
        return _simple(one, value)

    def _said_of_union(self, one: Type, value: Any) -> bytes:
        for index, each in enumerate(one.branches):
            try:
                return zigzag(index) + self._said(each, value)
            except _Unfit:
                continue
        raise _Unfit

    def _said_of_many(self, one: Type, items: Type, value: Any) -> bytes:
        _need(isinstance(value, list if one.kind == "array" else Mapping))
        if not value:
            return b"\x00"
        if one.kind == "array":
            inside = [self._said(items, each) for each in value]
        else:
            inside = [_sized(name.encode()) + self._said(items, each) for name, each in value.items()]
        return zigzag(len(inside)) + b"".join(inside) + b"\x00"

    def _spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Endless(f"what says nothing would take more than {STEPS_MAX} steps")


def null_of(one: Type) -> bytes | None:
    """A union's null; None where it has none."""
    found = (zigzag(at) for at, each in enumerate(one.branches) if each.kind == "null")
    return next(found, None)


class _Unfit(ValueError):
    """The value is none of the type."""


def _need(fits: bool) -> None:
    if not fits:
        raise _Unfit


def _simple(one: Type, value: Any) -> bytes:
    if one.kind == "null":
        _need(value is None)
        return b""
    if one.kind == "boolean":
        _need(isinstance(value, bool))
        return bytes([value])
    if one.kind in _NUMBERS:
        bits = 31 if one.kind == "int" else 63
        _need(type(value) is int and -(1 << bits) <= value < 1 << bits)
        return zigzag(value)
    if one.kind in ("float", "double"):
        _need(type(value) in (int, float))
        try:
            return struct.pack("<f" if one.kind == "float" else "<d", value)
        except (OverflowError, struct.error):
            raise _Unfit from None
    _need(isinstance(value, str))
    if one.kind == "string":
        return _sized(value.encode())
    try:
        content = bytes(value, "latin-1")
    except UnicodeEncodeError:
        raise _Unfit from None
    if one.kind == "fixed":
        _need(len(content) == one.size)
        return content
    return _sized(content)


def _sized(content: bytes) -> bytes:
    return zigzag(len(content)) + content


_EMPTY = {
    "null": b"",
    "boolean": b"\x00",
    "int": b"\x00",
    "long": b"\x00",
    "float": bytes(4),
    "double": bytes(8),
    "bytes": b"\x00",
    "string": b"\x00",
}
