"""Which schemas of two graphs are the same: each such set becomes one node."""

from __future__ import annotations

from typing import Any

from schema.registry.json_nodes import Node, reachable

ROUNDS_MAX = 200
"""Levels over which schemas are told apart; in longer chains of references none is another's equal."""


def merged(*roots: Node) -> tuple[Node, ...]:
    """The roots in a graph in which schemas that demand the same are one node."""
    nodes = reachable(*roots)
    classes = _classes(nodes)
    made: dict[int, Node] = {}
    first: dict[int, Node] = {}
    for node in nodes:
        first.setdefault(classes[node], node)
    for number in first:
        made[number] = Node(order=number)
    for number, node in first.items():
        copy = node.mapped(lambda one: made[classes[one]], number)
        for name in Node.__slots__:
            setattr(made[number], name, getattr(copy, name))
    return tuple(made[classes[root]] for root in roots)


def _classes(nodes: list[Node]) -> dict[Node, int]:
    """By what schemas demand, then by what those inside demand, until nothing is told apart any more."""
    classes = _numbered({node: node.local() for node in nodes})
    inside = {node: [*node.children()] for node in nodes}
    count = len(set(classes.values()))
    for _ in range(ROUNDS_MAX):
        finer = _numbered({node: (classes[node], *(classes[one] for one in inside[node])) for node in nodes})
        if (now := len(set(finer.values()))) == count:
            return classes
        classes, count = finer, now
    return {node: number for number, node in enumerate(nodes)}


def _numbered(keys: dict[Node, Any]) -> dict[Node, int]:
    numbers: dict[Any, int] = {}
    return {node: numbers.setdefault(key, len(numbers)) for node, key in keys.items()}
