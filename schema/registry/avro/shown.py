"""A datum as JSON shows it, for people and for columns of JSON text.

bytes and fixed are base64, as protobuf's JSON has them; decimals are text of all their digits, up to some
thousand; NaN and the infinities are text. A union of null and one other type is the value itself, another
one {"type": value}.
"""

from __future__ import annotations

import base64
import json
import math
from decimal import Context, Decimal
from typing import Any

from schema.registry.avro.datum import Datum
from schema.registry.avro.logical import logical_of
from schema.registry.avro.types import Type, decimal_of

NOTHING_SHOWN_MAX = 1_000
"""Items that take no bytes, of one array, which are shown."""

DECIMAL_BYTES_MAX = 1_000
"""Bytes of a decimal that is shown as a number."""

_CONTEXT = Context(prec=3 * DECIMAL_BYTES_MAX, Emax=10**9, Emin=-(10**9))


def text(datum: Datum, one: Type, value: Any) -> str:
    """A value of a type, as `Datum.read` gives it, as JSON text."""
    return json.dumps(plain(datum, one, value), ensure_ascii=False, separators=(",", ":"))


def plain(datum: Datum, one: Type, value: Any) -> Any:
    """The same, of what `json` writes. Calls itself for what is inside: a datum's depth is bounded."""
    if one.kind == "union":
        return _union(datum, one, value)
    if one.kind == "record":
        return _record(datum, one, value)
    if one.items is not None:
        if isinstance(value, int):
            return [plain(datum, one.items, None)] * min(value, NOTHING_SHOWN_MAX)
        if one.kind == "array":
            return [plain(datum, one.items, each) for each in value]
        return {key: plain(datum, one.items, each) for key, each in value}
    if one.kind in ("bytes", "fixed"):
        return _octets(one, value or b"")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def decimal(unscaled: bytes, scale: int) -> Decimal:
    """The decimal that bytes are."""
    return Decimal(int.from_bytes(unscaled, "big", signed=True)).scaleb(-scale, _CONTEXT)


def uuid_text(content: bytes) -> str:
    """A UUID of 16 bytes as text."""
    digits = content.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def duration(content: bytes) -> tuple[int, int, int]:
    """Months, days and milliseconds of a duration."""
    months, days, millis = (int.from_bytes(content[at : at + 4], "little") for at in (0, 4, 8))
    return months, days, millis


def _union(datum: Datum, one: Type, value: Any) -> Any:
    if value is None:
        return None
    others = [each for each in one.branches if each.kind != "null"]
    if len(others) == 1 and len(one.branches) == 2:
        return plain(datum, others[0], value)
    index, inside = value
    branch = one.branches[index]
    return {branch.name or branch.kind: plain(datum, branch, inside)}


def _record(datum: Datum, one: Type, value: Any) -> Any:
    given = {
        field.name: plain(datum, field.type, each)
        for field, each in zip(datum.fields(one), value or (), strict=True)
    }
    return {
        field.name: given[field.name] if field.name in given else plain(datum, field.type, None)
        for field in one.fields
    }


def _octets(one: Type, value: bytes) -> Any:
    name, known = logical_of(one), decimal_of(one)
    if known is not None and len(value) <= DECIMAL_BYTES_MAX:
        return f"{decimal(value, known.scale):f}"
    if name == "uuid":
        return uuid_text(value)
    if name == "duration":
        return dict(zip(("months", "days", "millis"), duration(value), strict=True))
    return base64.b64encode(value).decode()
