"""What goes on for a while and is met again and again: told when it begins, at a pace, and when it ends.

The lines of one episode: "a peer is left alone"; the same every `again_s`, with `times` and `for_s`; and its
end, "a peer is asked again", with `times` and `lasted_s`. What every request runs into is a few lines.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import structlog

AGAIN_S = 60.0  # between two lines of one episode
EPISODES_MAX = 1_024  # of one subject that are remembered; the one not met for longest is forgotten first
LEVELS = ("info", "warning", "error")


@dataclass(slots=True)
class _Episode:
    began: float
    told: float
    times: int = 1


class Episodes:
    """The episodes of one subject, by key. `now`: seconds of a clock that only goes on."""

    def __init__(
        self,
        log: structlog.stdlib.BoundLogger,
        now: Callable[[], float],
        *,
        begins: str,
        ends: str,
        level: str = "warning",
        again_s: float = AGAIN_S,
    ) -> None:
        """`begins` and `ends` are the events of the lines; `level` that of the first kind."""
        assert level in LEVELS, level
        self._log = log
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
            self._tell(fields)
            return
        self._open.move_to_end(key)
        known.times += 1
        if now - known.told >= self._again_s:
            known.told = now
            self._tell({**fields, "times": known.times, "for_s": round(now - known.began, 1)})

    def over(self, key: str, **fields: object) -> None:
        """It is not so. Nothing is told where it was not."""
        known = self._open.pop(key, None)
        if known is not None:
            lasted_s = round(self._now() - known.began, 1)
            self._log.info(self._ends, **fields, times=known.times, lasted_s=lasted_s)

    def _tell(self, fields: dict[str, object]) -> None:
        # asked for at each line: logging may have been configured meanwhile
        getattr(self._log, self._level)(self._begins, **fields)

    def going_on(self, key: str) -> bool:
        """Whether it was met and is not over."""
        return key in self._open
