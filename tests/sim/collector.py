"""Python's collector of garbage, which a run does without."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

COLLECTED_RUNS = 4
"""How many runs' garbage is collected at once; some tens of MB each."""
_runs = count(1)


@contextmanager
def without_collector() -> Iterator[None]:
    """A run's garbage goes at its end or runs later: looking for it meanwhile took a quarter of the time.

    An agent that loads a snapshot lets the collector be for a while and keeps what is there out of its sight
    for ever: here that would be all that other runs leave behind.
    """
    enable, freeze = gc.enable, gc.freeze
    if (run := next(_runs)) == 1:
        gc.freeze()  # modules are looked at by no collection
    gc.disable()
    gc.enable = gc.freeze = lambda: None
    try:
        yield
    finally:
        gc.enable, gc.freeze = enable, freeze
        gc.enable()
        if run % COLLECTED_RUNS == 0:
            gc.collect()
