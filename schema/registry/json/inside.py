"""Properties and items: which schemas of a reader meet which of a writer's, by name and by place.

A content model is open where other properties (items) are whatever they like, closed where there are none,
partially open where a schema says what they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from schema.registry.json.facts import Facts, Nodes, of_item, of_property
from schema.registry.json.kinds import Path, difference
from schema.registry.json.nodes import Node
from schema.registry.json.values import Verdict
from schema.registry.parsed import Difference

ANYTHING: Nodes = frozenset()
"""What is demanded where nothing is."""


class Judge(Protocol):
    """Who compares pairs of schemas."""

    def wait(self, reader: Node, writer: Nodes, path: Path, wrap: Difference | None = None) -> None:
        """Compare a pair later. `wrap` is told too where it does not go."""

    def proves(self, reader: Node, writer: Nodes) -> bool:
        """Whether the reader takes all that the writer's schemas take, as far as that is to be told."""
        ...

    def empty(self, nodes: Nodes) -> bool:
        """Whether no value is taken by all of these, as far as that is to be told."""
        ...

    def takes(self, node: Node, value: Any) -> Verdict:
        """Whether a schema takes a value by itself."""
        ...

    def texts(self) -> Node:
        """The schema of text."""
        ...

    def spend(self, looks: int) -> None:
        """Schemas are looked at so often: ends the comparison where it is too much."""


def objects(reader: Node, facts: Facts, path: Path, judge: Judge) -> Iterator[Difference]:
    """What a reader demands of properties."""
    told = len(reader.properties) + len(facts.names) + len(reader.patterns)
    judge.spend(told * (facts.speaking_count + len(reader.patterns)))
    if reader.properties or reader.patterns or reader.additional is not None:
        for name in [*reader.properties, *sorted(facts.names - reader.properties.keys())]:
            yield from _property(reader, name, facts, path, judge)
        yield from _patterns(reader, facts, path, judge)
        if reader.additional is not None:
            yield from _additional(reader, reader.additional, facts, path, judge)
    if reader.names is not None:
        yield from _names(reader.names, facts, path, judge)


def _property(reader: Node, name: str, facts: Facts, path: Path, judge: Judge) -> Iterator[Difference]:
    demanded = of_property(reader, name, sure=False)
    before = facts.property(name) if demanded else ANYTHING
    if any(one.never for one in before):  # it is never there
        return
    new = name in reader.properties and all(name not in node.properties for node in facts.speaking)
    place: Path = ((path, "properties"), name)
    for one in demanded:
        wrap = None
        if one.never and name not in reader.properties:
            if not judge.empty(before):
                yield difference("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", place)
            continue
        if name not in reader.properties:
            wrap = difference("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", place)
        elif new and before:
            wrap = difference("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", place)
        elif new:
            if not judge.proves(one, ANYTHING):
                yield difference("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", place)
            continue
        judge.wait(one, before, place, wrap)


def _patterns(reader: Node, facts: Facts, path: Path, judge: Judge) -> Iterator[Difference]:
    """Names that no schema tells, by the reader's patterns."""
    for pattern, demanded in reader.patterns.items():
        place: Path = ((path, "patternProperties"), pattern)
        for before in facts.others(pattern, ()):
            if any(one.never for one in before):
                continue
            if before:
                wrap = difference("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", place)
                judge.wait(demanded, before, place, wrap)
            elif not judge.proves(demanded, ANYTHING):
                yield difference("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", place)


def _additional(reader: Node, demanded: Node, facts: Facts, path: Path, judge: Judge) -> Iterator[Difference]:
    """Names that no schema tells and no pattern of the reader has."""
    for before in facts.others(None, reader.patterns):
        if any(one.never for one in before):
            continue
        if demanded.never:
            if not judge.empty(before):
                yield difference("ADDITIONAL_PROPERTIES_REMOVED", path, "additionalProperties")
        elif before:
            judge.wait(demanded, before, (path, "additionalProperties"))
        elif not judge.proves(demanded, ANYTHING):
            yield difference("ADDITIONAL_PROPERTIES_NARROWED", path, "additionalProperties")


def _names(demanded: Node, facts: Facts, path: Path, judge: Judge) -> Iterator[Difference]:
    """`propertyNames`: of a closed writer each name, of others what they demand themselves."""
    if all(any(one.never for one in before) for before in facts.others(None, ())):
        there = [name for name in facts.names if not any(one.never for one in facts.property(name))]
        if all(judge.takes(demanded, name) for name in there):
            return
    before = [node.names for node in facts.nodes if node.names is not None]
    judge.wait(demanded, frozenset((*before, judge.texts())), (path, "propertyNames"))
    yield from ()


def arrays(reader: Node, facts: Facts, path: Path, judge: Judge) -> Iterator[Difference]:
    """What a reader demands of items."""
    told = max(len(node.prefix) for node in (reader, *facts.nodes))
    judge.spend(told * len(facts.nodes))
    if reader.prefix or reader.rest is not None:
        ended = False
        for index in range(told):
            before = facts.item(index)
            ended = any(one.never for one in before) or (
                facts.max_items is not None and facts.max_items <= index
            )
            if ended:  # there are not so many
                break
            yield from _item(reader, index, before, facts, path, judge)
        if not ended and (facts.max_items is None or facts.max_items > told) and reader.rest is not None:
            yield from _rest(reader, reader.rest, told, facts, path, judge)
    if reader.contains is not None:
        yield from _contains(reader, reader.contains, told, facts, path, judge)


def _item(
    reader: Node, index: int, before: Nodes, facts: Facts, path: Path, judge: Judge
) -> Iterator[Difference]:
    demanded = of_item(reader, index)
    place: Path = ((path, "items"), str(index))
    wrap = None
    if demanded is None:
        return
    if index >= len(reader.prefix):
        if demanded.never:
            if not judge.empty(before):
                yield difference("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", place)
            return
        wrap = difference("ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", place)
    elif all(index >= len(node.prefix) for node in facts.nodes):
        if not before:
            if not judge.proves(demanded, ANYTHING):
                yield difference("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", place)
            return
        wrap = difference("ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", place)
    judge.wait(demanded, before, place, wrap)


def _rest(
    reader: Node, demanded: Node, told: int, facts: Facts, path: Path, judge: Judge
) -> Iterator[Difference]:
    """Items behind all that have a place."""
    before = facts.item(told)
    keyword = "additionalItems" if told else "items"
    if any(one.never for one in before):
        return
    if demanded.never:
        if not judge.empty(before):
            yield difference("ADDITIONAL_ITEMS_REMOVED", path, keyword)
    elif before:
        judge.wait(demanded, before, (path, keyword))
    elif not judge.proves(demanded, ANYTHING):
        yield difference("ADDITIONAL_ITEMS_NARROWED" if told else "SCHEMA_ADDED", path, keyword)


def _contains(
    reader: Node, demanded: Node, told: int, facts: Facts, path: Path, judge: Judge
) -> Iterator[Difference]:
    have = [(node, node.contains) for node in facts.ordered if node.contains is not None]
    proven = [node for node, inner in have if judge.proves(demanded, frozenset((inner,)))]
    if reader.min_contains > 0 and all(node.min_contains < reader.min_contains for node in proven):
        every = facts.min_items >= reader.min_contains and all(
            judge.proves(demanded, facts.item(index)) for index in range(told + 1)
        )
        if not every:
            kind = "MIN_CONTAINS_INCREASED" if proven else "TYPE_CHANGED" if have else "MIN_CONTAINS_ADDED"
            yield difference(kind, path, "minContains" if proven else "contains")
    most = reader.max_contains
    if most is not None and (facts.max_items is None or facts.max_items > most):
        bounded = [
            node.max_contains
            for node, inner in have
            if node.max_contains is not None and judge.proves(inner, frozenset((demanded,)))
        ]
        if not bounded or min(bounded) > most:
            kind = "MAX_CONTAINS_DECREASED" if bounded else "MAX_CONTAINS_ADDED"
            yield difference(kind, path, "maxContains")
