"""Are the bytes of a record JSON that its schema takes? And where, and why, if they are not.

Work is bounded by the record's bytes, whatever the schema: LOOKS_PER_BYTE. Patterns are matched by RE2.
What cannot be judged is refused, and says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from schema.registry.json.nodes import Node
from schema.registry.json.text import read, shown
from schema.registry.json.values import PATTERNS_PER_LOOK, Checks, Look, TooMuch, atom, both
from schema.registry.parsed import InvalidSchema

LOOKS_SPARE = 1_000
LOOKS_PER_BYTE = 8
"""Schemas that are held against parts of one record: so many, and so many more for each of its bytes. What
takes longer, as a part is large, counts as several (values.py).
"""

RECORD_BYTES_MAX = 64 << 20
"""Bytes of one record's text."""

STEPS_MAX = 1_000
"""Schemas on the way to what is wrong: a path of that many is told."""

_NAMED_MAX = 5
_NOT_JUDGED = "cannot be judged"
_PIECE = 40  # characters of a name in a path


class Judge:
    """Judges records by one schema. Thread-safe."""

    def __init__(self, root: Node) -> None:
        self._root = root
        self._checks: dict[Node, Checks] = {}

    def read(self, payload: bytes) -> Any:
        """The value of a record that the schema takes, numbers with a fraction as Decimals.

        Raises ValueError, which says why it is none.
        """
        value = parsed(payload)
        self.look_at(value, len(payload))
        return value

    def look_at(self, value: Any, size: int) -> Look:
        """What knows which schemas take which parts of a value of so many bytes, as long as none of them is
        changed or forgotten. Raises ValueError, as `read`.
        """
        look = Look(LOOKS_SPARE + LOOKS_PER_BYTE * size, self._checks)
        try:
            verdict = look.accepts(self._root, value)
            if verdict is None:
                raise ValueError(_undecided(why(look, self._root, value)))
            if not verdict:
                raise ValueError(why(look, self._root, value))
        except (TooMuch, RecursionError):
            raise ValueError(
                "too much to judge: the schema holds too many alternatives against each value"
            ) from None
        return look

    def problem(self, payload: bytes) -> str | None:
        """Why the record is none of the schema's; None: it is one."""
        try:
            self.read(payload)
        except ValueError as error:
            return str(error)
        return None


def parsed(payload: bytes) -> Any:
    """The value that bytes of JSON text are. Raises ValueError, also for a name twice, NaN and the like."""
    try:
        text = str(payload, "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"no JSON: invalid UTF-8 at byte {error.start}") from None
    try:
        value = read(text, RECORD_BYTES_MAX)
    except InvalidSchema as error:
        raise ValueError(f"no JSON that is taken: {error}") from None
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError:
            raise ValueError("half a surrogate pair (\\ud800 to \\udfff alone) is no character") from None
    return value


def why(look: Look, node: Node, value: Any) -> str:
    """Why the schema does not take the value: the place, by names and numbers, and what is wrong there."""
    path, reason = "", _here(look, node, value)
    for _ in range(STEPS_MAX):
        if reason is not None:
            break
        found = [*_further(look, node, value)]
        if not found:
            reason = _together(look, node, value)
            break
        sure = (each for each in found if look.accepts(each[1], each[2]) is False)
        step, node, value = next(sure, found[0])
        path += step
        reason = _here(look, node, value)
    told = reason or f"is not what the schema demands ({node.place})"
    return f"field `{path.lstrip('.')}`: {told}" if path else told


def _undecided(told: str) -> str:
    """Where alternatives are undecided, no place is the one to blame."""
    if _NOT_JUDGED in told:
        return told
    return f"{_NOT_JUDGED}: whether it fits depends on keywords that Floe does not apply (docs/schemas.md)"


def _here(look: Look, node: Node, value: Any) -> str | None:
    """What is wrong with the value itself, whatever is inside."""
    kind = atom(value)
    if node.never:
        return "nothing may stand here: the schema allows no such property or item"
    if kind not in node.types:
        return f"is {_kind(kind)}, and not {' or '.join(map(_kind, sorted(node.types)))}"
    if node.known is not None and look.forms.of(value) not in node.known:
        listed = ", ".join(shown(one)[:_PIECE] for one in (node.values or ())[:_NAMED_MAX])
        return f"{shown(value)} is none of the listed values: {listed}"
    for what, bad in _bounds(look, node, kind, value):
        if bad:
            return f"{shown(value)[:_PIECE]} breaks {what}"
    if kind == "object":
        missing = sorted(node.required - value.keys())
        for name in both(node.dependent_required, value):
            missing += sorted(node.dependent_required[name] - value.keys())
        if missing:
            more = f" and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
            named = ", ".join(f"`{name[:_PIECE]}`" for name in missing[:_NAMED_MAX])
            return f"property {named}{more} is missing"
    return None


def _bounds(look: Look, node: Node, kind: str, value: Any) -> Iterator[tuple[str, bool]]:
    """Each bound of the schema for a value of this type, and whether the value breaks it."""
    if kind in ("integer", "fraction"):
        yield f"maximum {node.maximum}", node.maximum is not None and value > node.maximum
        yield f"minimum {node.minimum}", node.minimum is not None and value < node.minimum
        above, below = node.exclusive_maximum, node.exclusive_minimum
        yield f"exclusiveMaximum {above}", above is not None and value >= above
        yield f"exclusiveMinimum {below}", below is not None and value <= below
        factor = node.multiple_of
        yield f"multipleOf {factor}", factor is not None and Fraction(value) % Fraction(factor) != 0
    elif kind == "string":
        yield from _sizes("Length", len(value), node.min_length, node.max_length)
        if node.pattern is not None:
            yield f"pattern {shown(node.pattern)}", look.matches(node.pattern, value) is False
    elif kind == "array":
        yield from _sizes("Items", len(value), node.min_items, node.max_items)
        yield "uniqueItems", node.unique and not look.forms.different(value)
    elif kind == "object":
        yield from _sizes("Properties", len(value), node.min_properties, node.max_properties)


def _sizes(what: str, size: int, least: Any, most: Any) -> Iterator[tuple[str, bool]]:
    yield f"min{what} {least} with {size}", size < least
    yield f"max{what} {most} with {size}", most is not None and size > most


def _further(look: Look, node: Node, value: Any) -> Iterator[tuple[str, Node, Any]]:
    """Where the schema leads to a part, or another schema, that is not taken: the step, and both."""
    for step, one, part in _inside(look, node, value):
        if look.accepts(one, part) is not True:
            yield step, one, part
    for one in node.all_of:
        if look.accepts(one, value) is not True:
            yield "", one, value
    if node.if_ is not None:
        met = look.accepts(node.if_, value)
        then = {True: node.then, False: node.else_, None: None}[met]
        if then is not None and look.accepts(then, value) is not True:
            yield "", then, value
    for several in (node.any_of, node.one_of):
        if not any(look.accepts(one, value) for one in several):
            fitting = [one for one in several if atom(value) in one.types and not one.never]
            if len(fitting) == 1:  # as of a schema, or null
                yield "", fitting[0], value


def _inside(look: Look, node: Node, value: Any) -> Iterator[tuple[str, Node, Any]]:
    if isinstance(value, list):
        for at, item in enumerate(value):
            one = node.prefix[at] if at < len(node.prefix) else node.rest
            if one is not None:
                yield f"[{at}]", one, item
    if isinstance(value, dict):
        yield from (("", node.dependent[name], value) for name in both(node.dependent, value))
        speaks = node.names is not None or node.patterns or node.additional is not None
        for name in value if speaks else [each for each in value if each in node.properties]:
            held = value[name]
            step = f".{name[:_PIECE]}"
            if node.names is not None:
                yield step, node.names, name
            look.spend(len(node.patterns) // PATTERNS_PER_LOOK)
            fitting = [one for each, one in node.patterns.items() if look.matches(each, name) is not False]
            if name in node.properties:
                fitting.append(node.properties[name])
            elif not fitting and node.additional is not None:
                fitting.append(node.additional)
            yield from ((step, one, held) for one in fitting)


def _together(look: Look, node: Node, value: Any) -> str | None:
    """What is wrong with the value where no single schema inside tells."""
    if node.opaque:
        told = ", ".join(one[:_PIECE] for one in node.opaque)
        return f"{_NOT_JUDGED}: Floe does not apply {told} here"
    pattern = node.pattern
    if pattern is not None and isinstance(value, str) and look.matches(pattern, value) is None:
        return f"{_NOT_JUDGED}: pattern {shown(pattern)} is not matched in linear time (RE2)"
    if isinstance(value, list) and node.contains is not None:
        return "has too few, or too many, items that `contains` asks for"
    if node.any_of and not any(look.accepts(one, value) for one in node.any_of):
        return f"fits none of the {len(node.any_of)} alternatives of anyOf"
    if node.one_of:
        fits = sum(look.accepts(one, value) is True for one in node.one_of)
        return f"fits {fits or 'none'} of the {len(node.one_of)} alternatives of oneOf, and must fit one"
    return "is what `not` excludes" if node.not_ is not None else None


def _kind(kind: str) -> str:
    return "a number with a fraction" if kind == "fraction" else kind
