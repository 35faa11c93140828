"""Where a `$ref` leads: within a document, or to those that references name. Nothing is ever fetched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from jsonschema import Draft4Validator, Draft6Validator, Draft7Validator

from schema.registry.json.dialects import Draft, check_valid, draft_of
from schema.registry.json.text import pointer, shown
from schema.registry.parsed import InvalidSchema

ONE = frozenset(
    {
        *("additionalItems", "additionalProperties", "contains", "propertyNames", "not", "if", "then"),
        *("else", "items", "unevaluatedItems", "unevaluatedProperties"),
    }
)
LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
MAPS = frozenset(
    {"properties", "patternProperties", "definitions", "$defs", "dependentSchemas", "dependencies"}
)
"""Keywords that hold a schema, a list of schemas, schemas by name."""

_METASCHEMAS = {
    "http://json-schema.org/draft-04/schema": Draft4Validator,
    "http://json-schema.org/draft-06/schema": Draft6Validator,
    "http://json-schema.org/draft-07/schema": Draft7Validator,
}


@dataclass(eq=False, slots=True)
class Document:
    """A text that was read: its schemas' places, and the addresses that relative references start from."""

    name: str
    tree: Any
    draft: Draft
    base: str
    bases: dict[int, str] = field(default_factory=dict)
    places: dict[int, str] = field(default_factory=dict)
    schemas: list[dict[str, Any]] = field(default_factory=list)

    def place(self, schema: Any) -> str:
        """Where a schema of it is, as messages have it."""
        return f"{self.name}{self.places.get(id(schema), '#')}"


class Library:
    """A document and all that it refers to."""

    def __init__(self, tree: Any, imports: Mapping[str, Any]) -> None:
        """Raises InvalidSchema."""
        self._resources: dict[str, tuple[Document, Any]] = {}
        self._anchors: dict[tuple[str, str], tuple[Document, Any]] = {}
        self._named: dict[str, Document] = {}
        self.dynamic: dict[str, int] = {}
        """How often a `$dynamicAnchor` of this name is there; `$recursiveAnchor` under an empty name."""
        self.main = self._document("", tree, "")
        for name, other in imports.items():
            self._named[name] = self._document(name, other, joined(self.main.base, name) or name)
        for name, document in self._named.items():
            self._resources.setdefault(name, (document, document.tree))

    def _document(self, name: str, tree: Any, base: str) -> Document:
        document = Document(name, tree, draft_of(tree), base)
        self._resources.setdefault(base, (document, tree))
        self.survey(document, tree, base, ())
        document.base = document.bases.get(id(tree), base)
        return document

    def survey(self, document: Document, tree: Any, base: str, steps: tuple[Any, ...]) -> None:
        """Note each schema below one, with the address that it has. Raises InvalidSchema."""
        waiting = [(tree, base, steps)]
        while waiting:
            schema, base, steps = waiting.pop()
            if not isinstance(schema, dict) or id(schema) in document.bases:
                continue
            base = self._identified(document, schema, base)
            document.bases[id(schema)] = base
            document.places[id(schema)] = pointer(steps)
            document.schemas.append(schema)
            if steps and "$schema" in schema and draft_of(schema) is not document.draft:
                raise InvalidSchema(
                    f"{pointer(steps)}/$schema: a document is of one draft: leave it out there"
                )
            waiting += [(inner, base, (*steps, *way)) for way, inner in inside(schema)]

    def _identified(self, document: Document, schema: dict[str, Any], base: str) -> str:
        """Note what a schema is called; the address for what is inside."""
        old = document.draft <= Draft.D7
        if old and "$ref" in schema:
            return base
        given = schema.get("id" if document.draft is Draft.D4 else "$id")
        if isinstance(given, str):
            address, fragment = parted(joined(base, given))
            if fragment and old:
                self._anchors.setdefault((address, fragment), (document, schema))
            if not given.startswith("#"):
                base = address
                self._resources.setdefault(base, (document, schema))
        if not old:
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(schema.get(keyword), str):
                    self._anchors.setdefault((base, schema[keyword]), (document, schema))
            if isinstance(schema.get("$dynamicAnchor"), str):
                self.dynamic[schema["$dynamicAnchor"]] = self.dynamic.get(schema["$dynamicAnchor"], 0) + 1
            if schema.get("$recursiveAnchor") is True:
                self.dynamic[""] = self.dynamic.get("", 0) + 1
        return base

    def resolved(self, document: Document, schema: dict[str, Any], keyword: str) -> tuple[Document, Any]:
        """The schema that a reference of a schema leads to, with its document. Raises InvalidSchema."""
        ref = schema[keyword]
        place = f"{document.place(schema)}/{keyword}"
        if not isinstance(ref, str):
            raise InvalidSchema(f"{place}: {shown(ref)} is no reference: write a URI as text")
        address, fragment = parted(joined(document.bases[id(schema)], ref))
        found = self._resources.get(address) or self._by_name(ref) or self._metaschema(address)
        if found is None:
            there = ", ".join(self._named) or "none are given"
            raise InvalidSchema(
                f"{place}: {shown(ref)} is neither in the schema nor the name of a reference ({there}): "
                "nothing is fetched, so give the schema as a reference of that name"
            )
        target, base = self._within(*found, address, fragment)
        if not isinstance(target, dict | bool):
            raise InvalidSchema(f"{place}: {shown(ref)} leads to no schema: there is none at that place")
        if isinstance(target, dict) and id(target) not in found[0].bases:  # below a keyword that nobody knows
            check_valid(target, found[0].draft)
            steps = tuple(unquote(fragment).split("/")[1:])
            self.survey(found[0], target, base, steps)
        return found[0], target

    def _within(self, document: Document, root: Any, address: str, fragment: str) -> tuple[Any, str]:
        """What a fragment names, and the address for what is inside; None where it names nothing."""
        base = document.bases.get(id(root), address)
        if fragment and not fragment.startswith("/"):
            _, anchored = self._anchors.get((base, unquote(fragment)), (None, None))
            return anchored, base
        found = root
        for step in unquote(fragment).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = found.get(step)
            elif isinstance(found, list) and step.isdecimal() and int(step[:9]) < len(found):
                found = found[int(step)]
            else:
                return None, base
            base = document.bases.get(id(found), base) if isinstance(found, dict) else base
        return found, base

    def _by_name(self, ref: str) -> tuple[Document, Any] | None:
        """A reference's name as it stands: as Confluent's clients, which know no other addresses."""
        name = parted(ref)[0]
        document = self._named.get(name) or self._named.get(name.removeprefix("./"))
        return None if document is None else (document, document.tree)

    def _metaschema(self, address: str) -> tuple[Document, Any] | None:
        checker: Any = _METASCHEMAS.get(address)
        if checker is None:
            return None
        document = self._document(address, checker.META_SCHEMA, address)
        return document, document.tree


def inside(schema: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The schemas that a schema holds, each with the way to it."""
    for keyword, held in schema.items():
        if keyword in MAPS and isinstance(held, dict):
            yield from (((keyword, name), inner) for name, inner in held.items())
        elif keyword in LISTS and isinstance(held, list):
            yield from (((keyword, index), inner) for index, inner in enumerate(held))
        elif keyword in ONE:
            yield (keyword,), held


def joined(base: str, given: str) -> str:
    """A relative address made absolute. Raises InvalidSchema."""
    try:
        if given.startswith("#"):
            return parted(base)[0] + given
        return urljoin(base, given)
    except ValueError as error:
        raise InvalidSchema(f"{shown(given)} is no address: {error}") from None


def parted(address: str) -> tuple[str, str]:
    """An address without its fragment, and the fragment. Raises InvalidSchema."""
    try:
        before, fragment = urldefrag(address)
    except ValueError as error:
        raise InvalidSchema(f"{shown(address)} is no address: {error}") from None
    return before, fragment
