"""Where in a JSON text a value stands, so that a message can say line and column of what does not fit."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

LEVELS_MAX = 200
"""Lists and objects within one another that are looked into."""

_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|([\[\]{},:])|([^\s\[\]{},:"]+))', re.DOTALL)
Place = tuple[int, int]
"""Line and column, from 1."""


def place_of(text: str, path: Sequence[str | int]) -> Place | None:
    """Where the value at this path of names and indexes begins; None where the text has none.

    The text must be JSON. Of a name that stands twice, the last one counts, as when it is read.
    """
    wanted, found = list(path), None
    steps: list[str | int] = []  # of the containers that are open: name or index of what is being read
    opened: list[str] = []
    expects_name = False
    for match in _TOKEN.finditer(text):
        word, sign, start = match[1], match[2], match.start(match.lastindex or 0)
        if sign == ",":
            expects_name = opened[-1] == "{"
            if not expects_name:
                steps[-1] = int(steps[-1]) + 1
        elif sign == ":":
            expects_name = False
        elif sign is not None and sign in "]}":
            opened.pop()
            steps.pop()
            expects_name = False
        elif word is not None and expects_name:
            steps[-1] = json.loads(word, strict=False)
        else:
            if steps == wanted:
                found = _line_and_column(text, start)
            if sign is not None:
                if len(opened) == LEVELS_MAX:
                    return found
                opened.append(sign)
                steps.append(0 if sign == "[" else "")
                expects_name = sign == "{"
    return found


def _line_and_column(text: str, at: int) -> Place:
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
