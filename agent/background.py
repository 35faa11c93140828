"""What an agent does beside serving: snapshots, producer expiry, collection, tables."""

from __future__ import annotations

from agent.collection import Collection, make_collector
from agent.config import Config
from agent.metrics import Metrics
from agent.tables import catalog_of, committers_of
from coordination.clock import Clock
from coordination.jobs import Job, ProducerExpiry
from coordination.log import Log
from coordination.replica import Replica
from coordination.snapshot_keeper import SnapshotKeeper, SnapshotOptions
from iceberg.service import CommitterService
from objectstore.merged import MergedRanges
from objectstore.reader import ChunkReader
from objectstore.store import ObjectStore

EXPIRY_POLL_S = 600.0


class Background:
    """The jobs of one agent. Each is safe to run on every agent: claims in the log say who acts."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        replica: Replica,
        log: Log,
        store: ObjectStore,
        reader: ChunkReader,
        merged: MergedRanges,
        metrics: Metrics,
    ) -> None:
        self.catalog = catalog_of(config, replica, store, clock)
        self._tables: CommitterService | None = None
        if config.tables.enabled:
            self._tables = committers_of(config, replica, reader, merged, store, clock, metrics)
        snapshots = SnapshotOptions(
            revisions=config.snapshots.entries_max, seconds=config.snapshots.interval_s
        )
        self._jobs: list[Job] = [
            SnapshotKeeper(replica, log, store, snapshots),
            ProducerExpiry(replica, clock, poll_s=EXPIRY_POLL_S),
        ]
        collection = config.collection
        if collection.enabled:
            self._jobs.append(
                Collection(
                    replica,
                    make_collector(replica, store, clock, collection.grace_s),
                    metrics,
                    interval_s=collection.interval_s,
                    dry_run=collection.dry_run,
                )
            )

    async def start(self) -> None:
        """Begin every job."""
        for job in self._jobs:
            job.start()
        if self._tables is not None:
            await self._tables.start()

    async def stop(self) -> None:
        """End every job, wherever it is. Idempotent."""
        if self._tables is not None:
            await self._tables.stop()
        for job in reversed(self._jobs):
            await job.stop()
