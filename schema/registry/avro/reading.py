"""AVRO types of JSON, as the specification (1.12) has them: what is none is told with its place.

What it leaves open is decided as Java's library does, which Confluent's registry uses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from schema.registry.avro.defaults import Defaults
from schema.registry.avro.text import shown
from schema.registry.avro.types import ABSENT, PLAIN, PRIMITIVES, Field, Type
from schema.registry.parsed import InvalidSchema

NAMED_MAX = 20_000
"""Named types of a schema, those of what it refers to among them."""

NAME_CHARS_MAX = 1_000
"""Characters of a name with its namespace, of a field's name, of a symbol: they are told in messages."""

PATH_CHARS_MAX = 2_000
"""Characters of the place of what is wrong, in a message."""

SIZE_MAX = (1 << 31) - 1
"""Bytes of a fixed."""

MARKS = ("confluent:tags", "confluent.tags", "floe.redact")
"""Attributes that mark what is not for everybody (schema/redaction)."""

ORDERS = ("ascending", "descending", "ignore")
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{NAME_CHARS_MAX - 1}}}")
_IS_NAME = f"letters, digits and _, no digit first, {NAME_CHARS_MAX} at most"
_OF_TYPES = frozenset(
    ("type", "name", "namespace", "doc", "aliases", "fields", "items", "values", "size", "symbols")
)
_OF_ENUMS = _OF_TYPES | {"default"}
_OF_FIELDS = frozenset(("name", "type", "doc", "aliases", "default", "order"))


class Reader:
    """Reads schemas that may name one another's types, each behind those that it names.

    `exact`: of canonical forms, where every name is the full one.
    """

    def __init__(self, known: Mapping[str, Type], *, exact: bool = False) -> None:
        self.types = dict(known)
        self._exact = exact
        self._defaults = Defaults()

    def schema(self, said: object) -> Type:
        """The type that a schema is; those that it names are in `types` then. Raises InvalidSchema."""
        found = self._type(said, "", "")
        self._defaults.check()  # now that records which hold themselves have all their fields
        return found

    def _type(self, said: object, space: str, path: str) -> Type:
        """`space`: the namespace around it. Calls itself for what is inside: JSON's levels are bounded."""
        if isinstance(said, str):
            return self._referred(said, space, path)
        if isinstance(said, list):
            return self._union(said, space, path)
        if not isinstance(said, dict):
            _wrong(path, f"{shown(said)} is no type: give a name, an object or a list of types")
        kind = said.get("type")
        if kind in ("record", "error"):
            return self._record(said, space, path)
        if kind == "enum":
            return self._enum(said, space, path)
        if kind == "fixed":
            return self._fixed(said, space, path)
        if kind in ("array", "map"):
            inside = "items" if kind == "array" else "values"
            if inside not in said:
                _wrong(path, f'{kind} without "{inside}": give the type of its {inside}')
            return Type(
                kind, items=self._type(said[inside], space, _at(path, inside)), more=_more(said, _OF_TYPES)
            )
        if not isinstance(kind, str):
            told = "an object without it" if kind is None else f"not {shown(kind)}"
            _wrong(_at(path, "type"), f"must be the name of a type, {told}; a union or type stands by itself")
        found = self._referred(kind, space, path)
        more = _more(said, _OF_TYPES)
        if kind in PRIMITIVES:
            return Type(kind, more=more) if more else found
        for mark in (one for one in MARKS if one in more):
            remedy = f"mark the field that has it, or {kind} where it is defined"
            _wrong(path, f"{shown(mark)} beside the name of a type marks nothing: {remedy}")
        return found

    def _referred(self, name: str, space: str, path: str) -> Type:
        if name in PRIMITIVES:
            return PLAIN[name]
        full = self._full(name, space)
        found = self.types.get(full) or self.types.get(name)  # as Java: else the one without a namespace
        if found is None:
            remedy = "define it before it is named, or refer to the schema that has it"
            _wrong(path, f"{shown(name)} is no known type: {remedy}")
        return found

    def _full(self, name: str, space: str) -> str:
        return name if self._exact or "." in name or not space else f"{space}.{name}"

    def _union(self, said: list[object], space: str, path: str) -> Type:
        if not said:
            _wrong(path, "a union of no types: no value could be written; give one or more")
        found: dict[str, Type] = {}
        for index, each in enumerate(said):
            place = f"{path}[{index}]"
            one = self._type(each, space, place)
            if one.kind == "union":
                _wrong(place, "a union within a union: write its types into the outer one")
            if (one.name or one.kind) in found:
                _wrong(place, f"a second {one} in one union: values could not be told apart; leave one out")
            found[one.name or one.kind] = one
        return Type("union", branches=tuple(found.values()))

    def _name(self, said: Mapping[str, Any], space: str, path: str) -> str:
        """The full name of a type that is defined here. Raises InvalidSchema."""
        name, own = said.get("name"), said.get("namespace")
        if not isinstance(name, str) or not name:
            _wrong(_at(path, "name"), f"{said['type']} needs one, a string, not {shown(name)}")
        if own is not None and not isinstance(own, str):
            _wrong(_at(path, "namespace"), f"must be a string, not {shown(own)}")
        full = self._full(name, space if own is None else own)
        _check_name(full, _at(path, "name"))
        if full in PRIMITIVES:
            _wrong(_at(path, "name"), f"{full} is a type of AVRO's: give another name or a namespace")
        if full in self.types:
            _wrong(_at(path, "name"), f"{full} is defined already: define it once, and name it elsewhere")
        if len(self.types) >= NAMED_MAX:
            _wrong(path, f"more than {NAMED_MAX} named types, with those of references")
        return full

    def _record(self, said: Mapping[str, Any], space: str, path: str) -> Type:
        made = self._named("record", said, space, path, _OF_TYPES)
        made.error = said["type"] == "error"
        self.types[made.name] = made  # before its fields: they may name it
        fields: dict[str, Field] = {}
        for index, each in enumerate(_list(said, "fields", path)):
            place = _at(path, f"fields[{index}]")
            one = self._field(each, made.namespace, place)
            if one.name in fields:
                _wrong(place, f"a second field {shown(one.name)} in {made.name}: give it another name")
            fields[one.name] = one
        made.fields = tuple(fields.values())
        return made

    def _field(self, said: object, space: str, path: str) -> Field:
        if not isinstance(said, dict):
            _wrong(path, f"{shown(said)} is no field: give an object with name and type")
        name = said.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            _wrong(_at(path, "name"), f"{shown(name)} is no name: {_IS_NAME}")
        path = f"{path} {shown(name)}"
        if "type" not in said:
            _wrong(path, 'a field without "type": give one')
        order = str(said.get("order", "ascending")).lower()
        if order not in ORDERS:
            _wrong(_at(path, "order"), f"{shown(said['order'])} is none of {', '.join(ORDERS)}")
        made = Field(
            name,
            self._type(said["type"], space, _at(path, "type")),
            said.get("default", ABSENT),
            _aliases(said, path),
            _doc(said),
            order,
            _more(said, _OF_FIELDS),
        )
        if made.default is not ABSENT:
            self._defaults.later(made.type, made.default, _at(path, "default"))
        return made

    def _enum(self, said: Mapping[str, Any], space: str, path: str) -> Type:
        made = self._named("enum", said, space, path, _OF_ENUMS)
        symbols = dict.fromkeys(map(str, given := _list(said, "symbols", path)))
        for index, each in enumerate(given):
            if not isinstance(each, str) or not _NAME.fullmatch(each):
                place = _at(path, f"symbols[{index}]")
                _wrong(place, f"{shown(each)} is no symbol: {_IS_NAME}")
        if len(symbols) < len(given):
            _wrong(_at(path, "symbols"), f"{made.name} has one of its symbols twice: leave one out")
        made.symbols, made.default = tuple(symbols), said.get("default")
        if made.default is not None and made.default not in given:
            _wrong(_at(path, "default"), f"{shown(made.default)} is none of the symbols: give one of them")
        self.types[made.name] = made
        return made

    def _fixed(self, said: Mapping[str, Any], space: str, path: str) -> Type:
        made = self._named("fixed", said, space, path, _OF_TYPES)
        size = said.get("size")
        if type(size) is not int or not 0 <= size <= SIZE_MAX:
            _wrong(_at(path, "size"), f"must be a number of bytes, 0 to {SIZE_MAX}, not {shown(size)}")
        made.size = size
        self.types[made.name] = made
        return made

    def _named(
        self, kind: str, said: Mapping[str, Any], space: str, path: str, known: frozenset[str]
    ) -> Type:
        """What all named types have."""
        name = self._name(said, space, path)
        own = name.rpartition(".")[0]
        aliases = tuple(self._full(each, own) for each in _aliases(said, path))
        return Type(kind, name, aliases, _doc(said), more=_more(said, known))


def _more(said: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Attributes that AVRO does not know, logical types among them: whoever does not know one ignores it."""
    return {name: value for name, value in said.items() if name not in known}


def _doc(said: Mapping[str, Any]) -> str | None:
    found = said.get("doc")
    return found if isinstance(found, str) else None  # as Java: another value is none


def _aliases(said: Mapping[str, Any], path: str) -> tuple[str, ...]:
    """As they are written. Raises InvalidSchema."""
    given = said.get("aliases")
    if given is None:
        return ()
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        _wrong(_at(path, "aliases"), f"must be a list of names, not {shown(given)}")
    for each in given:
        _check_name(each, _at(path, "aliases"))
    return tuple(given)


def _list(said: Mapping[str, Any], name: str, path: str) -> Sequence[object]:
    found = said.get(name)
    if not isinstance(found, list):
        what = "is missing" if found is None else f"is {shown(found)}"
        _wrong(_at(path, name), f"{what}: {said['type']} needs a list")
    return found


def _check_name(full: str, path: str) -> None:
    """Raises InvalidSchema for what is no name, with or without a namespace."""
    if len(full) > NAME_CHARS_MAX or not all(_NAME.fullmatch(part) for part in full.split(".")):
        _wrong(path, f"{shown(full)} is no name: it and parts of its namespace have {_IS_NAME}")


def _at(path: str, step: str) -> str:
    """A place and a step from it. Defaults keep theirs, so of a long one only the end is there."""
    told = f"{path} {step}" if path else step
    return told if len(told) <= PATH_CHARS_MAX else f"…{told[-PATH_CHARS_MAX:]}"


def _wrong(path: str, words: str) -> NoReturn:
    raise InvalidSchema(f"{path.lstrip()}: {words}" if path else words)
