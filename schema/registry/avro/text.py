"""The JSON of a schema: read with bounds, so that no text costs more than its length.

Comments are taken, as Java's parser takes them; they are nobody's but the writer's, and are left out.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from schema.registry.parsed import InvalidSchema

TEXT_BYTES_MAX = 1 << 20
"""Bytes of a schema's text, as UTF-8."""

LEVELS_MAX = 120
"""Lists and objects of JSON within one another; a record in a record takes three or four of them."""

DIGITS_MAX = 1_000
"""Digits of a whole number; Python takes the square of them to read one."""

_SHOWN_CHARS_MAX = 80
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*+"?|//[^\n]*+|/\*(?:(?!\*/).)*+(?:\*/)?|[\[\]{}]', re.DOTALL)
"""What is a text, a comment or a bracket. Those that nobody ends match as well: none is looked at twice."""


def read(text: str) -> tuple[Any, bool]:
    """What the text says, and whether it has comments. Raises InvalidSchema, with line and column."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidSchema("the text is no valid Unicode") from None
    if size > TEXT_BYTES_MAX:
        raise InvalidSchema(f"the text has {size} bytes: a schema has at most {TEXT_BYTES_MAX}")
    plain = _without_comments(text)
    try:
        said = json.loads(plain, parse_int=_whole, parse_float=_fraction, parse_constant=_constant)
    except json.JSONDecodeError as error:
        hint = _unquoted(plain)
        raise InvalidSchema(f"line {error.lineno}, column {error.colno}: {error.msg}{hint}") from None
    return said, plain != text


def shown(value: object) -> str:
    """A value as JSON, for messages; a long one is cut."""
    told = json.dumps(value)
    return told if len(told) <= _SHOWN_CHARS_MAX else f"{told[:_SHOWN_CHARS_MAX]}…"


def _without_comments(text: str) -> str:
    """The text with spaces for comments: what is behind them keeps its place. Raises InvalidSchema."""
    depth, made, done = 0, [], 0
    for match in _PIECE.finditer(text):
        piece = match.group()
        if piece in "[{":
            depth += 1
            if depth > LEVELS_MAX:
                line = text.count("\n", 0, match.start()) + 1
                raise InvalidSchema(f"line {line}: more than {LEVELS_MAX} levels of lists and objects")
        elif piece in "]}":
            depth -= 1
        elif piece.startswith("//") or (piece.startswith("/*") and piece.endswith("*/") and len(piece) > 3):
            made += [text[done : match.start()], re.sub(r"[^\n]", " ", piece)]
            done = match.end()
    return "".join([*made, text[done:]])


def _unquoted(text: str) -> str:
    """A remedy for the commonest mistake: a type's name alone is JSON with quotes only."""
    name = text.strip()
    return f': a name alone is written "{name}", with quotes' if re.fullmatch(r"[\w.]{1,80}", name) else ""


def _whole(said: str) -> int:
    if len(said) > DIGITS_MAX:
        raise InvalidSchema(f"a number of {len(said)} digits: at most {DIGITS_MAX} are read")
    return int(said)


def _fraction(said: str) -> float:
    found = float(said)
    if found in (float("inf"), float("-inf")):
        raise InvalidSchema(f"the number {said[:_SHOWN_CHARS_MAX]} is beyond what a double holds")
    return found


def _constant(said: str) -> NoReturn:
    raise InvalidSchema(f"{said} is no number of JSON: write another value")
