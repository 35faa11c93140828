"""AVRO's types as a schema that was read has them: names in full, references resolved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
ABSENT: Any = object()
"""The default of a field that has none: null is one."""


class Decimal(NamedTuple):
    """The logical type of numbers whose point has a fixed place."""

    precision: int
    scale: int


@dataclass(eq=False, slots=True)
class Type:
    """A type. Only those attributes are set that its kind has; `more`: those that AVRO does not know."""

    kind: str  # one of PRIMITIVES, or array, map, union, record, enum, fixed
    name: str = ""  # in full
    aliases: Sequence[str] = ()  # in full
    doc: str | None = None
    error: bool = False  # a record that says "error"
    fields: Sequence[Field] = ()
    symbols: Sequence[str] = ()
    default: str | None = None  # of an enum
    size: int = 0  # of a fixed, bytes
    items: Type | None = None  # of an array, of a map's values
    branches: Sequence[Type] = ()  # of a union
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def simple(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        """Empty: none."""
        return self.name.rpartition(".")[0]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else self.kind


@dataclass(eq=False, slots=True)
class Field:
    """A field of a record."""

    name: str
    type: Type
    default: Any = ABSENT
    aliases: Sequence[str] = ()
    doc: str | None = None
    order: str = "ascending"
    more: Mapping[str, Any] = field(default_factory=dict)


PLAIN = {kind: Type(kind) for kind in PRIMITIVES}
"""Primitives without further attributes."""


def decimal_of(one: Type) -> Decimal | None:
    """The decimal that a type is; None for others, and for one that is invalid: it is plain bytes then."""
    if one.kind not in ("bytes", "fixed") or one.more.get("logicalType") != "decimal":
        return None
    precision, scale = one.more.get("precision"), one.more.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return None
    fits = one.kind == "bytes" or precision <= math.floor((8 * one.size - 1) * math.log10(2))
    return Decimal(precision, scale) if precision > 0 and 0 <= scale <= precision and fits else None
