"""What Prometheus is told: what was measured, and figures that cost nothing until it asks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from objectstore.tasks import DEFECTS

if TYPE_CHECKING:
    from agent.http.parts import Parts
    from coordination.state.types import Applied


class Gauges:
    """The replica's place in the log, and the sizes of all queues and caches."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._applied = 0
        self._behind_since: float | None = None
        self._reading = asyncio.Lock()
        parts.replica.add_listener(self._note)

    async def text(self) -> bytes:
        """All metrics as Prometheus reads them.

        What belongs to the event loop is read there; the rest, which takes longer, in a thread. One reader at
        a time: figures by topic go away and come back before each.
        """
        async with self._reading:
            metrics = self._parts.metrics
            for refresh in metrics.before_reading:
                refresh()
            return await asyncio.to_thread(_text, list(self._collect()), metrics.registry)

    def _note(self, applied: Applied) -> None:
        self._applied += 1
        self._look()

    def _look(self) -> float:
        """Seconds since this replica was first seen behind; 0 when it is not."""
        now = self._parts.clock.monotonic()
        if not self._parts.replica.lag:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now
        return 0.0 if self._behind_since is None else now - self._behind_since

    def _collect(self) -> Iterator[Metric]:
        """The figures that nobody counts, as of now."""
        replica = self._parts.replica
        yield _gauge("revision", "Log revision applied", replica.revision)
        yield _gauge("lag_revisions", "Revisions known to be in the log and not applied", replica.lag)
        yield _gauge("lag_seconds", "Seconds since this agent was first seen behind the log", self._look())
        health = self._parts.health
        yield _gauge("ready", "1 when /readyz answers 200", int(not health.reasons()))
        yield _gauge("event_loop_delay_seconds", "The latest of the newest turns", health.delay.worst_s)
        checks = GaugeMetricFamily("floe_check", "1 while a check of /readyz is fine", labels=["name"])
        for found in health.findings():
            checks.add_metric([found.name], int(found.ok))
        yield checks
        yield from self._failing()
        skew_ms = replica.clock_watch.skew_ms
        yield _gauge("clock_skew_ms", "Distance of this agent's clock from what most agents say", skew_ms)
        waiting = replica.status()["queued_bytes"]
        yield _gauge("replica_queue_bytes", "Bytes of commands waiting for their append", float(str(waiting)))
        yield CounterMetricFamily("floe_applied_entries", "Log entries applied", value=self._applied)
        reads = CounterMetricFamily("floe_reads", "Reads of records by where they came from", labels=["kind"])
        for name, value in self._parts.reads().items():
            reads.add_metric([name], value)
        yield reads
        queues = GaugeMetricFamily("floe_queue", "Queues and caches; units in the names", labels=["name"])
        for name, value in self._parts.queues().items():
            queues.add_metric([name], value)
        yield queues

    def _failing(self) -> Iterator[Metric]:
        """Jobs that fail, and what failed as nobody expected."""
        jobs = GaugeMetricFamily(
            "floe_job_failing_since_seconds",
            "Unix time of the first failure since a success",
            labels=["name"],
        )
        for trouble in self._parts.health.failing():
            jobs.add_metric([trouble.name], trouble.since_ms / 1000)
        yield jobs
        text = "Exceptions that nobody expected, by where they ended"
        defects = CounterMetricFamily("floe_defects", text, labels=["place"])
        for place, count in DEFECTS.counts.items():
            defects.add_metric([place], count)
        yield defects
        # Each count begins with a defect, at 1, of which `increase` knows nothing: alerts ask for the time.
        text = "Unix time of the newest exception that nobody expected, by where it ended"
        newest = GaugeMetricFamily("floe_newest_defect_seconds", text, labels=["place"])
        ahead_s = self._parts.clock.now_ms() / 1000 - asyncio.get_running_loop().time()
        for place, at in DEFECTS.times.items():
            newest.add_metric([place], ahead_s + at)
        yield newest


class _Everything:
    """Figures that were read, and a registry's."""

    def __init__(self, read: list[Metric], registry: CollectorRegistry) -> None:
        self._read, self._registry = read, registry

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client.registry.Collector."""
        return chain(self._read, self._registry.collect())


def _text(read: list[Metric], registry: CollectorRegistry) -> bytes:
    return generate_latest(_Everything(read, registry))


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"floe_{name}", text, value=value)
