"""Values of a table's rows as text of a bounded length: they are cut before they are written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any, Final

from schema.shown import text_of

CHARS: Final = 1_000
"""Of one text in a value, and of the value as it is shown."""
ELEMENTS: Final = 100
"""Of a list, and of a struct or map."""
DEPTH: Final = 16


def shown(value: Any) -> str:
    """As JSON; texts as they are."""
    short = _short(value, DEPTH)
    text = short if isinstance(short, str) else json.dumps(short, ensure_ascii=False, default=str)
    return text if len(text) <= CHARS else f"{text[:CHARS]} …"


def _short(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= CHARS else f"{value[:CHARS]} … ({len(value):,} characters)"
    if isinstance(value, bytes):
        cut = text_of(value[:CHARS])
        return cut if len(value) <= CHARS else {"begins": cut, "bytes": len(value)}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if not isinstance(value, Mapping | list | tuple):
        return value
    if not depth:
        return "…"
    if isinstance(value, Mapping):
        some = list(value.items())[:ELEMENTS]
        return {str(name): _short(each, depth - 1) for name, each in some}
    return [_short(each, depth - 1) for each in value[:ELEMENTS]]
