"""The language of `floe.table.partition`: terms of one column each, parted by commas."""

from __future__ import annotations

import re
from typing import NamedTuple

TERMS_MAX = 8
"""Terms of one config."""
_COLUMN = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
TERM = (
    rf"(?:(?:identity|year|month|day|hour)\(\s*{_COLUMN}\s*\)|"
    rf"(?:bucket|truncate)\(\s*[1-9][0-9]{{0,5}}\s*,\s*{_COLUMN}\s*\)|{_COLUMN})"
)
"""What a term looks like, as a regular expression without groups."""
PATTERN = re.compile(rf"(?:\s*{TERM}\s*(?:,\s*{TERM}\s*){{0,{TERMS_MAX - 1}}})?")
"""What a config looks like; empty: not partitioned."""
FORM = (
    "at most 8 terms parted by commas, each a column, as value.country, or year, month, day, hour or "
    "identity of one, as day(kafka.timestamp), or bucket(16, value.user_id) or truncate(8, value.page)"
)
PARTS = rf"(?:(?P<how>[a-z]+)\(\s*(?:(?P<size>[0-9]+)\s*,\s*)?(?P<of>{_COLUMN})\s*\)|(?P<plain>{_COLUMN}))"
"""The same with groups: what each term is made of."""
_EACH = re.compile(PARTS)
_KAFKA = ("partition", "offset", "timestamp", "timestamp_type")
_REMEDY = "name a column of single values, as kafka.timestamp, key.id or value.user_id"


class Term(NamedTuple):
    """A term: as it is written, Iceberg's name of the transform, the column's name."""

    text: str
    transform: str
    column: str


def parse(text: str) -> list[Term]:
    """The terms, in their order, each once. `text` matches PATTERN."""
    found: dict[tuple[str, str], Term] = {}
    for each in _EACH.finditer(text):
        term = of_match(each)
        found.setdefault((term.transform, term.column), term)
    return list(found.values())


def of_match(found: re.Match[str]) -> Term:
    """The term that PARTS found."""
    how, size, column = found["how"] or "identity", found["size"], found["of"] or found["plain"]
    return Term(found[0].strip(), how if size is None else f"{how}[{size}]", column)


def refusal(text: str) -> str | None:
    """Why no table has these columns, whatever is bound to its topic; None where one may have them."""
    return next(filter(None, (never(each.column) for each in parse(text))), None)


def never(column: str) -> str | None:
    """Why no topic's table has this column of single values; None where one may have it."""
    top, _, inner = column.lower().partition(".")
    if top == "headers":
        return f"{column} is a list, or inside one, and has no single value: {_REMEDY}"
    if top in ("kafka", "key", "value") and not inner:
        return f"{column} is a struct and has no single value: {_REMEDY}"
    if top == "kafka" and inner not in _KAFKA:
        return f"there is no column {column}: kafka has {', '.join(_KAFKA)}; {_REMEDY}"
    return None
