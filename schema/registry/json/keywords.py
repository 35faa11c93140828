"""What a reader's keywords demand of a value itself, and whether the writer's schemas warrant it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from schema.registry.json.facts import NUMBERS, Facts
from schema.registry.json.kinds import Path, difference
from schema.registry.json.nodes import Node, Number
from schema.registry.parsed import Difference


def plain(reader: Node, facts: Facts, path: Path) -> Iterator[Difference]:
    """Types, listed values, bounds of all kinds."""
    missing = facts.types - reader.types
    if reader.never:
        yield difference("TYPE_CHANGED", path)
    elif missing:
        yield difference(type_kind(reader, missing), path)
    elif reader.values is not None:
        yield difference("TYPE_CHANGED", path, "enum")
    else:
        types = facts.types & reader.types
        if types & NUMBERS:
            yield from _numbers(reader, facts, path)
        if "string" in types:
            yield from _texts(reader, facts, path)
        if "array" in types:
            yield from _arrays(reader, facts, path)
        if "object" in types:
            yield from _objects(reader, facts, path)


def type_kind(reader: Node, missing: frozenset[str]) -> str:
    """As Confluent's registry calls it that a reader lacks these types."""
    if missing == {"fraction"} and "integer" in reader.types:
        return "TYPE_NARROWED"
    return "SUM_TYPE_NARROWED" if len(reader.types - {"fraction"}) > 1 else "TYPE_CHANGED"


def _numbers(reader: Node, facts: Facts, path: Path) -> Iterator[Difference]:
    low, high = facts.low, facts.high
    if facts.whole:  # 9 at most is less than 10
        low, high = facts.whole_low, facts.whole_high
    if (most := reader.maximum) is not None and (high is None or high[0] > most):
        yield _moved(facts, "MAXIMUM", "DECREASED", lambda node: node.maximum, path, "maximum")
    if (end := reader.exclusive_maximum) is not None and (
        high is None or (high[0], not high[1]) > (end, False)
    ):
        how = ("EXCLUSIVE_MAXIMUM", "DECREASED")
        yield _moved(facts, *how, lambda node: node.exclusive_maximum, path, "exclusiveMaximum")
    if (least := reader.minimum) is not None and (low is None or low[0] < least):
        yield _moved(facts, "MINIMUM", "INCREASED", lambda node: node.minimum, path, "minimum")
    if (end := reader.exclusive_minimum) is not None and (low is None or (low[0], low[1]) < (end, True)):
        how = ("EXCLUSIVE_MINIMUM", "INCREASED")
        yield _moved(facts, *how, lambda node: node.exclusive_minimum, path, "exclusiveMinimum")
    if reader.multiple_of is not None and not _divided(reader.multiple_of, facts):
        yield difference(_multiple_kind(reader.multiple_of, facts), path, "multipleOf")


def _divided(step: Number, facts: Facts) -> bool:
    steps = [*facts.multiples, *([1] if facts.whole else [])]
    return any((Fraction(one) / Fraction(step)).denominator == 1 for one in steps)


def _multiple_kind(step: Number, facts: Facts) -> str:
    if not facts.multiples:
        return "MULTIPLE_OF_ADDED"
    expanded = all((Fraction(step) / Fraction(one)).denominator == 1 for one in facts.multiples)
    return "MULTIPLE_OF_EXPANDED" if expanded else "MULTIPLE_OF_CHANGED"


def _texts(reader: Node, facts: Facts, path: Path) -> Iterator[Difference]:
    if _above(facts.max_length, reader.max_length):
        yield _moved(facts, "MAX_LENGTH", "DECREASED", lambda node: node.max_length, path, "maxLength")
    if facts.min_length < reader.min_length:
        yield _moved(
            facts, "MIN_LENGTH", "INCREASED", lambda node: node.min_length or None, path, "minLength"
        )
    patterns = {node.pattern for node in facts.nodes if node.pattern is not None}
    if reader.pattern is not None and reader.pattern not in patterns:
        yield difference("PATTERN_CHANGED" if patterns else "PATTERN_ADDED", path, "pattern")


def _arrays(reader: Node, facts: Facts, path: Path) -> Iterator[Difference]:
    if _above(facts.max_items, reader.max_items):
        yield _moved(facts, "MAX_ITEMS", "DECREASED", lambda node: node.max_items, path, "maxItems")
    if facts.min_items < reader.min_items:
        yield _moved(facts, "MIN_ITEMS", "INCREASED", lambda node: node.min_items or None, path, "minItems")
    if reader.unique and not facts.unique:
        yield difference("UNIQUE_ITEMS_ADDED", path, "uniqueItems")


def _objects(reader: Node, facts: Facts, path: Path) -> Iterator[Difference]:
    if _above(facts.max_properties, reader.max_properties):
        how = ("MAX_PROPERTIES", "DECREASED")
        yield _moved(facts, *how, lambda node: node.max_properties, path, "maxProperties")
    if facts.min_properties < reader.min_properties:
        how = ("MIN_PROPERTIES", "INCREASED")
        yield _moved(facts, *how, lambda node: node.min_properties or None, path, "minProperties")
    for name in sorted(reader.required - facts.required):
        new = name in reader.properties and all(name not in node.properties for node in facts.nodes)
        if new and facts.property(name):
            yield difference("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path, "properties", name)
        else:
            yield difference("REQUIRED_ATTRIBUTE_ADDED", path, "required", name)
    for name, needed in reader.dependent_required.items():
        yield from _dependency(name, needed, facts, path)


def _dependency(name: str, needed: frozenset[str], facts: Facts, path: Path) -> Iterator[Difference]:
    before = [node.dependent_required[name] for node in facts.nodes if name in node.dependent_required]
    given = facts.required.union(*before)
    if needed <= given or any(one.never for one in facts.property(name)):
        return
    if not before:
        kind = "DEPENDENCY_ARRAY_ADDED"
    else:
        kind = (
            "DEPENDENCY_ARRAY_EXTENDED"
            if needed >= frozenset().union(*before)
            else "DEPENDENCY_ARRAY_CHANGED"
        )
    yield difference(kind, path, "dependencies", name)


def _above(writer: Number | None, reader: Number | None) -> bool:
    return reader is not None and (writer is None or writer > reader)


def _moved(
    facts: Facts, name: str, way: str, of: Callable[[Node], Number | None], path: Path, keyword: str
) -> Difference:
    """A bound that the writer has not at all, or another one."""
    had = any(of(node) is not None for node in facts.nodes)
    return difference(f"{name}_{way if had else 'ADDED'}", path, keyword)
