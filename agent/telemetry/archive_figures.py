"""How far the log in the bucket is, as its job at this agent knows it."""

from __future__ import annotations

from agent.telemetry.metrics import Metrics
from coordination.archive.keeper import LogArchive


class ArchiveFigures:
    """Read when Prometheus asks."""

    def __init__(self, metrics: Metrics, archive: LogArchive) -> None:
        self._metrics, self._archive = metrics, archive
        self._told = {"pieces": 0, "bytes": 0, "failures": 0}
        metrics.before_reading.append(self._refresh)

    def _refresh(self) -> None:
        metrics, archive = self._metrics, self._archive
        metrics.archive_lag_seconds.set(archive.lag_s)
        metrics.archive_lag_revisions.set(archive.lag_revisions)
        metrics.archive_missing.set(sum(last - first + 1 for first, last in archive.missing))
        counters = {
            "pieces": metrics.archive_pieces,
            "bytes": metrics.archive_bytes,
            "failures": metrics.archive_failures,
        }
        for name, counter in counters.items():
            now = getattr(archive.counts, name)
            counter.inc(now - self._told[name])
            self._told[name] = now
