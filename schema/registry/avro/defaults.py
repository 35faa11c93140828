"""Whether the defaults of fields are values of their types.

Of a union, any of its types, as specification and Java's library say since 1.12; before, it was the first.
"""

from __future__ import annotations

from typing import Any

from schema.registry.avro.text import shown
from schema.registry.avro.types import ABSENT, Type
from schema.registry.parsed import InvalidSchema

STEPS_MAX = 1_000_000
"""Comparisons of a value with a type, in one schema: those of a union's records would multiply."""

_INTEGERS = {"int": 31, "long": 63}


class Defaults:
    """Defaults that wait until all types are read, and what came of comparisons."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Type, Any, str]] = []
        self._known: dict[tuple[int, int], bool] = {}
        self._symbols: dict[int, frozenset[str]] = {}  # of enums, which may have thousands
        self._steps = 0

    def later(self, wanted: Type, value: object, path: str) -> None:
        """Keep a default for `check`; the path is told where it is wrong."""
        self._waiting.append((wanted, value, path))

    def check(self) -> None:
        """Raises InvalidSchema for the first one that is no value of its type."""
        for wanted, value, path in self._waiting:
            if not self._valid(wanted, value):
                of = f"union of {', '.join(map(str, wanted.branches[:8]))}" if wanted.branches else wanted
                remedy = "give a value of the type, or none"
                raise InvalidSchema(f"{path}: {shown(value)} is no value of {of}: {remedy}")
        self._waiting.clear()
        self._known.clear()  # by identities, which end with the values
        self._symbols.clear()

    def _valid(self, wanted: Type, value: Any) -> bool:
        key = (id(wanted), id(value))
        if key not in self._known:
            self._steps += 1
            if self._steps > STEPS_MAX:
                raise InvalidSchema(f"defaults of more than {STEPS_MAX} values and types: make them smaller")
            self._known[key] = self._is(wanted, value)
        return self._known[key]

    def _is(self, wanted: Type, value: Any) -> bool:
        match wanted.kind:
            case "union":
                for branch in wanted.branches:  # noqa: SIM110 - any() takes a frame more on each level
                    if self._valid(branch, value):
                        return True
                return False
            case "array":
                return isinstance(value, list) and self._each(wanted.items, value)
            case "map":
                return isinstance(value, dict) and self._each(wanted.items, list(value.values()))
            case "record":
                return isinstance(value, dict) and self._record(wanted, value)
            case "enum":
                return isinstance(value, str) and value in self._symbols_of(wanted)
        return _is_simple(wanted, value)

    def _symbols_of(self, wanted: Type) -> frozenset[str]:
        if id(wanted) not in self._symbols:
            self._symbols[id(wanted)] = frozenset(wanted.symbols)
        return self._symbols[id(wanted)]

    def _each(self, items: Type | None, values: list[Any]) -> bool:
        assert items is not None
        for value in values:  # noqa: SIM110 - as above
            if not self._valid(items, value):
                return False
        return True

    def _record(self, wanted: Type, value: dict[str, Any]) -> bool:
        """Fields that are not said have their own default, which is checked where it stands."""
        self._steps += len(wanted.fields)
        for field in wanted.fields:
            if field.name not in value:
                if field.default is ABSENT:
                    return False
            elif not self._valid(field.type, value[field.name]):
                return False
        return True


def _is_simple(wanted: Type, value: Any) -> bool:
    match wanted.kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long" as kind:
            return type(value) is int and -(1 << _INTEGERS[kind]) <= value < 1 << _INTEGERS[kind]
        case "float" | "double":
            return type(value) in (int, float)
    if not isinstance(value, str):
        return False
    if wanted.kind == "string":
        return True
    return all(letter <= "\xff" for letter in value) and (wanted.kind == "bytes" or len(value) == wanted.size)
