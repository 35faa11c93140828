"""Many deadlines by one timer of the loop, instead of a timer for each."""

from __future__ import annotations

import asyncio
import heapq
from typing import Final, Protocol

from objectstore import tasks
from objectstore.rounds import Rounds

TICK_S: Final = 0.004
"""Deadlines within the same tick are over together, at its end: each is late by this at most, seconds."""


TICKS_MAX: Final = 1_000
"""Ticks that one round of the loop takes in."""

DUE_MAX: Final = 256
"""Deadlines that are over in one round of the loop. Each takes 0.02 to 0.1 ms of it."""


class Due(Protocol):
    """Something that has a deadline."""

    def due(self) -> None:
        """The deadline is over; it is forgotten already. May add others."""
        ...


class Deadlines:
    """In one event loop. Times are the loop's, seconds. `tick_s`: how much too late each may be at most."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tick_s: float = TICK_S) -> None:
        self._loop, self._tick_s = loop, tick_s
        self._ticks: dict[int, dict[Due, None]] = {}
        self._order: list[int] = []
        """The ticks that somebody waits for, or waited for, as a heap; each is in it once."""
        self._timer: asyncio.TimerHandle | None = None
        self._rounds = Rounds(_due, DUE_MAX)
        self._timed = 0
        """The tick of the timer."""

    def __len__(self) -> int:
        return sum(map(len, self._ticks.values()))

    def add(self, one: Due, at: float) -> int:
        """Call it once `at` is over; gives its tick, by which it is removed."""
        tick = int(at / self._tick_s) + 1
        waiting = self._ticks.get(tick)
        if waiting is None:
            waiting = self._ticks[tick] = {}
            heapq.heappush(self._order, tick)
            self._arm()
        waiting[one] = None
        return tick

    def remove(self, one: Due, tick: int) -> None:
        """Do not call it."""
        waiting = self._ticks.get(tick)
        if waiting is not None:
            waiting.pop(one, None)
        else:
            self._rounds.leave(one)

    def _arm(self) -> None:
        first = self._order[0]
        if self._timer is not None:
            if self._timed <= first:
                return
            self._timer.cancel()
        self._timed = first
        self._timer = self._loop.call_at(first * self._tick_s, self._over)

    def _is_over(self, tick: int, now: float) -> bool:
        """Or nobody waits for it any more. The timer's own is over, whatever a clock of milliseconds says."""
        return tick <= self._timed or tick * self._tick_s <= now or not self._ticks[tick]

    def _over(self) -> None:
        self._timer = None
        now = self._loop.time()
        over: list[dict[Due, None]] = []
        while self._order and len(over) < TICKS_MAX and self._is_over(self._order[0], now):
            over.append(self._ticks.pop(heapq.heappop(self._order)))
        if self._order:
            self._arm()
        for waiting in over:
            for one in waiting:
                self._rounds.come(one)


def _due(one: Due) -> None:
    try:
        one.due()
    except BaseException as error:
        tasks.tell("deadline", error)
