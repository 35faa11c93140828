"""What is known of values that several schemas take at once: the writer's side of a comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from schema.registry.json.nodes import ATOMS, Node, Number
from schema.registry.json.patterns import matches
from schema.registry.json.values import Verdict, atom

Nodes = frozenset[Node]
"""Schemas that all take a value."""

NUMBERS = frozenset({"integer", "fraction"})


@dataclass(eq=False)
class Facts:
    """What such schemas demand together. `nodes` is closed: schemas that these demand are in it.

    `takes` tells whether a schema takes a value that is listed in one of them.
    """

    nodes: Nodes
    takes: Callable[[Node, Any], Verdict]

    @cached_property
    def ordered(self) -> list[Node]:
        """In one order each time."""
        return sorted(self.nodes, key=lambda node: node.order)

    @cached_property
    def never(self) -> bool:
        """Whether a schema takes nothing, as it says itself."""
        return any(node.never for node in self.nodes)

    @cached_property
    def types(self) -> frozenset[str]:
        """Types that a value may have, by `type`, bounds and `multipleOf`."""
        found = ATOMS.intersection(*(node.types for node in self.nodes))
        if any(Fraction(one).denominator == 1 for one in self.multiples):
            found -= {"fraction"}
        if not self._between(self.low, self.high):
            found -= NUMBERS
        elif "integer" in found and not self._between(self.whole_low, self.whole_high):
            found -= {"integer"}
        if self.max_length is not None and self.min_length > self.max_length:
            found -= {"string"}
        if self.max_items is not None and self.min_items > self.max_items:
            found -= {"array"}
        if self.max_properties is not None and self.min_properties > self.max_properties:
            found -= {"object"}
        return found

    @cached_property
    def values(self) -> list[Any] | None:
        """All values that are left, where they are counted."""
        listed = [node.values for node in self.ordered if node.values is not None]
        if not listed and not self.types <= {"null", "boolean"}:
            return None
        given = min(listed, key=len) if listed else (None, True, False)
        types = ATOMS.intersection(*(node.types for node in self.nodes))
        return [
            value
            for value in given
            if atom(value) in types and not any(self.takes(node, value) is False for node in self.ordered)
        ]

    @cached_property
    def low(self) -> tuple[Number, bool] | None:
        """The least number, and whether it is none itself."""
        bounds = [(node.minimum, False) for node in self.nodes if node.minimum is not None]
        bounds += [
            (node.exclusive_minimum, True) for node in self.nodes if node.exclusive_minimum is not None
        ]
        return max(bounds, default=None)

    @cached_property
    def high(self) -> tuple[Number, bool] | None:
        """The greatest number, and whether it is none itself."""
        bounds = [(node.maximum, False) for node in self.nodes if node.maximum is not None]
        bounds += [
            (node.exclusive_maximum, True) for node in self.nodes if node.exclusive_maximum is not None
        ]
        return min(bounds, default=None, key=lambda bound: (bound[0], not bound[1]))

    @cached_property
    def whole_low(self) -> tuple[Number, bool] | None:
        """The least integer."""
        if self.low is None:
            return None
        bound, without = self.low
        return (math.floor(bound) + 1 if without else math.ceil(bound)), False

    @cached_property
    def whole_high(self) -> tuple[Number, bool] | None:
        """The greatest integer."""
        if self.high is None:
            return None
        bound, without = self.high
        return (math.ceil(bound) - 1 if without else math.floor(bound)), False

    @staticmethod
    def _between(low: tuple[Number, bool] | None, high: tuple[Number, bool] | None) -> bool:
        if low is None or high is None:
            return True
        return low[0] < high[0] or (low[0] == high[0] and not low[1] and not high[1])

    @cached_property
    def whole(self) -> bool:
        """Whether numbers are integers."""
        return "fraction" not in self.types

    @cached_property
    def multiples(self) -> list[Number]:
        """Of each of these a number is a multiple."""
        return [node.multiple_of for node in self.ordered if node.multiple_of is not None]

    @cached_property
    def min_length(self) -> Number:
        """Characters at least."""
        return max((node.min_length for node in self.nodes), default=0)

    @cached_property
    def max_length(self) -> Number | None:
        """Characters at most."""
        return _least(node.max_length for node in self.nodes)

    @cached_property
    def min_items(self) -> Number:
        """Items at least; those that `contains` wants are some."""
        wanted = [node.min_contains for node in self.nodes if node.contains is not None]
        return max((*wanted, *(node.min_items for node in self.nodes)), default=0)

    @cached_property
    def max_items(self) -> Number | None:
        """Items at most; behind a closed end there are none."""
        ends = (len(node.prefix) for node in self.nodes if node.rest is not None and node.rest.never)
        return _least((*ends, *(node.max_items for node in self.nodes)))

    @cached_property
    def unique(self) -> bool:
        """Whether all items are different."""
        return any(node.unique for node in self.nodes) or (self.max_items is not None and self.max_items <= 1)

    @cached_property
    def required(self) -> frozenset[str]:
        """Names that an object has, those that others of them bring along too."""
        found: set[str] = set().union(*(node.required for node in self.nodes))
        brought = [node.dependent_required for node in self.nodes if node.dependent_required]
        before = -1
        while brought and before < len(found):
            before = len(found)
            found.update(*(needed for each in brought for name, needed in each.items() if name in found))
        return frozenset(found)

    @cached_property
    def min_properties(self) -> Number:
        """Properties at least."""
        return max((len(self.required), *(node.min_properties for node in self.nodes)))

    @cached_property
    def max_properties(self) -> Number | None:
        """Properties at most; a closed object has those that are named."""
        closed = (len(node.properties) for node in self.nodes if closes(node) and not node.patterns)
        return _least((*closed, *(node.max_properties for node in self.nodes)))

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of properties that schemas speak of, in order of nothing."""
        return frozenset().union(*(node.properties for node in self.nodes), self.required)

    @cached_property
    def speaking(self) -> list[Node]:
        """Schemas that say something of properties."""
        return [
            node for node in self.ordered if node.properties or node.patterns or node.additional is not None
        ]

    @cached_property
    def speaking_count(self) -> int:
        """What is looked at for one name: those, and their patterns."""
        return len(self.speaking) + sum(len(node.patterns) for node in self.speaking)

    def property(self, name: str) -> Nodes:
        """What is demanded of a property, where it is there."""
        return frozenset(one for node in self.speaking for one in of_property(node, name, sure=True))

    def item(self, index: int) -> Nodes:
        """What is demanded of an item, where there are so many."""
        return frozenset(one for node in self.nodes if (one := of_item(node, index)) is not None)

    def others(self, pattern: str | None, excluded: Iterable[str]) -> list[Nodes]:
        """What is demanded of a property of any name that is not told: one of these.

        The name matches `pattern`, and none of those that are excluded.
        """
        sure: set[Node] = set()
        choices: list[Node] | None = None
        for node in self.speaking:
            if pattern in node.patterns:
                sure.add(node.patterns[pattern])
                continue
            inner = [schema for one, schema in node.patterns.items() if one not in excluded]
            if not inner and node.additional is not None:
                sure.add(node.additional)
            elif inner and choices is None:
                choices = [*inner, node.additional if node.additional is not None else _ANYTHING]
        return [frozenset(sure)] if choices is None else [frozenset((*sure, one)) for one in choices]


_ANYTHING = Node(order=-1)


def closes(node: Node) -> bool:
    """Whether it takes no properties but those that it names or has patterns for."""
    return node.additional is not None and node.additional.never


def of_property(node: Node, name: str, *, sure: bool) -> list[Node]:
    """What a schema demands of a property: for `sure`, or perhaps, where a pattern cannot be matched."""
    found = [node.properties[name]] if name in node.properties else []
    perhaps = []
    for pattern, schema in node.patterns.items():
        matched = matches(pattern, name)
        if matched:
            found.append(schema)
        elif matched is None:
            perhaps.append(schema)
    if not found and node.additional is not None and not (perhaps and sure):
        found.append(node.additional)
    return found if sure else [*found, *perhaps]


def of_item(node: Node, index: int) -> Node | None:
    """What a schema demands of an item."""
    return node.prefix[index] if index < len(node.prefix) else node.rest


def closed(nodes: Iterable[Node], denied: Callable[[Node], Node]) -> Nodes:
    """The schemas with those that they demand: by `allOf`, references, met conditions, required names."""
    found: dict[Node, None] = {}
    waiting = [*nodes]
    while waiting:
        while waiting:
            node = waiting.pop()
            if node not in found:
                found[node] = None
                waiting += node.all_of
        required = set().union(*(node.required for node in found))
        for node in found:
            waiting += [one for name, one in node.dependent.items() if name in required]
            if node.if_ is not None:
                met, unmet = node.if_ in found, denied(node.if_) in found
                waiting += [node.then] if met and node.then is not None else []
                waiting += [node.else_] if unmet and node.else_ is not None else []
        waiting = [node for node in waiting if node not in found]
    return frozenset(found)


def _least(bounds: Iterable[Number | None]) -> Number | None:
    return min((bound for bound in bounds if bound is not None), default=None)
