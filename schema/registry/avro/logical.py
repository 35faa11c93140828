"""Logical types of AVRO: which one a type has, and which values of the type below it are values of it.

Specification 1.12, "Logical Types". One that is unknown, or stands at another type, means nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from schema.registry.avro.types import Type, decimal_of

DAY_MS = 86_400_000
DURATION_BYTES = 12

_OF_KIND = {
    "int": ("date", "time-millis"),
    "long": (
        *("time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos"),
        *("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"),
    ),
    "string": ("uuid",),
}
_OF_SIZE = {16: "uuid", DURATION_BYTES: "duration"}
_DIGITS_OF_BYTE = 2.41  # decimal digits that a byte holds at most
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

Check = Callable[[Any], str | None]
"""Why a value of the type below is none of the logical type; None: it is one."""


def logical_of(one: Type) -> str:
    """The logical type's name; empty where the type has none."""
    name = one.more.get("logicalType")
    if name == "decimal":
        return "decimal" if decimal_of(one) is not None else ""
    known = name in _OF_KIND.get(one.kind, ()) or (one.kind == "fixed" and _OF_SIZE.get(one.size) == name)
    return str(name) if known else ""


def check_of(one: Type) -> Check | None:
    """What values of the type must keep to beyond its own form; None: nothing."""
    name = logical_of(one)
    if name == "decimal":
        found = decimal_of(one)
        assert found is not None, "it is a decimal"
        return _decimal(found.precision)
    if name in ("time-millis", "time-micros"):
        return _time(DAY_MS if name == "time-millis" else DAY_MS * 1000)
    return _uuid if name == "uuid" and one.kind == "string" else None


def _decimal(precision: int) -> Check:
    bounds: list[int] = []  # made when it is needed: a schema may say a precision of thousands of millions

    def check(value: bytes) -> str | None:
        if not value:
            return "a decimal of no bytes"
        if len(value) * _DIGITS_OF_BYTE < precision:
            return None
        bounds[:] = bounds or [10**precision]
        if -bounds[0] < int.from_bytes(value, "big", signed=True) < bounds[0]:
            return None
        return f"a decimal of more than {precision} digits"

    return check


def _time(bound: int) -> Check:
    def check(value: int) -> str | None:
        return None if 0 <= value < bound else f"{value} is no time of a day (0 to {bound - 1})"

    return check


def _uuid(value: str) -> str | None:
    return None if _UUID.fullmatch(value) else f"{value[:40]!r} is no UUID (8-4-4-4-12 hexadecimal digits)"
