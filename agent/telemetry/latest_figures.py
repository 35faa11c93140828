"""What `__latest` tables come to, by topic, read when the metrics are: none stays of a topic that is gone."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING

from agent.telemetry.by_topic import TOPICS_MAX
from agent.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from iceberg.upsert.service import UpsertService


class LatestFigures:
    """Rows and seconds behind are told by every agent, so that somebody does whoever keeps the table;
    problems and sizes by the one that does. Of more topics than are named: the latest, those with most
    problems, those of most files.
    """

    def __init__(self, metrics: Metrics, service: UpsertService) -> None:
        self._metrics = metrics
        self._service = service
        metrics.before_reading.append(self._refresh)

    def _refresh(self) -> None:
        metrics, service = self._metrics, self._service
        sizes = (metrics.latest_files, metrics.latest_bytes, metrics.latest_snapshots)
        behind = (metrics.latest_seconds_behind, metrics.latest_rows_behind)
        for each in (*behind, metrics.latest_problems, *sizes):
            each.clear()
        lags = ((lag.seconds, lag.rows, topic) for topic, lag in service.lags.now.items())
        for seconds, rows, topic in nlargest(TOPICS_MAX, lags):
            metrics.latest_seconds_behind.labels(topic).set(seconds)
            metrics.latest_rows_behind.labels(topic).set(rows)
        problems = ((count, topic) for topic, count in service.problems().items() if count)
        for count, topic in nlargest(TOPICS_MAX, problems):
            metrics.latest_problems.labels(topic).set(count)
        found = ((*size, topic) for topic, size in service.sizes().items())
        for *counts, topic in nlargest(TOPICS_MAX, found):
            for figure, count in zip(sizes, counts, strict=True):
                figure.labels(topic).set(count)
