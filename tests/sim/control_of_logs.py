"""Rule 11 broken: whoever follows a log does not look which one it is."""

from __future__ import annotations

from typing import Any

from coordination import memory_log

Change = tuple[Any, str, Any]
"""Where, which name, what it is instead."""


def follows_any_log() -> tuple[Change, ...]:
    """A follower looks at revisions only: a log that was restored and is as far again is as good."""
    return ((memory_log, "check_last", lambda *known: None),)
