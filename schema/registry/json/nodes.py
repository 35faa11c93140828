"""A JSON Schema as a graph: each schema is a node, and references are edges like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, TypeAlias

from schema.registry.json.text import written

ATOMS = frozenset({"null", "boolean", "integer", "fraction", "string", "array", "object"})
"""Types of values, none of which is part of another; `number` is the integers and the fractions."""

NOTES = ("confluent:tags", "confluent.tags", "x-floe-redact", "default")
"""Keywords that say something to those who redact (schema/redaction)."""

Number: TypeAlias = int | Decimal


@dataclass(eq=False, slots=True, kw_only=True)
class Node:
    """What a schema demands, in one form for all drafts. Without a value: nothing is demanded."""

    order: int = 0
    place: str = "#"
    never: bool = False
    types: frozenset[str] = ATOMS
    values: tuple[Any, ...] | None = None
    known: frozenset[Any] | None = None
    """The values, frozen."""
    kinds: frozenset[str] = frozenset()
    """What is listed there: `object`, `array` and the like, as `frozen` calls them."""
    maximum: Number | None = None
    exclusive_maximum: Number | None = None
    minimum: Number | None = None
    exclusive_minimum: Number | None = None
    multiple_of: Number | None = None
    max_length: Number | None = None
    min_length: Number = 0
    pattern: str | None = None
    max_items: Number | None = None
    min_items: Number = 0
    unique: bool = False
    min_contains: Number = 1
    max_contains: Number | None = None
    max_properties: Number | None = None
    min_properties: Number = 0
    required: frozenset[str] = frozenset()
    dependent_required: dict[str, frozenset[str]] = field(default_factory=dict)
    opaque: tuple[str, ...] = ()
    """Keywords that are not looked into: they are the same or they are not."""
    prefix: tuple[Node, ...] = ()
    rest: Node | None = None
    contains: Node | None = None
    properties: dict[str, Node] = field(default_factory=dict)
    patterns: dict[str, Node] = field(default_factory=dict)
    additional: Node | None = None
    names: Node | None = None
    dependent: dict[str, Node] = field(default_factory=dict)
    all_of: tuple[Node, ...] = ()
    any_of: tuple[Node, ...] = ()
    one_of: tuple[Node, ...] = ()
    not_: Node | None = None
    if_: Node | None = None
    then: Node | None = None
    else_: Node | None = None
    hidden: tuple[Node, ...] = ()
    """Schemas of opaque keywords."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What demands nothing: those of NOTES that stand there, also beside a `$ref` of an old draft."""

    def here(self) -> Iterator[Node]:
        """Schemas that say something of the same value."""
        yield from (*self.all_of, *self.any_of, *self.one_of, *self.dependent.values())
        yield from (one for one in (self.not_, self.if_, self.then, self.else_) if one is not None)

    def children(self) -> Iterator[Node]:
        """All schemas inside, in an order that `local` tells."""
        yield from (*self.prefix, *self.all_of, *self.any_of, *self.one_of, *self.hidden)
        for by_name in (self.properties, self.patterns, self.dependent):
            yield from (by_name[name] for name in sorted(by_name))
        yield from (one for one in self._single() if one is not None)

    def _single(self) -> tuple[Node | None, ...]:
        return (
            *(self.rest, self.contains, self.additional, self.names),
            *(self.not_, self.if_, self.then, self.else_),
        )

    def local(self) -> tuple[Any, ...]:
        """What it demands beside the schemas inside; equal ones demand the same of equal schemas."""
        numbers = (
            *(self.maximum, self.exclusive_maximum, self.minimum, self.exclusive_minimum, self.multiple_of),
            *(self.max_length, self.min_length, self.max_items, self.min_items, self.min_contains),
            *(self.max_contains, self.max_properties, self.min_properties),
        )
        names = tuple(tuple(sorted(by)) for by in (self.properties, self.patterns, self.dependent))
        counts = tuple(map(len, (self.prefix, self.all_of, self.any_of, self.one_of, self.hidden)))
        return (
            *(self.never, self.types, self.known, numbers, self.pattern, self.unique, self.required, names),
            *(frozenset(self.dependent_required.items()), self.opaque, counts),
            tuple(one is None for one in self._single()),
        )

    def mapped(self, to: Callable[[Node], Node], order: int) -> Node:
        """A copy whose schemas inside are others."""

        def one(node: Node | None) -> Node | None:
            return None if node is None else to(node)

        def many(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
            return tuple(to(node) for node in nodes)

        def named(nodes: dict[str, Node]) -> dict[str, Node]:
            return {name: to(node) for name, node in nodes.items()}

        changes: dict[str, Any] = {
            **{key: many(getattr(self, key)) for key in ("prefix", "all_of", "any_of", "one_of", "hidden")},
            **{key: named(getattr(self, key)) for key in ("properties", "patterns", "dependent")},
            **{key: one(getattr(self, key)) for key in ("rest", "contains", "additional", "names")},
            **{key: one(getattr(self, key)) for key in ("not_", "if_", "then", "else_")},
        }
        return replace(self, order=order, **changes)


def opaque(keyword: str, value: Any) -> str:
    """A keyword that is not understood, as text."""
    return f"{keyword} {written(value, ordered=True)}"


def reachable(*roots: Node) -> list[Node]:
    """The nodes and all below them, each once."""
    found: dict[Node, None] = {}
    waiting = list(reversed(roots))
    while waiting:
        node = waiting.pop()
        if node not in found:
            found[node] = None
            waiting += node.children()
    return [*found]
