"""JSON texts: read with every number as it stands, and written again without white space."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from json.encoder import encode_basestring
from typing import Any

from schema.registry.parsed import InvalidSchema

TEXT_BYTES_MAX = 1 << 20
NESTING_MAX = 100
"""Objects and arrays within one another, levels."""
DIGITS_MAX = 1_000
"""Characters of one number, and its exponent."""
SHOWN_MAX = 120  # characters of a value in a message

_KEPT = frozenset({dict, list, Decimal})
"""Types of values that cost something to freeze."""

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
"""Texts and brackets. A text that nobody ends matches as well: none is looked at twice."""


def read(text: str, bytes_max: int = TEXT_BYTES_MAX) -> Any:
    """The value that a text is: numbers with a fraction or an exponent are Decimals. Raises InvalidSchema."""
    _check_size(text, bytes_max)
    try:
        found, end = _QUICK.raw_decode(text)
        if end == len(text):
            return found
    except (json.JSONDecodeError, _Twice):  # its place is told below
        pass
    return _read(text)


def _read(text: str) -> Any:
    """The same, and what is wrong with it."""
    twice: list[tuple[dict[str, Any], str]] = []

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice.append((found, _twice(pairs)))
        return found

    try:
        found = json.loads(
            text, object_pairs_hook=made, parse_float=_fraction, parse_int=_whole, parse_constant=_constant
        )
    except json.JSONDecodeError as error:
        raise InvalidSchema(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    if twice:
        held, name = twice[0]
        raise InvalidSchema(f"{_place_of(found, held)}: {shown(name)} stands there twice: remove one of them")
    return found


def written(value: Any, *, ordered: bool = False) -> str:
    """The shortest text of a value, its numbers in the form they have; keys by name if `ordered`."""
    if isinstance(value, dict):
        items = sorted(value.items()) if ordered else value.items()
        inside = (f"{_quoted(name)}:{written(one, ordered=ordered)}" for name, one in items)
        return f"{{{','.join(inside)}}}"
    if isinstance(value, list):
        return f"[{','.join(written(one, ordered=ordered) for one in value)}]"
    if isinstance(value, str):
        return _quoted(value)
    return str(value) if isinstance(value, Decimal) or type(value) is int else json.dumps(value)


def pointer(steps: Iterator[Any] | list[Any] | tuple[Any, ...]) -> str:
    """A JSON pointer, as `#/properties/a`; of a long name both ends and its length."""
    return "".join(["#", *(f"/{_step(str(step)).replace('~', '~0').replace('/', '~1')}" for step in steps)])


def _step(name: str) -> str:
    """Every schema below has it in its place: a name of 1 MiB would be there a thousand times."""
    if len(name) <= SHOWN_MAX:
        return name
    half = SHOWN_MAX // 2
    return f"{name[:half]}…{name[-half:]} ({len(name)} characters)"


def shown(value: Any) -> str:
    """A value as a message has it."""
    text = written(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def frozen(value: Any, inside: Callable[[Any], Any] | None = None) -> Any:
    """What is equal to JSON Schema is equal here, and has one hash: 1 and 1.0, not 1 and true.

    `inside`: what freezes the parts of a value. Hashes are kept, whatever the size, and nobody can write
    many numbers with the same one.
    """
    inside = inside or frozen
    if isinstance(value, Mapping):
        return ("object", frozenset((name, inside(one)) for name, one in value.items()))
    if isinstance(value, list):
        return ("array", frozenset(enumerate(map(inside, value))))
    if isinstance(value, bool) or value is None:
        return ("constant", value)
    if isinstance(value, str):
        return ("text", value)
    if isinstance(value, int):
        return ("number", f"{value:x}/1")
    if isinstance(value, float) and not math.isfinite(value):
        return ("number", value)
    number = Fraction(value)
    return ("number", f"{number.numerator:x}/{number.denominator:x}")


class Forms:
    """Values as they are frozen, each object and array once. Somebody holds them as long as this is asked."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self._different: dict[int, bool] = {}

    def of(self, value: Any) -> Any:
        """The value, frozen."""
        if type(value) not in _KEPT:
            return frozen(value)
        found = self._made.get(id(value))
        if found is None:
            found = self._made[id(value)] = frozen(value, self.of)
        return found

    def different(self, values: list[Any]) -> bool:
        """Whether no two of an array's items are equal."""
        found = self._different.get(id(values))
        if found is None:
            found = self._different[id(values)] = len({self.of(one) for one in values}) == len(values)
        return found


def _check_size(text: str, bytes_max: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidSchema("the text is no valid Unicode") from None
    if size > bytes_max:
        raise InvalidSchema(f"the text has {size} bytes: the limit is {bytes_max}")
    if text.count("[") + text.count("{") <= NESTING_MAX:
        return
    depth = 0
    for match in _BRACKETS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        if depth > NESTING_MAX:
            raise InvalidSchema(
                f"line {text.count(chr(10), 0, match.start()) + 1}: more than {NESTING_MAX} levels of "
                "objects and arrays within one another: give inner schemas names, and refer to them"
            )


def _fraction(token: str) -> Decimal:
    exponent = token.lower().partition("e")[2].lstrip("+-").lstrip("0")
    if len(token) > DIGITS_MAX or len(exponent) > 4 or int(exponent or 0) > DIGITS_MAX:
        raise InvalidSchema(f"number {token[:SHOWN_MAX]}: digits and exponent may be {DIGITS_MAX} at most")
    return Decimal(token)


def _whole(token: str) -> int:
    if len(token) > DIGITS_MAX:
        raise InvalidSchema(f"number {token[:SHOWN_MAX]}…: digits may be {DIGITS_MAX} at most")
    return int(token)


class _Twice(Exception):
    """A name stands there twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Twice
    return found


def _twice(pairs: list[tuple[str, Any]]) -> str:
    """The first name that stands there a second time."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("a name stands there twice")


def _constant(token: str) -> Any:
    raise InvalidSchema(f"{token} is no number of JSON: write one with digits")


_QUICK = json.JSONDecoder(
    object_pairs_hook=_once, parse_float=_fraction, parse_int=_whole, parse_constant=_constant
)


def _quoted(text: str) -> str:
    quoted = encode_basestring(text)
    try:
        quoted.encode()
    except UnicodeEncodeError:
        raise InvalidSchema(
            f"{json.dumps(text)[:SHOWN_MAX]}: half a surrogate pair is no character"
        ) from None
    return quoted


def _place_of(root: Any, held: dict[str, Any]) -> str:
    waiting: list[tuple[Any, tuple[Any, ...]]] = [(root, ())]
    while waiting:
        value, steps = waiting.pop()
        if value is held:
            return pointer(steps)
        inside = (
            value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
        )
        waiting += [(one, (*steps, step)) for step, one in inside]
    return "#"
