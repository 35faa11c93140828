"""Where many names begin alike, one ACL for what they begin with: `floe acl review --prefix`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

SEPARATED = re.compile(r"[._-]+")
"""Where a name may be cut: behind these."""


def prefixes(names: Collection[str], others: Collection[str], least: int) -> tuple[list[str], list[str]]:
    """The prefixes that stand for at least `least` of the names each, and the names that are left.

    A prefix ends with a separator, and none of `others` has it. Of several the shortest is taken.
    """
    found: list[str] = []
    left: list[str] = []
    for name in sorted(names):
        if any(name.startswith(prefix) for prefix in found):
            continue
        prefix = next((each for each in _beginnings(name) if _fits(each, names, others, least)), None)
        if prefix is None:
            left.append(name)
        else:
            found.append(prefix)
    return found, left


def _beginnings(name: str) -> Iterator[str]:
    """The shortest first; the whole name is none."""
    return (name[: each.end()] for each in SEPARATED.finditer(name) if each.end() < len(name))


def _fits(prefix: str, names: Collection[str], others: Collection[str], least: int) -> bool:
    if any(name.startswith(prefix) for name in others):
        return False
    return sum(name.startswith(prefix) for name in names) >= least
