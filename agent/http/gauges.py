"""What Prometheus is told: what was measured, and figures that cost nothing until it asks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from agent.config import memory
from agent.telemetry.figures import FIGURES, QUEUES, READS, families
from coordination.replica import Verdict
from objectstore.tasks import DEFECTS

if TYPE_CHECKING:
    from agent.http.parts import Parts
    from coordination.state.types import Applied

DEPENDENCIES = {"log": ("log", "append"), "store": ("store", "store write")}
"""What an agent depends on, and the checks that say whether it is there."""


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

    async def samples(self) -> dict[str, list[tuple[Mapping[str, str], float]]]:
        """The same as values, by metric: labels and value of each."""
        async with self._reading:
            metrics = self._parts.metrics
            for refresh in metrics.before_reading:
                refresh()
            return await asyncio.to_thread(_samples, list(self._collect()), metrics.registry)

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
        parts, health = self._parts, self._parts.health
        for name, value in self._plain().items():
            yield FIGURES[name].family([((), value)])
        limit = parts.memory_bytes
        yield FIGURES["memory_limit_bytes"].family([] if limit is None else [((), limit)])
        checks = {found.name: found.ok for found in health.findings()}
        yield FIGURES["check"].family(((name,), int(ok)) for name, ok in checks.items())
        up = (((name,), int(all(checks[each] for each in asked))) for name, asked in DEPENDENCIES.items())
        yield FIGURES["dependency_up"].family(up)
        yield from self._failing()
        if parts.files is not None:
            stale = parts.files.stale
            needed = (((name,), int(name in stale)) for name in parts.files.settings())
            yield FIGURES["restart_needed"].family(needed)
        yield from families(parts.reads(), READS)
        yield from families(parts.queues(), QUEUES)
        yield from parts.metrics.traffic.families(parts.config.telemetry.topics_max)

    def _plain(self) -> dict[str, float]:
        """Those without labels, by name."""
        parts, replica, health = self._parts, self._parts.replica, self._parts.health
        return {
            "revision": replica.revision,
            "lag_revisions": replica.lag,
            "lag_seconds": self._look(),
            "ready": int(not health.reasons()),
            "drained": int(parts.standing is not None and parts.standing.drained and not health.faults()),
            "event_loop_delay_seconds": health.delay.worst_s,
            "clock_skew_ms": replica.clock_watch.skew_ms,
            "state_disputes": sum(replica.doubt.counts[each.value] for each in Verdict),
            "state_rebuilds": replica.doubt.counts["rebuilt"],
            "replica_queue_bytes": float(str(replica.status()["queued_bytes"])),
            "deleted_topics": len(replica.state.deleted),
            "deleted_topics_bytes": sum(each.size_bytes for each in replica.state.deleted.values()),
            "held_partitions": len(replica.state.holding),
            "applied_entries": self._applied,
            "produce_buffer_bytes_max": parts.config.produce.buffer_bytes_max,
            "memory_needed_bytes": memory.needed(parts.config),
        }

    def _failing(self) -> Iterator[Metric]:
        """Jobs that fail, and what failed as nobody expected."""
        failing = (((each.name,), each.since_ms / 1000) for each in self._parts.health.failing())
        yield FIGURES["job_failing_since_seconds"].family(failing)
        yield FIGURES["defects"].family(((place,), count) for place, count in DEFECTS.counts.items())
        # Each count begins with a defect, at 1, of which `increase` knows nothing: alerts ask for the time.
        ahead_s = self._parts.clock.now_ms() / 1000 - asyncio.get_running_loop().time()
        newest = (((place,), ahead_s + at) for place, at in DEFECTS.times.items())
        yield FIGURES["newest_defect_seconds"].family(newest)


class _Everything:
    """Figures that were read, and a registry's."""

    def __init__(self, read: list[Metric], registry: CollectorRegistry) -> None:
        self._read, self._registry = read, registry

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client.registry.Collector."""
        return chain(self._read, self._registry.collect())


def _samples(
    read: list[Metric], registry: CollectorRegistry
) -> dict[str, list[tuple[Mapping[str, str], float]]]:
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for family in _Everything(read, registry).collect():
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def _text(read: list[Metric], registry: CollectorRegistry) -> bytes:
    return generate_latest(_Everything(read, registry))
