"""Bounds of the product that no topic of the simulation is large enough to meet, made small while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agent.background.scrub import job as scrub
from coordination.state import leaving

ROWS_AT_ONCE_MAX = 2  # deleted topics leave over many entries
SCRUB_POLL_S, SCRUB_AGAIN_S = 0.5, 2.0


@contextmanager
def small_limits() -> Iterator[None]:
    """While a run is under way."""
    before = leaving.ROWS_AT_ONCE_MAX, scrub.POLL_S, scrub.AGAIN_S
    leaving.ROWS_AT_ONCE_MAX, scrub.POLL_S, scrub.AGAIN_S = ROWS_AT_ONCE_MAX, SCRUB_POLL_S, SCRUB_AGAIN_S
    try:
        yield
    finally:
        leaving.ROWS_AT_ONCE_MAX, scrub.POLL_S, scrub.AGAIN_S = before
