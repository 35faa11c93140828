"""The job that removes objects nothing references (rule 9). Every agent runs it; one holds the claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.telemetry.logs import logger
from agent.telemetry.metrics import Metrics
from coordination.clock import Clock
from coordination.commands import ChunkId as ChunkIdMessage
from coordination.commands import ForgetChunks, ForgetSegments
from coordination.jobs import Job
from coordination.replica import Replica
from coordination.replica.clock_watch import deletion_ms
from coordination.state import ClaimHolder
from coordination.steps import reach, steps
from objectstore.collect import Backing, Collector, Report, Standing, always
from objectstore.collect_merged import MergedCollector
from objectstore.grace import Grace
from objectstore.merged import MergedRanges
from objectstore.naming import ChunkId, ManifestId, SegmentId
from objectstore.store import ObjectStore, StoreError

_log = logger("collection")


class StateView:
    """The replicated state as the collector looks at it. At least as fresh as the last `catch_up`."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    async def catch_up(self) -> None:
        """See LogView and MergedView. Raises Unavailable."""
        await self._replica.barrier()

    def standing(self, incarnation: int) -> Standing:
        """See LogView."""
        known = self._replica.state.incarnations.get(incarnation)
        if known is None:
            return Standing.UNKNOWN
        return Standing.LIVE if known.live else Standing.FENCED

    def is_referenced(self, chunk: ChunkId) -> bool:
        """See LogView."""
        return chunk in self._replica.state.chunks.serials

    def released(self) -> Mapping[ChunkId, int]:
        """See LogView."""
        return self._replica.state.chunks.garbage

    def manifest_of(self, partition: int) -> ManifestId | None:
        """See MergedView."""
        state = self._replica.state
        found = state.partitions[partition] if partition < len(state.partitions) else None
        found = found or state.leaving.get(partition) or state.deleted_partitions.get(partition)
        return found.merged.manifest if found is not None and found.merged is not None else None

    def let_go_whole(self, partition: int) -> bool:
        """See MergedView."""
        return partition in self._replica.state.whole_garbage

    def released_segments(self) -> Mapping[SegmentId, int]:
        """See MergedView."""
        return self._replica.state.segment_garbage

    def released_manifests(self) -> Mapping[ManifestId, tuple[int, bool]]:
        """See MergedView."""
        return self._replica.state.manifest_garbage


class Collection(Job):
    """Runs the collector every `interval_s`; with `dry_run` it only says what it would remove."""

    claim = "collection"

    def __init__(
        self,
        replica: Replica,
        collector: Collector,
        merged: MergedCollector,
        metrics: Metrics,
        *,
        interval_s: float,
        dry_run: bool = False,
    ) -> None:
        super().__init__(replica, interval_s)
        self._collector = collector
        self._merged = merged
        self._metrics = metrics
        self._dry_run = dry_run

    async def step(self, held: ClaimHolder) -> None:
        """One pass over what the state released and what fenced authors left."""
        reach("collect/list")
        report = Report(self._dry_run, blind=True)
        with self.item("chunks"):
            report = await self._collector.run(dry_run=self._dry_run)
        with self.item("segments and manifests"):
            await self._merged.run(report)
        for warning in report.warnings:
            _log.warning(warning)
        if report.failed:
            self.item_failed("objects that stay", StoreError("; ".join(report.failed)), level=0)
        else:
            self.item_worked("objects that stay")
        if not report.dry_run:
            self._metrics.collected_objects.inc(len(report.deleted))
        if report.deleted:
            _log.info(
                "collected" if not report.dry_run else "would collect",
                objects=len(report.deleted),
                bytes=report.deleted_bytes,
            )


def grace_of(replica: Replica, clock: Clock, grace_s: float) -> Grace:
    """A grace that the clock of one agent does not end early."""
    return Grace(int(grace_s * 1000), lambda: deletion_ms(replica.state, clock.now_ms()), clock.monotonic)


def make_collector(
    replica: Replica, store: ObjectStore, clock: Clock, grace_s: float, backed: Backing = always
) -> Collector:
    """The collector over this agent's state and store."""

    @steps("collect/forget", "collect/forgotten")
    async def forget(chunks: Sequence[ChunkId]) -> None:
        named = [ChunkIdMessage(incarnation=chunk.incarnation, number=chunk.number) for chunk in chunks]
        await replica.propose(ForgetChunks(chunks=named))

    remove = steps("collect/delete", "collect/deleted")(store.delete)
    return Collector(store, StateView(replica), forget, grace_of(replica, clock, grace_s), remove, backed)


def make_merged_collector(
    replica: Replica,
    store: ObjectStore,
    merged: MergedRanges,
    clock: Clock,
    grace_s: float,
    backed: Backing = always,
) -> MergedCollector:
    """The collector of segments and manifests over this agent's state and store."""

    @steps("collect/forget-merged")
    async def forget(segments: Sequence[SegmentId], manifests: Sequence[ManifestId]) -> None:
        forgotten = ForgetSegments(
            segment_incarnation=[each.incarnation for each in segments],
            segment_partition=[each.partition for each in segments],
            segment_number=[each.number for each in segments],
            manifest_incarnation=[each.incarnation for each in manifests],
            manifest_partition=[each.partition for each in manifests],
            manifest_number=[each.number for each in manifests],
        )
        await replica.propose(forgotten)

    remove = steps("collect/delete-merged")(store.delete)
    grace = grace_of(replica, clock, grace_s)
    return MergedCollector(store, merged, StateView(replica), forget, grace, remove, backed)
