"""AVRO schemas: a JSON text, and what it means.

The canonical form keeps all that Java's `Schema` keeps, doc, defaults, aliases and unknown attributes among
it, as Confluent's registry does. Names are in full, attributes in one order, comments and space left out.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from schema.registry.avro import text as avro_json
from schema.registry.avro.reading import Reader
from schema.registry.avro.types import ABSENT, Field, Type
from schema.registry.parsed import Imports, InvalidSchema, Parsed, check_imports

IMPORTED_BYTES_MAX = 8 << 20
"""Canonical forms of all that a schema refers to, bytes: they are read with it."""

_LOADED_MAX = 64  # schemas kept as they were read; least recently used go first
_KEPT_BYTES_MAX = 1 << 16  # of a canonical form with its imports; larger ones are read anew
_NAMED = ("record", "error", "enum", "fixed")


def parse(text: str, imports: Imports, *, normalize: bool = False) -> Parsed:
    """Read a schema. Its text is the one given, but the canonical one where that is asked for, or where it
    has comments, which most clients do not read.

    CPU: call it in a thread. Raises InvalidSchema.
    """
    check_imports(imports)
    said, commented = avro_json.read(text)
    known = _imported(imports)
    form = _Writer(set(known)).text(Reader(known).schema(said))
    try:
        canonical = form.encode()
    except UnicodeEncodeError:
        half = "the text has half a character (\\ud800 to \\udfff alone)"
        raise InvalidSchema(f"{half}: write both halves, or none") from None
    return Parsed(canonical, form if normalize or commented else text)


def load(form: bytes, imports: Imports) -> Type:
    """A canonical form with what it refers to, ready to be compared. Raises InvalidSchema."""
    given = tuple(sorted(imports.items()))
    small = len(form) + sum(len(each) for each in imports.values()) <= _KEPT_BYTES_MAX
    return _load(form, given) if small else _read(form, given)


def resolved(form: bytes, imports: Imports) -> str:
    """The canonical text with all types that it refers to in it, each where it first stands.

    CPU: call it in a thread. Raises InvalidSchema where types stand within one another too deep to be told.
    """
    try:
        return _Writer(set()).text(load(form, imports))
    except RecursionError:
        raise InvalidSchema("with all that it refers to in it, it is nested too deep") from None


def _read(form: bytes, given: tuple[tuple[str, bytes], ...]) -> Type:
    return Reader(_imported(dict(given)), exact=True).schema(json.loads(form))


_load = functools.lru_cache(maxsize=_LOADED_MAX)(_read)


def _imported(imports: Imports) -> dict[str, Type]:
    """All types that the imports define, by name. Raises InvalidSchema."""
    size = sum(len(form) for form in imports.values())
    if size > IMPORTED_BYTES_MAX:
        raise InvalidSchema(f"what it refers to has {size} bytes: at most {IMPORTED_BYTES_MAX} are read")
    forms = {name: json.loads(form) for name, form in imports.items()}
    reader, homes, needs = Reader({}, exact=True), {}, {}
    for name, said in forms.items():
        defined, needs[name] = _names(said)
        homes.update(dict.fromkeys(defined, name))
    for name in _in_order(homes, needs):
        try:
            reader.schema(forms[name])
        except InvalidSchema as error:
            raise InvalidSchema(f"reference {name}: {error}") from None
    return reader.types


def _names(form: object) -> tuple[set[str], set[str]]:
    """Which types a canonical form defines, and which it names."""
    defined, named, waiting = set(), set(), [form]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            named.add(one)
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            if one["type"] in _NAMED:
                defined.add(one["name"])
            waiting += [one[inside] for inside in ("items", "values") if inside in one]
            waiting += [field["type"] for field in one.get("fields", ())]
    return defined, named


def _in_order(homes: Mapping[str, str], needs: Mapping[str, set[str]]) -> list[str]:
    """The imports, each behind those whose types it names; references make no circle."""
    done: dict[str, None] = {}
    for first in sorted(needs):
        waiting, entered = [first], set()
        while waiting:
            name = waiting[-1]
            if name in entered or name in done:
                done.setdefault(waiting.pop())
                continue
            entered.add(name)
            behind = {homes[each] for each in needs[name] if each in homes}
            waiting += sorted(behind - entered - done.keys())
    return list(done)


class _Writer:
    """Writes types as JSON: each that is not `defined` yet where it first stands, then by name.

    Calls itself as deep as the text's levels were.
    """

    def __init__(self, defined: set[str]) -> None:
        self._defined = defined

    def text(self, top: Type) -> str:
        """The schema in one line."""
        return json.dumps(self._type(top, ""), separators=(",", ":"), ensure_ascii=False)

    def _type(self, one: Type, space: str) -> Any:
        if one.kind == "union":
            return [self._type(each, space) for each in one.branches]
        if one.items is not None:
            inside = "items" if one.kind == "array" else "values"
            made = {"type": one.kind, inside: self._type(one.items, space)}
        elif one.name:
            if one.name in self._defined:
                return one.name
            made = self._named(one, space)
        elif one.more:
            made = {"type": one.kind}
        else:
            return one.kind
        return made | _sorted(one.more)

    def _named(self, one: Type, space: str) -> dict[str, Any]:
        self._defined.add(one.name)
        made: dict[str, Any] = {"type": "error" if one.error else one.kind, "name": one.name}
        if space and not one.namespace:
            made["namespace"] = ""  # else readers put it into the namespace around it
        if one.doc is not None:
            made["doc"] = one.doc
        if one.aliases:
            made["aliases"] = list(one.aliases)
        if one.kind == "record":
            made["fields"] = [self._field(each, one.namespace) for each in one.fields]
        elif one.kind == "enum":
            made["symbols"] = list(one.symbols)
            if one.default is not None:
                made["default"] = one.default
        else:
            made["size"] = one.size
        return made

    def _field(self, one: Field, space: str) -> dict[str, Any]:
        made: dict[str, Any] = {"name": one.name, "type": self._type(one.type, space)}
        if one.doc is not None:
            made["doc"] = one.doc
        if one.default is not ABSENT:
            made["default"] = _sorted(one.default)
        if one.order != "ascending":
            made["order"] = one.order
        if one.aliases:
            made["aliases"] = list(one.aliases)
        made.update(_sorted(one.more))
        return made


def _sorted(value: Any) -> Any:
    """A value with the names of its objects in order, which means nothing."""
    if isinstance(value, Mapping):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list) else value
