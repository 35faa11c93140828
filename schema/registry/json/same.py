"""Which schemas of two graphs are the same: each such set becomes one node."""

from __future__ import annotations

from typing import Any

from schema.registry.json.nodes import Node, reachable

MOVES_MAX = 2_000_000
"""How often schemas are told apart in one comparison; beyond, none counts as another's equal."""


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
    """By what schemas demand, then by what those inside demand, until nothing is told apart any more.

    Only what holds a schema that was told apart is looked at again.
    """
    inside = {node: [*node.children()] for node in nodes}
    above: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node in nodes:
        for one in inside[node]:
            above[one].append(node)
    classes = _numbered({node: node.local() for node in nodes})
    members: dict[int, set[Node]] = {}
    for node, number in classes.items():
        members.setdefault(number, set()).add(node)
    waiting, moves = [*nodes], 0
    while waiting:
        apart = _told_apart(waiting, classes, members, inside)
        for group in apart:
            number = len(members)
            members[classes[group[0]]].difference_update(group)
            members[number] = set(group)
            classes.update(dict.fromkeys(group, number))
        moves += sum(map(len, apart))
        if moves > MOVES_MAX:
            return {node: number for number, node in enumerate(nodes)}
        waiting = [*dict.fromkeys(one for group in apart for node in group for one in above[node])]
    return classes


def _told_apart(
    waiting: list[Node],
    classes: dict[Node, int],
    members: dict[int, set[Node]],
    inside: dict[Node, list[Node]],
) -> list[list[Node]]:
    """Of the schemas that are looked at again, groups that no longer belong to their class.

    Those of a class that are not looked at are still alike: who is like them stays.
    """
    by_class: dict[int, dict[Node, None]] = {}
    for node in waiting:
        by_class.setdefault(classes[node], {})[node] = None
    apart: list[list[Node]] = []
    for number, looked_at in by_class.items():
        rest = next((node for node in members[number] if node not in looked_at), None)
        groups: dict[tuple[int, ...], list[Node]] = {}
        for node in looked_at:
            groups.setdefault(tuple(classes[one] for one in inside[node]), []).append(node)
        if rest is not None:
            groups.pop(tuple(classes[one] for one in inside[rest]), None)
        else:
            del groups[max(groups, key=lambda key: len(groups[key]))]
        apart += groups.values()
    return apart


def _numbered(keys: dict[Node, Any]) -> dict[Node, int]:
    numbers: dict[Any, int] = {}
    return {node: numbers.setdefault(key, len(numbers)) for node, key in keys.items()}
