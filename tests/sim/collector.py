"""What a run does without: Python's collector of garbage, and asyncio's list of all tasks."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

COLLECTED_RUNS = 40
"""How many runs' garbage is collected at once: some seven MB each. Most processes end before."""
_runs = count(1)


@contextmanager
def without_collector() -> Iterator[None]:
    """A run's garbage goes at its end or runs later: looking for it meanwhile took a quarter of the time.

    An agent that loads a snapshot lets the collector be for a while and keeps what is there out of its sight
    for ever: here that would be all that other runs leave behind.
    """
    enable, freeze, enabled = gc.enable, gc.freeze, gc.isenabled()
    if (run := next(_runs)) == 1:
        gc.freeze()  # modules are looked at by no collection
    gc.disable()
    gc.enable = gc.freeze = lambda: None
    try:
        yield
    finally:
        gc.enable, gc.freeze = enable, freeze
        if enabled:
            gc.enable()
        if run % COLLECTED_RUNS == 0:
            gc.collect()


@contextmanager
def without_list_of_tasks() -> Iterator[None]:
    """Nobody asks for `asyncio.all_tasks()`, and to enter a task there takes longer than to make it."""
    every: Any = asyncio.tasks._all_tasks  # type: ignore[attr-defined]  # C code adds to just this object
    every.add = id  # does nothing, and no Python
    try:
        yield
    finally:
        del every.add
