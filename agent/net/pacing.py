"""Requests begin by turns: so many in one round of the event loop, of connections one after another.

A client may have any number of requests under way (librdkafka's default is a million), and each read of a
socket brings hundreds of small ones. Begun as they come, those of 200 such clients would be one round of the
loop of many seconds, in which no PUT is answered, no lease renewed and nobody else served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from agent.net.connection import Slot

BEGUN_MAX: Final = 64
"""Requests that begin in one round of the event loop. A small Produce takes 0.1 to 0.3 ms of it."""

Begin = Callable[[memoryview, Slot], None]


class Line:
    """Of one connection: its requests that came and have not begun, in order. `begin`: begins one."""

    __slots__ = ("begin", "under_way", "waiting")

    def __init__(self, begin: Begin) -> None:
        self.begin = begin
        self.waiting: deque[tuple[memoryview, Slot]] = deque()
        self.under_way = 0
        """Tasks that serve a request of it."""


class Pacing:
    """Of one server, in its event loop. `under_way_max`: requests that are served at once of a connection."""

    def __init__(self, under_way_max: int) -> None:
        self._under_way_max = under_way_max
        self._lines: deque[Line] = deque()
        """Those where somebody waits for his turn, by whose it is."""
        self._begun = 0
        self._due = False
        self.waiting = 0
        """How many requests wait."""

    def come(self, line: Line, frame: memoryview, slot: Slot) -> None:
        """Begin it now, or when its turn comes; never before those that came before it on its connection."""
        if not (line.waiting or self._lines or self._begun >= BEGUN_MAX or self._full(line)):
            self._begin(line, frame, slot)
            return
        self.waiting += 1
        slot.came = asyncio.get_running_loop().time()
        line.waiting.append((frame, slot))
        if len(line.waiting) == 1 and not self._full(line):
            self._line_up(line)

    def begins(self, line: Line) -> None:
        """One of the line is served from now on; `ended` must follow."""
        line.under_way += 1

    def ended(self, line: Line) -> None:
        """One of the line is served no longer."""
        was_full = self._full(line)
        line.under_way -= 1
        if was_full and line.waiting:
            self._line_up(line)

    def _full(self, line: Line) -> bool:
        return line.under_way >= self._under_way_max

    def _line_up(self, line: Line) -> None:
        self._lines.append(line)
        self._wake()

    def _wake(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._next_round)

    def _begin(self, line: Line, frame: memoryview, slot: Slot) -> None:
        self._wake()
        self._begun += 1
        line.begin(frame, slot)

    def _next_round(self) -> None:
        self._begun, self._due = 0, False
        while self._lines and self._begun < BEGUN_MAX:
            line = self._lines.popleft()
            frame, slot = line.waiting.popleft()
            self.waiting -= 1
            try:
                self._begin(line, frame, slot)
            finally:
                if line.waiting and not self._full(line):  # else it comes back as one of it ends
                    self._lines.append(line)
