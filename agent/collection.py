"""The job that removes chunks nothing references (rule 9). Every agent runs it; one holds the claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.logs import logger
from agent.metrics import Metrics
from coordination.clock import Clock
from coordination.commands import ChunkId as ChunkIdMessage
from coordination.commands import ForgetChunks
from coordination.jobs import Job
from coordination.replica import Replica
from coordination.state import ClaimHolder
from objectstore.collect import Collector, Report, Standing
from objectstore.naming import ChunkId
from objectstore.store import ObjectStore

_log = logger("collection")


class StateView:
    """The replicated state as the collector looks at it. Fresh as of the last `catch_up`."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._referenced: frozenset[ChunkId] = frozenset()

    async def catch_up(self) -> None:
        """See LogView. Raises Unavailable."""
        await self._replica.barrier()
        self._referenced = frozenset(chunk.id for chunk in self._replica.state.chunks.by_serial.values())

    def standing(self, incarnation: int) -> Standing:
        """See LogView."""
        known = self._replica.state.incarnations.get(incarnation)
        if known is None:
            return Standing.UNKNOWN
        return Standing.LIVE if known.live else Standing.FENCED

    def is_referenced(self, chunk: ChunkId) -> bool:
        """See LogView."""
        return chunk in self._referenced

    def released(self) -> Mapping[ChunkId, int]:
        """See LogView."""
        return self._replica.state.chunks.garbage


class Collection(Job):
    """Runs the collector every `interval_s`; with `dry_run` it only says what it would remove."""

    claim = "collection"

    def __init__(
        self,
        replica: Replica,
        collector: Collector,
        metrics: Metrics,
        *,
        interval_s: float,
        dry_run: bool = False,
    ) -> None:
        super().__init__(replica, interval_s)
        self._collector = collector
        self._metrics = metrics
        self._dry_run = dry_run

    async def step(self, held: ClaimHolder) -> None:
        """One pass over what the state released and what fenced authors left."""
        report: Report = await self._collector.run(dry_run=self._dry_run)
        for warning in report.warnings:
            _log.warning(warning)
        if not report.dry_run:
            self._metrics.collected_objects.inc(len(report.deleted))
        if report.deleted:
            _log.info(
                "collected" if not report.dry_run else "would collect",
                objects=len(report.deleted),
                bytes=report.deleted_bytes,
            )


def make_collector(replica: Replica, store: ObjectStore, clock: Clock, grace_s: float) -> Collector:
    """The collector over this agent's state and store."""

    async def forget(chunks: Sequence[ChunkId]) -> None:
        named = [ChunkIdMessage(incarnation=chunk.incarnation, number=chunk.number) for chunk in chunks]
        await replica.propose(ForgetChunks(chunks=named))

    return Collector(store, StateView(replica), forget, clock.now_ms, int(grace_s * 1000))
