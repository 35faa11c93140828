"""What scrubbing has read, found and mended, as its job at this agent knows it."""

from __future__ import annotations

from dataclasses import fields

from agent.background.scrub.job import Scrub
from agent.telemetry.metrics import Metrics


class ScrubFigures:
    """Read when Prometheus asks."""

    def __init__(self, metrics: Metrics, scrub: Scrub) -> None:
        self._metrics, self._scrub = metrics, scrub
        self._counters = {
            "bytes": metrics.scrub_bytes,
            "objects": metrics.scrub_objects,
            "found": metrics.scrub_found,
            "repaired": metrics.scrub_repaired,
            "unread": metrics.scrub_unread,
        }
        metrics.before_reading.append(self._refresh)

    def _refresh(self) -> None:
        self._metrics.scrub_beyond_repair.set(len(self._scrub.beyond))
        self._metrics.scrub_round_seconds.set(self._scrub.round_seconds)
        for at, told in self._scrub.watched:
            for name in (each.name for each in fields(told)):
                now = getattr(at.counts, name)
                if name in self._counters:
                    self._counters[name].inc(max(0, now - getattr(told, name)))
                setattr(told, name, now)
