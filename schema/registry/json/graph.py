"""A schema's text becomes nodes: keywords of all drafts in one form, references followed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schema.registry.json.dialects import Draft
from schema.registry.json.nodes import ATOMS, NOTES, Node, opaque, reachable
from schema.registry.json.patterns import PATTERNS_MAX, wrong_with
from schema.registry.json.refs import Document, Library
from schema.registry.json.text import frozen, shown
from schema.registry.parsed import InvalidSchema

CHAIN_MAX = 100
"""Schemas in a chain that all say something of one value: by `$ref`, `allOf` and the like."""

_SINCE_6 = ("const", "contains", "propertyNames")
_SINCE_7 = ("if", "then", "else")
_SINCE_2019 = (
    *("dependentRequired", "dependentSchemas", "minContains", "maxContains"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
_KNOWN_SINCE = {
    **dict.fromkeys(_SINCE_6, Draft.D6),
    **dict.fromkeys(_SINCE_7, Draft.D7),
    **dict.fromkeys(_SINCE_2019, Draft.D2019),
    "prefixItems": Draft.D2020,
}
_NUMBERS = {
    "maximum": "maximum",
    "minimum": "minimum",
    "exclusiveMaximum": "exclusive_maximum",
    "exclusiveMinimum": "exclusive_minimum",
    "multipleOf": "multiple_of",
    "maxLength": "max_length",
    "minLength": "min_length",
    "maxItems": "max_items",
    "minItems": "min_items",
    "minContains": "min_contains",
    "maxContains": "max_contains",
    "maxProperties": "max_properties",
    "minProperties": "min_properties",
}


def graph(tree: Any, imports: Mapping[str, Any], *, everything: bool = False) -> Node:
    """The node of a document; with `everything` also what nothing refers to is looked at.

    Raises InvalidSchema for references that lead nowhere or only to themselves, and for what is no pattern.
    """
    library = Library(tree, imports)
    return _Builder(library).built(everything=everything)


class _Builder:
    """Makes the nodes of one library."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._nodes: dict[int, Node] = {}
        self._patterns: set[str] = set()
        self._waiting: list[tuple[Document, dict[str, Any], Node]] = []

    def built(self, *, everything: bool) -> Node:
        main = self._library.main
        root = self._node(main, main.tree)
        also = [self._node(main, schema) for schema in main.schemas] if everything else []
        while self._waiting:
            self._fill(*self._waiting.pop())
        _check_progress(reachable(root, *also))
        return root

    def _node(self, document: Document, schema: Any) -> Node:
        if isinstance(schema, bool):
            return Node(never=not schema)
        found = self._nodes.get(id(schema))
        if found is None:
            found = self._nodes[id(schema)] = Node(place=document.place(schema))
            if isinstance(schema, dict):
                self._waiting.append((document, schema, found))
        return found

    def _fill(self, document: Document, schema: dict[str, Any], node: Node) -> None:
        node.notes = {name: schema[name] for name in NOTES if name in schema}
        if document.draft <= Draft.D7 and "$ref" in schema:  # all beside it is ignored there
            node.all_of = (self._target(document, schema, "$ref"),)
            return
        said = {key: value for key, value in schema.items() if document.draft >= _KNOWN_SINCE.get(key, 0)}
        node.types = _types(said.get("type"))
        node.values = _values(said)
        node.known = None if node.values is None else frozenset(map(frozen, node.values))
        node.kinds = frozenset(kind for kind, _ in node.known or ())
        for keyword, name in _NUMBERS.items():
            if keyword in said and not isinstance(said[keyword], bool):
                setattr(node, name, said[keyword])
        if document.draft is Draft.D4:
            _before_draft_6(said, node)
        node.unique = said.get("uniqueItems") is True
        node.required = frozenset(said.get("required", ()))
        node.pattern = said.get("pattern")
        for pattern in (
            *((node.pattern,) if node.pattern is not None else ()),
            *said.get("patternProperties", ()),
        ):
            self._patterns.add(pattern)
            if len(self._patterns) > PATTERNS_MAX:
                raise InvalidSchema(f"{node.place}: more than {PATTERNS_MAX} patterns in one schema")
            if why := wrong_with(pattern):
                raise InvalidSchema(f"{node.place}: pattern {shown(pattern)} is none: {why}")
        self._objects(document, said, node)
        self._arrays(document, said, node)
        self._combined(document, said, node)
        self._references(document, said, schema, node)
        self._unevaluated(document, said, node)

    def _objects(self, document: Document, said: dict[str, Any], node: Node) -> None:
        node.properties = self._by_name(document, said.get("properties", {}))
        node.patterns = self._by_name(document, said.get("patternProperties", {}))
        node.additional = self._one(document, said, "additionalProperties")
        node.names = self._one(document, said, "propertyNames")
        needed = dict(said.get("dependentRequired", {}))
        schemas = dict(said.get("dependentSchemas", {}))
        if document.draft <= Draft.D7:
            for name, held in said.get("dependencies", {}).items():
                (needed if isinstance(held, list) else schemas)[name] = held
        node.dependent_required = {name: frozenset(names) for name, names in needed.items()}
        node.dependent = self._by_name(document, schemas)

    def _arrays(self, document: Document, said: dict[str, Any], node: Node) -> None:
        items, prefix, rest = said.get("items"), said.get("prefixItems", []), "items"
        if isinstance(items, list):
            prefix, rest = items, "additionalItems"
        node.prefix = tuple(self._node(document, one) for one in prefix)
        node.rest = self._one(document, said, rest)
        node.contains = self._one(document, said, "contains")

    def _combined(self, document: Document, said: dict[str, Any], node: Node) -> None:
        node.all_of = self._many(document, said, "allOf")
        node.any_of = self._many(document, said, "anyOf")
        node.one_of = self._many(document, said, "oneOf")
        if node.any_of and node.one_of:  # one of them in each node
            node.all_of += (Node(one_of=node.one_of, place=node.place),)
            node.one_of = ()
        node.not_ = self._one(document, said, "not")
        node.if_ = self._one(document, said, "if")
        if node.if_ is not None:
            node.then, node.else_ = self._one(document, said, "then"), self._one(document, said, "else")

    def _references(
        self, document: Document, said: dict[str, Any], schema: dict[str, Any], node: Node
    ) -> None:
        dynamic = self._library.dynamic
        if "$ref" in said:
            node.all_of += (self._target(document, schema, "$ref"),)
        if document.draft is Draft.D2019 and "$recursiveRef" in said:
            node.all_of += (self._target(document, schema, "$recursiveRef"),)
            if dynamic.get("", 0):
                node.opaque += (opaque("$recursiveRef", node.place),)
        if document.draft is Draft.D2020 and "$dynamicRef" in said:
            target = self._target(document, schema, "$dynamicRef")
            if dynamic.get(str(said["$dynamicRef"]).partition("#")[2], 0) > 1:
                node.opaque += (opaque("$dynamicRef", node.place),)
            else:
                node.all_of += (target,)

    def _unevaluated(self, document: Document, said: dict[str, Any], node: Node) -> None:
        """Where no other schema says something of the value, nothing else can have evaluated anything."""
        alone = next(node.here(), None) is None
        for keyword in ("unevaluatedProperties", "unevaluatedItems"):
            held = self._one(document, said, keyword)
            if held is None or (not held.never and said[keyword] in (True, {})):
                continue
            if not alone or (keyword == "unevaluatedItems" and node.contains is not None):
                node.opaque += (keyword,)
                node.hidden += (held,)
            elif keyword == "unevaluatedProperties":
                node.additional = node.additional or held
            else:
                node.rest = node.rest or held

    def _target(self, document: Document, schema: dict[str, Any], keyword: str) -> Node:
        return self._node(*self._library.resolved(document, schema, keyword))

    def _one(self, document: Document, said: dict[str, Any], keyword: str) -> Node | None:
        return self._node(document, said[keyword]) if keyword in said else None

    def _many(self, document: Document, said: dict[str, Any], keyword: str) -> tuple[Node, ...]:
        return tuple(self._node(document, one) for one in said.get(keyword, ()))

    def _by_name(self, document: Document, held: dict[str, Any]) -> dict[str, Node]:
        return {name: self._node(document, one) for name, one in held.items()}


def _types(given: Any) -> frozenset[str]:
    if given is None:
        return ATOMS
    named = {given} if isinstance(given, str) else set(given)
    if "number" in named:
        named = named - {"number"} | {"integer", "fraction"}
    return frozenset(named)


def _values(said: dict[str, Any]) -> tuple[Any, ...] | None:
    """Those of `enum`, of which `const` leaves one; both together become a list of few."""
    if "const" not in said:
        return tuple(said["enum"]) if "enum" in said else None
    const = frozen(said["const"])
    return (said["const"],) if "enum" not in said or const in map(frozen, said["enum"]) else ()


def _before_draft_6(said: dict[str, Any], node: Node) -> None:
    """`exclusiveMaximum` says there how `maximum` is meant."""
    if said.get("exclusiveMaximum") is True:
        node.exclusive_maximum, node.maximum = node.maximum, None
    if said.get("exclusiveMinimum") is True:
        node.exclusive_minimum, node.minimum = node.minimum, None


def _check_progress(nodes: list[Node]) -> None:
    """Refuse schemas that say of a value what they say of it, and chains of them that are too long."""
    heights: dict[Node, int] = {}
    for first in nodes:
        way: list[Node] = [first] if first not in heights else []
        entered: set[Node] = set()
        while way:
            node = way[-1]
            below = [*node.here()]
            if node not in entered:
                entered.add(node)
                for one in below:
                    if one in entered and one not in heights:
                        raise InvalidSchema(
                            f"{one.place}: it refers to itself for the same value: let it do so below a "
                            "property or an item"
                        )
                way += [one for one in below if one not in heights]
                continue
            way.pop()
            heights[node] = 1 + max((heights[one] for one in below), default=0)
            if heights[node] > CHAIN_MAX:
                raise InvalidSchema(
                    f"{node.place}: more than {CHAIN_MAX} schemas in a chain that say something of one value"
                )
