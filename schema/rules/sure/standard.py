"""Standard rules of single values as conditions: whatever they let pass, the library lets pass.

Source: the expressions in buf/validate/validate.proto. What is not a number passes no rule of numbers here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from math import inf
from typing import Any, Final

import re2
from google.protobuf.descriptor import EnumDescriptor

from schema.rules.sure.terms import Beyond, any_of, call, compared, constant, method, size

FLOATS: Final = ("float", "double")
_NUMBERS: Final = frozenset(
    {
        *FLOATS,
        *("int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64"),
    }
)
_LABEL = "[A-Za-z0-9]+(?:-+[A-Za-z0-9]+)*"
_WELL_KNOWN = {
    "email": re2.compile(rf"[A-Za-z0-9._+-]+@{_LABEL}(?:\.{_LABEL})*"),
    "uuid": re2.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
}
"""Texts that surely are such, up to WELL_KNOWN_CHARS_MAX; others may be as well."""

WELL_KNOWN_CHARS_MAX = 63
"""Characters: a label of a host has no more."""


def understood() -> dict[str, Any]:
    """What conditions call beside Python's own functions."""
    return {f"is_{each}": pattern.fullmatch for each, pattern in _WELL_KNOWN.items()}


def conditions(kind: str, rules: Any, value: ast.expr, enum: EnumDescriptor | None) -> list[ast.expr]:
    """Of a value under rules of that kind (as "int32"). Raises Beyond."""
    if kind in _NUMBERS:
        return [*_numbers(rules, value, kind in FLOATS)]
    found = [*_same(rules, value)]
    if kind == "string":
        found += [*_sizes(rules, value, ("len", "min_len", "max_len")), *_texts(rules, value)]
    elif kind == "bytes":
        found += [*_sizes(rules, value, ("len", "min_len", "max_len")), *_parts(rules, value)]
    elif kind == "enum" and rules.defined_only:
        assert enum is not None
        found.append(_among("in", value, (each.number for each in enum.values)))
    return found


def _numbers(rules: Any, value: ast.expr, fractional: bool) -> Iterator[ast.expr]:
    yield from _same(rules, value)
    low, high = rules.WhichOneof("greater_than"), rules.WhichOneof("less_than")
    least = constant(getattr(rules, low)) if low else None
    most = constant(getattr(rules, high)) if high else None
    over, under = "<" if low == "gt" else "<=", "<" if high == "lt" else "<="
    if least and most and getattr(rules, high) < getattr(rules, low):
        yield any_of(compared(least, (over, value)), compared(value, (under, most)))
    elif least and most:
        yield compared(least, (over, value), (under, most))
    elif least:
        yield compared(least, (over, value))
    elif most:
        yield compared(value, (under, most))
    if fractional and rules.finite:
        yield compared(constant(-inf), ("<", value), ("<", constant(inf)))
    elif fractional and rules.not_in:
        yield compared(value, ("==", value))


def _same(rules: Any, value: ast.expr) -> Iterator[ast.expr]:
    if rules.HasField("const"):
        yield compared(value, ("==", constant(rules.const)))
    if "in" in rules.DESCRIPTOR.fields_by_name:
        if getattr(rules, "in"):
            yield _among("in", value, getattr(rules, "in"))
        if rules.not_in:
            yield _among("not in", value, rules.not_in)


def _among(operator: str, value: ast.expr, listed: Iterator[Any] | Any) -> ast.expr:
    return compared(value, (operator, constant(frozenset(listed))))


def _sizes(rules: Any, value: ast.expr, names: tuple[str, str, str]) -> Iterator[ast.expr]:
    for name, operator in zip(names, ("==", ">=", "<="), strict=True):
        if rules.HasField(name):
            yield compared(size(value), (operator, constant(getattr(rules, name))))


def _texts(rules: Any, value: ast.expr) -> Iterator[ast.expr]:
    """Lengths count characters, and bytes where the rule says so."""
    yield from _sizes(rules, method(value, "encode"), ("len_bytes", "min_bytes", "max_bytes"))
    yield from _parts(rules, value)
    if rules.HasField("not_contains"):
        yield compared(constant(rules.not_contains), ("not in", value))
    if rules.HasField("pattern"):
        raise Beyond  # its engine is not RE2, whose classes and limits are others
    known = rules.WhichOneof("well_known")
    if known and getattr(rules, known):
        yield compared(size(value), ("<=", constant(WELL_KNOWN_CHARS_MAX)))
        yield call(f"is_{known}", value)


def _parts(rules: Any, value: ast.expr) -> Iterator[ast.expr]:
    if rules.HasField("prefix"):
        yield method(value, "startswith", constant(rules.prefix))
    if rules.HasField("suffix"):
        yield method(value, "endswith", constant(rules.suffix))
    if rules.HasField("contains"):
        yield compared(constant(rules.contains), ("in", value))
