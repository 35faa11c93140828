"""A counter for hot paths: what is added is a number of one thread, and told when somebody reads."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock

from prometheus_client import Counter
from prometheus_client.core import CollectorRegistry, Metric


class Tally(Counter):
    """Without labels; `inc` is for the event loop's thread alone and takes no lock. Any thread may read."""

    def __init__(self, name: str, text: str, registry: CollectorRegistry) -> None:
        self._added = self._told = 0.0
        self._telling = Lock()
        super().__init__(name, text, registry=registry)

    def inc(self, amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
        """Add; nothing is checked."""
        self._added += amount

    def collect(self) -> Iterable[Metric]:
        """What Prometheus reads."""
        with self._telling:
            added = self._added
            super().inc(added - self._told)
            self._told = added
        return super().collect()
