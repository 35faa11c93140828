"""What goes on for a while and is met again and again: told when it begins, at a pace, and when it ends.

The lines of one episode: "the log is not followed"; the same every `again_s`, with `times` and `for_s`; and
its end, "the log is followed again", with `times` and `lasted_s`. What each retry runs into is a few lines.
A line has an event and fields: through the standard library's logging these are the record's attribute
`fields`, which the agent's log shows beside the event.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

AGAIN_S = 60.0  # between two lines of one episode
EPISODES_MAX = 1_024  # of one subject that are remembered; the one not met for longest is forgotten first
LEVELS = ("info", "warning", "error")

Tell = Callable[[str, str, Mapping[str, object]], None]
"""Writes a line: its level, its event, its fields."""


@dataclass(slots=True)
class _Episode:
    began: float
    told: float
    times: int = 1


class Episodes:
    """The episodes of one subject, by key. `now`: seconds of a clock that only goes on."""

    def __init__(
        self,
        tell: Tell,
        now: Callable[[], float],
        *,
        begins: str,
        ends: str,
        level: str = "warning",
        again_s: float = AGAIN_S,
    ) -> None:
        """`begins` and `ends` are the events of the lines; `level` that of the first kind."""
        assert level in LEVELS, level
        self._tell = tell
        self._now = now
        self._begins, self._ends = begins, ends
        self._level = level
        self._again_s = again_s
        self._open: OrderedDict[str, _Episode] = OrderedDict()

    def met(self, key: str, **fields: object) -> None:
        """It is so (still, or as of now). `fields` say of whom, and why."""
        now, known = self._now(), self._open.get(key)
        if known is None:
            self._open[key] = _Episode(now, now)
            if len(self._open) > EPISODES_MAX:
                self._open.popitem(last=False)
            self._tell(self._level, self._begins, fields)
            return
        self._open.move_to_end(key)
        known.times += 1
        if now - known.told >= self._again_s:
            known.told = now
            fields |= {"times": known.times, "for_s": round(now - known.began, 1)}
            self._tell(self._level, self._begins, fields)

    def over(self, key: str, *, event: str = "", **fields: object) -> None:
        """It is not so. Nothing is told where it was not. `event`: where it ends otherwise than most."""
        known = self._open.pop(key, None) if self._open else None
        if known is not None:
            lasted_s = round(self._now() - known.began, 1)
            self._tell("info", event or self._ends, {**fields, "times": known.times, "lasted_s": lasted_s})

    def going_on(self, key: str) -> bool:
        """Whether it was met and is not over."""
        return key in self._open


def loop_time() -> float:
    """Seconds of the running event loop's clock."""
    return asyncio.get_running_loop().time()


def through(logger: logging.Logger) -> Tell:
    """Lines of the standard library's logging."""
    return partial(_told, logger)


def _told(logger: logging.Logger, level: str, event: str, fields: Mapping[str, object]) -> None:
    logger.log(logging.getLevelNamesMapping()[level.upper()], event, extra={"fields": dict(fields)})
