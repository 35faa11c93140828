"""Regular expressions of schemas. They are matched in linear time (RE2), or not at all."""

from __future__ import annotations

import functools
import re
from typing import Any

import re2

PATTERN_MAX = 4_096
"""Characters of a pattern."""
PATTERNS_MAX = 1_000
"""Patterns of a schema with all that it refers to: each is compiled."""
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


@functools.lru_cache(maxsize=1_024)
def _compiled(pattern: str) -> Any:
    """What matches it; None where RE2 cannot, as for a look-ahead."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error:
        return None


def wrong_with(pattern: str) -> str | None:
    """Why it is no regular expression; None: it is one. It is only compiled."""
    if len(pattern) > PATTERN_MAX:
        return f"{len(pattern)} characters: the limit is {PATTERN_MAX}"
    if _compiled(pattern) is not None:
        return None
    try:
        re.compile(pattern)
    except re.error as error:
        return f"{error}"
    except (OverflowError, RecursionError):
        return "too large"
    return None


def matches(pattern: str, text: str) -> bool | None:
    """Whether it is found in a text; None where that is not to be told in linear time."""
    compiled = _compiled(pattern)
    return None if compiled is None else compiled.search(text) is not None
