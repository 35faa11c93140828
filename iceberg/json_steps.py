"""JSON made and read in steps: a call into C keeps the interpreter to its end, in a thread as well.

A table of many partitions names the offsets of all in each of its snapshots: megabytes, of which every commit
writes all. So what stands near the top of a document is taken one by one; what is made and understood is what
the standard library makes and understands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any

from objectstore.turns import Turns

PIECE_CHARACTERS = 64 * 1024
"""Made or read before others get a turn; one value at the depth asked for is never cut."""

PLAIN = json.JSONEncoder(separators=(",", ":"))
"""Of files: everything but ASCII is escaped."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A value that is JSON text already, or several of a list joined by commas. Never what is read."""

    text: str


_WHITE = re.compile(r"[ \t\n\r]*")


def encode(value: object, depth: int, encoder: json.JSONEncoder = PLAIN) -> Turns[list[bytes]]:
    """The document in parts, values at `depth` below its top whole; names are strings.

    Raises what `encoder.encode` raises.
    """
    parts: list[bytes] = []
    texts: list[str] = []
    size = 0
    for text in _texts(value, depth, encoder):
        texts.append(text)
        size += len(text)
        if size >= PIECE_CHARACTERS:
            parts.append("".join(texts).encode())
            texts, size = [], 0
            yield
    parts.append("".join(texts).encode())
    return parts


def _texts(value: object, depth: int, encoder: json.JSONEncoder) -> Iterator[str]:
    mark = "{"
    if isinstance(value, Raw):
        yield value.text
    elif depth and isinstance(value, dict) and value:
        for name, each in value.items():
            yield f"{mark}{encoder.encode(name)}:"
            yield from _texts(each, depth - 1, encoder)
            mark = ","
        yield "}"
    elif depth and isinstance(value, list) and value:
        mark = "["
        for each in value:
            yield mark
            yield from _texts(each, depth - 1, encoder)
            mark = ","
        yield "]"
    else:
        yield encoder.encode(value)


def decode(content: bytes, depth: int) -> Turns[Any]:
    """Inverse of encode, of any JSON document. Raises ValueError."""
    text = content.decode(json.detect_encoding(content), "surrogatepass")
    return (yield from _Reading(text).document(depth))


class _Reading:
    """A place in a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._turn_at = PIECE_CHARACTERS
        self._scan = json.JSONDecoder().raw_decode

    def document(self, depth: int) -> Turns[Any]:
        """All of the text."""
        found = yield from self._value(depth)
        if self._next():
            raise JSONDecodeError("Extra data", self._text, self._at)
        return found

    def _value(self, depth: int) -> Turns[Any]:
        mark = self._next()
        if depth and mark == "{":
            return (yield from self._object(depth - 1))
        if depth and mark == "[":
            return (yield from self._array(depth - 1))
        found, self._at = self._scan(self._text, self._at)
        if self._at >= self._turn_at:
            self._turn_at = self._at + PIECE_CHARACTERS
            yield
        return found

    def _object(self, depth: int) -> Turns[dict[str, Any]]:
        found: dict[str, Any] = {}
        self._at += 1
        if self._next() == "}":
            self._at += 1
            return found
        while True:
            if self._next() != '"':
                raise JSONDecodeError("Expecting property name", self._text, self._at)
            name, self._at = self._scan(self._text, self._at)
            self._take(":")
            found[name] = yield from self._value(depth)
            if self._take(",}") == "}":
                return found

    def _array(self, depth: int) -> Turns[list[Any]]:
        found: list[Any] = []
        self._at += 1
        if self._next() == "]":
            self._at += 1
            return found
        while True:
            found.append((yield from self._value(depth)))
            if self._take(",]") == "]":
                return found

    def _next(self) -> str:
        """The next character that is no white space; empty at the end."""
        white = _WHITE.match(self._text, self._at)
        assert white is not None
        self._at = white.end()
        return self._text[self._at : self._at + 1]

    def _take(self, marks: str) -> str:
        mark = self._next()
        if not mark or mark not in marks:
            raise JSONDecodeError(f"Expecting one of {marks}", self._text, self._at)
        self._at += 1
        return mark
