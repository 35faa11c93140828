"""An agent whose event loop is watched: `python -m tests.bench.watched OUT serve …`, and who reads OUT.

A timer of the loop's own comes every millisecond. What its thread worked between two of its turns is how long
everybody else had to wait for it; as CPU time, so that other processes of a busy machine do not count. How
late the timer was by the clock is noted too. OUT gets a line for each second: the second (CLOCK_MONOTONIC,
which all processes share), and the longest of both, milliseconds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import NamedTuple, TextIO

import uvloop

from agent.cli import main
from tests.torture.late_ends import Agent

TICK_S = 0.001


class Late(NamedTuple):
    """How long the loop's other work waited at most, milliseconds."""

    cpu_ms: float
    clock_ms: float


class Watch:
    """Of one loop, from the first turn on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, out: TextIO) -> None:
        self._loop, self._out = loop, out
        self._second, self._worst_cpu, self._worst_clock = 0, 0.0, 0.0
        self._cpu, self._due = time.thread_time(), time.monotonic()
        loop.call_soon(self._turn)

    def _turn(self) -> None:
        cpu, now = time.thread_time(), time.monotonic()
        if int(now) != self._second:
            self._out.write(f"{self._second} {self._worst_cpu * 1e3:.3f} {self._worst_clock * 1e3:.3f}\n")
            self._second, self._worst_cpu, self._worst_clock = int(now), 0.0, 0.0
        self._worst_cpu = max(self._worst_cpu, cpu - self._cpu)
        self._worst_clock = max(self._worst_clock, now - self._due)
        self._cpu, self._due = cpu, now + TICK_S
        self._loop.call_later(TICK_S, self._turn)


class WatchedAgent(Agent):
    """`late` tells how its loop did."""

    @property
    def _watched(self) -> Path:
        return self.directory / "watched.txt"

    def command(self) -> list[str]:
        """The agent of this module."""
        return [
            sys.executable, "-m", "tests.bench.watched", str(self._watched),
            "serve", "--config", str(self.config_file),
        ]  # fmt: skip

    def late(self, begun: float, ended: float) -> Late:
        """Between two moments of time.monotonic(): their seconds and all between."""
        time.sleep(max(ended + 1.5 - time.monotonic(), 0))  # the last line is written when its second is over
        rows = [line.split() for line in self._watched.read_text().splitlines()]
        within = [row for row in rows if len(row) == 3 and int(begun) <= int(row[0]) <= ended]
        assert within, "the watch has none of these seconds"
        return Late(max(float(row[1]) for row in within), max(float(row[2]) for row in within))


if __name__ == "__main__":
    path = Path(sys.argv.pop(1))
    make = uvloop.new_event_loop

    def watched() -> uvloop.Loop:
        """What the agent's Runner asks for."""
        loop = make()
        Watch(loop, path.open("w", buffering=1))
        return loop

    uvloop.new_event_loop = watched
    main()
