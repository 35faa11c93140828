"""A bound on log lines of one kind: what every request runs into must not fill a disk.

A kind is a logger and its event, or the text before its arguments. The first lines of a kind in a period are
written, as many as `logging.lines_max` says; the next that is written afterwards says how many were not.
Critical lines, those of the level debug, and those of the audit log are all written.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from agent.config import LoggingConfig

AUDIT = "audit"
"""The logger of who did what, which bounds itself (audit_log.alike_kinds_max, audit_log.again_ms)."""


@dataclass(slots=True)
class _Kind:
    """One kind in its current period."""

    until: float
    lines: int = 0
    left_out: int = 0


class LineLimit(logging.Filter):
    """A filter for the process's handler; lines come from any thread. `now`: seconds that only go on."""

    def __init__(self, config: LoggingConfig, now: Callable[[], float]) -> None:
        super().__init__()
        self._lines_max, self._kinds_max = config.lines_max, config.kinds_max
        self._period_s = config.period_ms / 1000
        self._now = now
        self._kinds: OrderedDict[tuple[str, str], _Kind] = OrderedDict()
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written; it then says how many before it were not."""
        if record.levelno <= logging.DEBUG or record.levelno >= logging.CRITICAL or record.name == AUDIT:
            return True
        fields = record.msg if isinstance(record.msg, dict) else None
        text = str(fields.get("event", "")) if fields is not None else str(record.msg)
        with self._lock:
            left_out = self._count((record.name, text))
        if left_out is None:
            return False
        if left_out and fields is not None:
            record.msg = {**fields, "left_out": left_out}
        elif left_out and isinstance(given := getattr(record, "fields", None), dict):
            record.fields = {**given, "left_out": left_out}
        elif left_out:
            record.msg = f"{text} (and {left_out} more of this kind before)"
        return True

    def _count(self, key: tuple[str, str]) -> int | None:
        """How many lines were left out before this one; None when it is left out too."""
        now, kind = self._now(), self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(now + self._period_s)
            while len(self._kinds) > self._kinds_max:
                self._kinds.popitem(last=False)
        elif now >= kind.until:
            kind.until, kind.lines = now + self._period_s, 0
        if kind.lines >= self._lines_max:
            kind.left_out += 1
            return None
        kind.lines += 1
        left_out, kind.left_out = kind.left_out, 0
        return left_out
