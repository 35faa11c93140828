"""Bounds of the product that no topic of the simulation is large enough to meet, made small while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from coordination.state import leaving

ROWS_AT_ONCE_MAX = 2  # deleted topics leave over many entries


@contextmanager
def small_limits() -> Iterator[None]:
    """While a run is under way."""
    before, leaving.ROWS_AT_ONCE_MAX = leaving.ROWS_AT_ONCE_MAX, ROWS_AT_ONCE_MAX
    try:
        yield
    finally:
        leaving.ROWS_AT_ONCE_MAX = before
