"""The language of `floe.table.sort`: terms of one column each with a direction, parted by commas."""

from __future__ import annotations

import re
from typing import NamedTuple

from coordination.table_partition import PARTS, TERM, TERMS_MAX, Term, never, of_match

_ORDERED = rf"{TERM}(?:\s+(?:asc|desc))?(?:\s+nulls-(?:first|last))?"
PATTERN = re.compile(rf"(?:\s*{_ORDERED}\s*(?:,\s*{_ORDERED}\s*){{0,{TERMS_MAX - 1}}})?")
"""What a config looks like; empty: rows stand in the order of their offsets."""
FORM = (
    "at most 8 terms parted by commas, each a column, as value.user_id, or year, month, day, hour, bucket or "
    "truncate of one, as day(kafka.timestamp), then asc (unless said) or desc, then nulls-first or nulls-last"
)
_EACH = re.compile(rf"{PARTS}(?:\s+(?P<down>asc|desc))?(?:\s+nulls-(?P<nulls>first|last))?")


class SortTerm(NamedTuple):
    """A term: what is sorted by, whether the greatest comes first, and whether nulls do."""

    of: Term
    descending: bool
    nulls_first: bool


def parse(text: str) -> list[SortTerm]:
    """The terms, in their order; one that says again what an earlier one says has no effect, and is left
    out. Nulls are first where the least is, last where the greatest is, unless said. `text` matches PATTERN.
    """
    found: dict[tuple[str, str], SortTerm] = {}
    for each in _EACH.finditer(text):
        descending = each["down"] == "desc"
        nulls_first = each["nulls"] == "first" if each["nulls"] else not descending
        term = of_match(each)
        found.setdefault((term.transform, term.column), SortTerm(term, descending, nulls_first))
    return list(found.values())


def refusal(text: str) -> str | None:
    """Why no table can be sorted so, whatever is bound to its topic; None where one may be."""
    return next(filter(None, (never(each.of.column) for each in parse(text))), None)
