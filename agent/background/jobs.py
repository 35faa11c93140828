"""What an agent does beside serving: snapshots, expiry, retention, compaction, collection, tables."""

from __future__ import annotations

from agent.background.catalogs import late_of, publishers_of
from agent.background.collection import Collection, grace_of, make_collector, make_merged_collector
from agent.background.expiry.positions import OffsetExpiry
from agent.background.expiry.records import RecordsPurge
from agent.background.expiry.topics import TopicPurge
from agent.background.expiry.transactions import TransactionTimeouts
from agent.background.group_lag import GroupLags
from agent.background.retention.job import LogRetention
from agent.background.rewriting.compaction.job import Compaction
from agent.background.rewriting.compaction.partition import Parts as CompactionParts
from agent.background.rewriting.compaction.sources import Sources
from agent.background.rewriting.compaction.worker import HelperWorker
from agent.background.rewriting.decisions import Decisions
from agent.background.rewriting.merging.job import Merging
from agent.background.rewriting.merging.merge import Parts as MergingParts
from agent.background.rewriting.merging.planner import MergeRules
from agent.background.rewriting.merging.worker import Worker
from agent.background.scrub.figures import ScrubFigures
from agent.background.scrub.job import Bucket, Scrub, ScrubOptions
from agent.background.tables import catalog_of, committers_of, latest_of, parts_of, warehouse_of
from agent.config import Config
from agent.telemetry.archive_figures import ArchiveFigures
from agent.telemetry.catalog_figures import CatalogFigures
from agent.telemetry.lag_history import LagHistory
from agent.telemetry.metrics import Metrics
from agent.telemetry.tracing import Traces
from agent.telemetry.trail import Trail
from coordination.archive.backed import Backed
from coordination.archive.keeper import ArchiveOptions, LogArchive
from coordination.clock import Clock
from coordination.jobs import Job, ProducerExpiry
from coordination.log import Log
from coordination.replica import Replica
from coordination.snapshot_keeper import SnapshotKeeper, SnapshotOptions
from coordination.trouble import Trouble, Troubles
from iceberg.service import CommitterService
from iceberg.upsert.service import UpsertService
from objectstore.collect import always
from objectstore.fingerprint import Fingerprint
from objectstore.merged import MergedRanges
from objectstore.reader import ChunkReader
from objectstore.store import ObjectStore

EXPIRY_POLL_S = 600.0
SNAPSHOT_TAKES_S_MAX = 60.0  # from when it is due until it is recorded
COMPACTION_READS_MAX = 2  # of the store, at once


class Background:
    """The jobs of one agent. Each is safe to run on every agent: claims in the log say who acts."""

    scrub: Scrub | None = None
    """What reads the bucket again and mends it; None where it is not to, or before the start."""

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
        troubles: Troubles,
        trail: Trail | None = None,
        traces: Traces | None = None,
    ) -> None:
        self._config, self._clock, self._replica = config, clock, replica
        self._store, self._merged, self._metrics = store, merged, metrics
        self._reader = reader
        self._troubles = troubles
        troubles.more.append(self._failing_items)
        self.catalog = catalog_of(config, replica, store, clock, trail)
        self.committers: CommitterService | None = None
        """What makes tables of topics; None where `tables.enabled` is false."""
        self.latest: UpsertService | None = None
        """What keeps the tables of topics' newest rows; None likewise."""
        if config.tables.enabled:
            parts = parts_of(config, replica, reader, merged, store, clock)
            self.committers = committers_of(config, parts, metrics, traces)
            self.latest = latest_of(config, parts, metrics, traces)
        self.publishers = publishers_of(config, replica, store)
        """What tells other catalogs of tables, one for each of `catalogs`."""
        figures = CatalogFigures(metrics, lambda: late_of(self.publishers))
        for each in self.publishers:
            each.note = figures.noting(each.options.name)
        self.lag_history = LagHistory(config.console)
        """How far groups were behind, for the console."""
        self._lags = GroupLags(replica, clock, metrics, config.telemetry.groups_max, self.lag_history)
        snapshots = SnapshotOptions(config.snapshots.entries_max, config.snapshots.interval_s)
        self.archive = self._archive(log) if config.archives_log else None
        """What copies the log to the bucket; None where it is not to be."""
        self._snapshots = SnapshotKeeper(replica, log, store, snapshots)
        self._jobs: list[Job] = [
            self._snapshots,
            *([] if self.archive is None else [self.archive]),
            OffsetExpiry(replica, clock),
            LogRetention(replica, merged, clock, metrics),
            TransactionTimeouts(replica, clock),
            TopicPurge(replica, clock),
            RecordsPurge(replica, clock),
            ProducerExpiry(replica, clock, poll_s=EXPIRY_POLL_S),
            *self.publishers,
        ]
        if config.collection.enabled:
            self._jobs.append(self._collection(log))

    async def start(self, fingerprint: Fingerprint) -> None:
        """Begin every job. Its cluster id goes into every segment.

        Nothing is asked of the log or the store here: this agent is named to clients by now.
        """
        cluster_id = fingerprint.cluster_id
        if self._config.merging.enabled:
            self._jobs.append(self._merging(cluster_id))
        if self._config.compaction.enabled:
            self._jobs.append(self._compaction(cluster_id))
        if self._config.scrub.enabled:
            self.scrub = self._scrub(fingerprint)
            self._jobs.append(self.scrub)
        for job in self._jobs:
            job.troubles = self._troubles
            job.start()
        self._lags.start()
        if self.committers is not None:
            self.committers.troubles = self._troubles
            await self.committers.start()
        if self.latest is not None:
            self.latest.troubles = self._troubles
            await self.latest.start()

    def _failing_items(self) -> list[Trouble]:
        """The partitions, topics and objects that single jobs pass over."""
        now_ms = self._clock.now_ms()
        return [each for job in self._jobs for each in job.failing_items(now_ms)]

    async def stop(self) -> None:
        """End every job, wherever it is. Idempotent."""
        await self._lags.stop()
        if self.latest is not None:
            await self.latest.stop()
        if self.committers is not None:
            await self.committers.stop()
        for job in reversed(self._jobs):
            await job.stop()

    def _archive(self, log: Log) -> LogArchive:
        given = self._config.log_archive
        options = ArchiveOptions(given.interval_ms / 1000, given.piece_bytes, given.waiting_bytes_max)
        archive = LogArchive(self._replica, log, self._store, options)
        ArchiveFigures(self._metrics, archive)
        return archive

    def _collection(self, log: Log) -> Collection:
        """The job that removes objects that the log does not know."""
        replica, store, clock, options = self._replica, self._store, self._clock, self._config.collection
        backed = always
        if self._config.archives_log:
            wait_s = self._config.snapshots.interval_s + SNAPSHOT_TAKES_S_MAX
            backed = Backed(replica, log, store, wait_s).catches_up
        return Collection(
            replica,
            make_collector(replica, store, clock, options.grace_s, backed),
            make_merged_collector(replica, store, self._merged, clock, options.grace_s, backed),
            self._metrics,
            interval_s=options.interval_s,
            dry_run=options.dry_run,
        )

    def _scrub(self, fingerprint: Fingerprint) -> Scrub:
        """The job that scrubs."""
        config, given = self._config, self._config.scrub
        bucket = Bucket(
            self._replica,
            self._store,
            self._merged,
            self._reader,
            warehouse_of(config),
            self._clock,
            fingerprint,
            self._snapshots.write,
        )
        rules = (given.bytes_per_s, given.round_s, given.begin_s, given.repair, config.collection.grace_s)
        scrub = Scrub(bucket, ScrubOptions(*rules, 2 * config.merging.segment_bytes))  # as one merge holds
        ScrubFigures(self._metrics, scrub)
        return scrub

    def _merging(self, cluster_id: bytes) -> Merging:
        """The job that merges small slices."""
        config = self._config.merging
        parts = MergingParts(
            self._replica,
            self._store,
            self._merged,
            Worker(),
            self._clock,
            cluster_id,
            MergeRules(
                config.min_slices,
                config.keep_slices,
                config.tail_slices_max,
                config.segment_bytes,
                config.age_s,
            ),
            self._decisions(),
        )
        return Merging(parts, self._metrics, poll_s=config.interval_ms / 1000)

    def _decisions(self) -> Decisions:
        return Decisions(grace_of(self._replica, self._clock, self._config.merging.skipped_wait_s))

    def _compaction(self, cluster_id: bytes) -> Compaction:
        """The job that compacts, with a reader that leaves the caches of clients alone."""
        reader = ChunkReader(self._store, 0, cold_bytes_max=0, concurrency_max=COMPACTION_READS_MAX)
        parts = CompactionParts(
            self._replica,
            self._store,
            self._merged,
            Sources(reader),
            HelperWorker(),
            self._clock,
            cluster_id,
            self._decisions(),
            self._config.merging.segment_bytes,
            self._config.tables.enabled,
        )
        return Compaction(parts, self._metrics, dirty_bytes_min=self._config.compaction.dirty_bytes_min)
