"""What goes on for a while and is met again and again, as lines of the agent's own loggers.

"A peer is left alone"; the same every minute, with `times` and `for_s`; and its end, "a peer is asked
again". The rule, and its bounds: objectstore/episodes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import structlog

from objectstore import episodes
from objectstore.episodes import AGAIN_S

__all__ = ["AGAIN_S", "Episodes"]


class Episodes(episodes.Episodes):
    """The episodes of one subject, by key. `now`: seconds of a clock that only goes on."""

    def __init__(
        self,
        log: structlog.stdlib.BoundLogger,
        now: Callable[[], float],
        *,
        begins: str,
        ends: str,
        level: str = "warning",
    ) -> None:
        """`begins` and `ends` are the events of the lines; `level` that of the first kind."""
        super().__init__(partial(_told, log), now, begins=begins, ends=ends, level=level)


def _told(log: structlog.stdlib.BoundLogger, level: str, event: str, fields: Mapping[str, object]) -> None:
    # asked for at each line: logging may have been configured meanwhile
    getattr(log, level)(event, **fields)
