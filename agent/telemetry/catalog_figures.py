"""How late tables' entries in other catalogs are, by catalog and topic, where this agent publishes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import nlargest

from agent.telemetry.by_topic import TOPICS_MAX
from agent.telemetry.metrics import Metrics

Late = Callable[[], Mapping[str, Mapping[str, float]]]
"""Catalog → topic → seconds; only of catalogs that this agent publishes to."""


class CatalogFigures:
    """Of more tables than are named, those that are latest are shown."""

    def __init__(self, metrics: Metrics, late: Late) -> None:
        self._metrics, self._late = metrics, late
        metrics.before_reading.append(self._refresh)

    def noting(self, catalog: str) -> Callable[[str], None]:
        """What a publisher tells of each entry: `moved` or `failed`."""
        counters = {
            "moved": self._metrics.table_publish_moved.labels(catalog),
            "failed": self._metrics.table_publish_failed.labels(catalog),
        }
        return lambda what: counters[what].inc()

    def _refresh(self) -> None:
        gauge = self._metrics.table_publish_seconds_behind
        gauge.clear()
        for catalog, topics in self._late().items():
            latest = ((seconds, topic) for topic, seconds in topics.items())
            for seconds, topic in nlargest(TOPICS_MAX, latest):
                gauge.labels(catalog, topic).set(seconds)
