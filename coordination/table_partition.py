"""The language of `floe.table.partition`: terms of one column each, parted by commas."""

from __future__ import annotations

import re
from typing import NamedTuple

TERMS_MAX = 8
"""Terms of one config."""
_COLUMN = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_TERM = (
    rf"\s*(?:(?:identity|year|month|day|hour)\(\s*{_COLUMN}\s*\)|"
    rf"(?:bucket|truncate)\(\s*[1-9][0-9]{{0,5}}\s*,\s*{_COLUMN}\s*\)|{_COLUMN})\s*"
)
PATTERN = re.compile(rf"(?:{_TERM}(?:,{_TERM}){{0,{TERMS_MAX - 1}}})?")
"""What a config looks like; empty: not partitioned."""
FORM = (
    "at most 8 terms parted by commas, each a column, as value.country, or year, month, day, hour or "
    "identity of one, as day(kafka.timestamp), or bucket(16, value.user_id) or truncate(8, value.page)"
)
_PARTS = re.compile(
    rf"(?:(?P<how>[a-z]+)\(\s*(?:(?P<size>[0-9]+)\s*,\s*)?(?P<of>{_COLUMN})\s*\)|(?P<plain>{_COLUMN}))"
)


class Term(NamedTuple):
    """A term: as it is written, Iceberg's name of the transform, the column's name."""

    text: str
    transform: str
    column: str


def parse(text: str) -> list[Term]:
    """The terms, in their order, each once. `text` matches PATTERN."""
    found: dict[tuple[str, str], Term] = {}
    for each in _PARTS.finditer(text):
        how, size, column = each["how"] or "identity", each["size"], each["of"] or each["plain"]
        transform = how if size is None else f"{how}[{size}]"
        found.setdefault((transform, column), Term(each[0].strip(), transform, column))
    return list(found.values())
