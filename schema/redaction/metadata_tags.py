"""Tags that stand in a schema's metadata, by the path of what they are about.

`{"tags": {"**.ssn": ["PII"], "shop.Order.who": ["PII"]}}`: each key is a pattern over a field's full name, as
Confluent's clients match it: `?` is one character and `*` any number, of which none is a dot; `**` is
anything, and so is `**.*`. The full name is that of the message or record, a dot, and the field's own
(protobuf, AVRO), or the properties on the way from the top, `$.lines.note` (JSON: items are called as their
array is). Which fields are tagged is told of the schema that has the metadata, wherever types come from.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import re2

from schema.redaction.marks import Action, Marks

PATTERNS_CHARS_MAX = 4_096
"""Characters of all patterns of one schema whose tags mark fields."""

TOP = "$"
"""What the full names of properties of JSON begin with."""

_PARTS = re.compile(r"\*\*\.\*|\*\*|\*|\?|[^*?]+", re.DOTALL)
_MEANT = {"**.*": ".*", "**": ".*", "*": r"[^.]*", "?": r"[^.]"}
_WILD = re.compile(r"[*?]")
_UNKNOWN = "[]\\"
_KEPT_MAX = 256  # matchers
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.dot_nl = True


class BadTags(ValueError):
    """It cannot be told which fields a schema's metadata is about."""


def with_metadata(marks: Marks, metadata: str) -> Marks:
    """How a schema with this metadata, as the registry keeps it, is marked. Raises BadTags."""
    patterns = tuple(sorted({*_patterns(marks, metadata)})) if metadata else ()
    if sum(map(len, patterns)) > PATTERNS_CHARS_MAX:
        raise BadTags(f"the paths of its metadata's tags have more than {PATTERNS_CHARS_MAX} characters")
    for each in patterns:
        if any(one in each for one in _UNKNOWN):
            raise BadTags(f"tags of its metadata have the path {each!r}: write it without brackets and \\")
    return replace(marks, paths=patterns) if patterns else marks


def named(marks: Marks, full_name: str) -> Action | None:
    """How metadata marks the field of this full name; None: it does not."""
    if not marks.paths or _matcher(marks.paths).fullmatch(full_name) is None:
        return None
    return marks.action


def may_name_below(marks: Marks, full_name: str) -> bool:
    """Whether metadata may mark a property inside that of this full name; True also where it is not sure."""
    begin = f"{full_name}."
    for pattern in marks.paths:
        plain = _WILD.split(pattern, maxsplit=1)[0]
        if plain.startswith(begin) or (plain != pattern and begin.startswith(plain)):
            return True
    return False


def _patterns(marks: Marks, metadata: str) -> Iterator[str]:
    """Those that have a tag which marks fields."""
    found = json.loads(metadata)
    tagged = found.get("tags") if isinstance(found, dict) else None
    if not isinstance(tagged, dict | None):
        raise BadTags(f"tags of its metadata are no object by paths, but {type(tagged).__name__}")
    for pattern, tags in (tagged or {}).items():
        listed = [tags] if isinstance(tags, str) else tags
        if not isinstance(listed, list | None):
            raise BadTags(f"tags of its metadata for the path {pattern!r} are no list of names")
        if any(each in marks.tags for each in listed or () if isinstance(each, str)):
            yield pattern


@functools.lru_cache(maxsize=_KEPT_MAX)
def _matcher(patterns: tuple[str, ...]) -> Any:
    told = (
        "".join(_MEANT.get(part) or re2.escape(part) for part in _PARTS.findall(each)) for each in patterns
    )
    return re2.compile("|".join(f"(?:{each})" for each in told), _OPTIONS)
