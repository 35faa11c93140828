"""What each program of this folder shares: reading its questions, and values as plain JSON.

The programs are on their own (python FILE URL < questions.json > answers.json), so that an engine may
live in another environment, and its crash is one engine's answer.
"""

from __future__ import annotations

import datetime
import decimal
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

EXACT = 1 << 53
"""Integers from here on are text: JSON's readers may round them."""


def plain(value: Any) -> Any:
    """A value in the form of tests/engines/lake.py."""
    if value is None or isinstance(value, bool | float | str):
        return value
    if isinstance(value, int):
        return value if abs(value) < EXACT else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.UTC).replace(tzinfo=None)
        return value.isoformat(timespec="microseconds")
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if hasattr(value, "asDict"):  # Spark's Row
        return plain(value.asDict())
    return [plain(each) for each in value]


def pairs(value: Any) -> Any:
    """A map as sorted pairs, whether the engine gives a mapping, pairs, or structs of key and value."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        found = list(value.items())
    else:
        found = [tuple(each.values()) if isinstance(each, Mapping) else tuple(each) for each in value]
    return sorted([plain(key), plain(each)] for key, each in found)


ORDER = ("kafka.partition", "kafka.offset")
MAPS = ("value.by_number", "value.by_name")


def at(row: Any, path: str) -> Any:
    """The plain value at a dotted path of a row."""
    value = row
    for name in path.split("."):
        if value is None:
            break
        value = value[name]
    return pairs(value) if path in MAPS else plain(value)


def main(ask: Callable[[str, dict[str, Any]], list[Any]]) -> None:
    """Answer the questions of stdin by `ask(url, question)`, which gives rows as nested mappings."""
    answers: dict[str, Any] = {}
    for question in json.load(sys.stdin):
        try:
            rows = sorted(ask(sys.argv[1], question), key=lambda row: [at(row, path) for path in ORDER])
            answers[question["name"]] = [[at(row, path) for path in question["paths"]] for row in rows]
        except BaseException as error:  # a Rust panic is one, too
            traceback.print_exc()
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            answers[question["name"]] = {"error": f"{type(error).__name__}: {first[:200]}"}
    json.dump(answers, sys.stdout)
