"""What happened when: the figures behind the report's plots."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

Sample = tuple[float, int]


@dataclass
class Timeline:
    """Samples are (Unix seconds, rows so far). `steps` are (name, began, ended)."""

    began: float = field(default_factory=time.time)
    acknowledged: list[Sample] = field(default_factory=list)
    bytes: list[Sample] = field(default_factory=list)
    read: list[Sample] = field(default_factory=list)
    table: list[Sample] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)
    steps: list[tuple[str, float, float]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Note how long a step took."""
        began = time.time()
        yield
        self.steps.append((name, began, time.time()))

    def fault(self, what: str) -> None:
        """Note a fault, now."""
        self.faults.append((time.time(), what))

    def seconds(self, name: str) -> float:
        """How long the step took."""
        return sum(ended - began for step, began, ended in self.steps if step == name)


def freshness(acknowledged: Sequence[Sample], table: Sequence[Sample]) -> list[tuple[float, float]]:
    """(time, lag): how long ago the newest row that the table holds at that time was acknowledged, seconds.

    Only while rows are missing from the table: a table that holds everything is not behind.
    """
    counts = [rows for _, rows in acknowledged]
    lags = []
    for at, rows in table:
        known = [count for when, count in acknowledged if when <= at]
        if not known or rows >= known[-1]:
            lags.append((at, 0.0))
            continue
        first_missing = acknowledged[bisect_left(counts, rows + 1)]
        lags.append((at, max(0.0, at - first_missing[0])))
    return lags


def rates(samples: Sequence[Sample], window_s: float = 1.0) -> list[tuple[float, float]]:
    """(time, amount per second) over windows of at least `window_s`."""
    found = []
    last = samples[0] if samples else (0.0, 0)
    for at, amount in samples[1:]:
        if at - last[0] >= window_s:
            found.append((at, (amount - last[1]) / (at - last[0])))
            last = at, amount
    return found
