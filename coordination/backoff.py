"""Jittered exponential back-off, for retries that go on until an answer is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coordination.clock import Clock


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays in seconds: doubling from `first_s` to `max_s`, each spread over [half, whole]."""

    clock: Clock
    first_s: float = 0.02
    max_s: float = 1.0

    def delays(self) -> Iterator[float]:
        """An endless run of delays; take a new one for every operation."""
        delay = self.first_s
        while True:
            yield delay * (0.5 + self.clock.random() / 2)
            delay = min(delay * 2, self.max_s)
