"""What a row of an older AVRO schema has in the columns of a newer one: the defaults of its fields.

Specification 1.12, "Schema Resolution": the reader's field that the writer's record has not is its default.
Names are compared as the registry does (schema/registry/avro/rules.py), and nothing else is resolved: a row
keeps what its own schema says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schema.registry.avro.datum import Datum
from schema.registry.avro.defaults import Defaults
from schema.registry.avro.logical import check_of
from schema.registry.avro.types import ABSENT, Field, Type
from schema.registry.parsed import InvalidSchema

VALUES_MAX = 10_000
"""Values of which one default may be made of; one of more is not filled in."""


class NoDefault(ValueError):
    """The default has no place in a column: it is no value of its logical type, or too large."""


def read_as(writer: Type, reader: Type | None) -> Type | None:
    """The type by which the reader takes what `writer` says: of its union one; None: by none."""
    branches = reader.branches if reader is not None and reader.kind == "union" else (reader,)
    if writer.kind == "union":
        return reader
    return next((each for each in branches if each is not None and _takes(each, writer)), None)


def _takes(reader: Type, writer: Type) -> bool:
    same = reader.simple == writer.simple or writer.name in reader.aliases
    return reader.kind == writer.kind and same


def fields_of(reader: Type | None) -> dict[str, Type]:
    """By the names that its record's fields have, or had, their types."""
    fields = reader.fields if reader is not None else ()
    aliases = {alias: each.type for each in fields for alias in each.aliases}
    return {**aliases, **{each.name: each.type for each in fields}}


def added(writer: Type, reader: Type) -> Iterator[Field]:
    """Fields of the reader's record that the writer's has not, with defaults other than null."""
    written = {each.name for each in writer.fields}
    for field in reader.fields:
        if written.isdisjoint((field.name, *field.aliases)) and field.default not in (ABSENT, None):
            yield field


def default_of(datum: Datum, field: Field) -> Any:
    """A field's default as `Datum.read` gives values. Raises NoDefault."""
    try:
        return _Making(datum).value(field.type, field.default)
    except (ValueError, OverflowError) as error:
        raise NoDefault(f"default of {field.name}: {error}") from error


class _Making:
    """One default; it was found to be a value of its type when the schema was read."""

    def __init__(self, datum: Datum) -> None:
        self._datum = datum
        self._left = VALUES_MAX

    def value(self, one: Type, said: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise NoDefault(f"more than {VALUES_MAX} values")
        if self._datum.is_nothing(one) or said is None:
            return b"" if one.kind == "fixed" else None if one.kind in ("null", "union") else ()
        if one.kind == "union":
            return self._union(one, said)
        if one.kind == "record":
            return tuple(
                self.value(each.type, said.get(each.name, each.default)) for each in self._datum.fields(one)
            )
        if one.items is not None:
            return self._several(one, one.items, said)
        return _single(one, said)

    def _union(self, one: Type, said: Any) -> Any:
        """Of any of its types: the first that has it."""
        at = next(at for at, each in enumerate(one.branches) if _is_of(each, said))
        inside = self.value(one.branches[at], said)
        plain = len(one.branches) == 2 and any(each.kind == "null" for each in one.branches)
        return inside if plain else (at, inside)

    def _several(self, one: Type, items: Type, said: Any) -> Any:
        if one.kind == "map":
            return [(key, self.value(items, each)) for key, each in said.items()]
        return len(said) if self._datum.is_nothing(items) else [self.value(items, each) for each in said]


def _is_of(one: Type, said: Any) -> bool:
    found = Defaults()
    found.later(one, said, "")
    try:
        found.check()
    except InvalidSchema:
        return False
    return True


def _single(one: Type, said: Any) -> Any:
    if one.kind in ("bytes", "fixed"):
        made: Any = said.encode("latin-1")
    elif one.kind in ("float", "double"):
        made = float(said)
    else:
        made = said
    check = check_of(one)
    why = check(made) if check is not None else None
    if why is not None:
        raise NoDefault(why)
    return made
