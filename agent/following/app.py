"""The composition root of a replica: an agent whose log is the archive in the bucket, taking part in nothing.

Not begun of an agent: jobs, peers, the relay, groups, the audit log's writer. Order of a start: HTTP → the
bucket says whose it is → Kafka's sockets, whose requests wait → snapshot and archive → serve who comes.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from starlette.types import ASGIApp

from agent.app import RETRY_S, App
from agent.config import Config
from agent.dependencies import replica_options, store_of
from agent.following.authority import ReadersOnly
from agent.following.refusing import NOT_SERVED, ReadOnlyDispatcher, ReadOnlyHttp
from agent.health.binding import LOOK_S
from agent.health.health import Health, Signals
from agent.health.watched import WatchedLog
from agent.http import HealthRoutes, Parts
from agent.kafka.context import Services
from agent.telemetry.logs import logger
from agent.telemetry.measured import MeasuredLog
from agent.version import VERSION
from coordination.clock import Clock, SystemClock
from coordination.following import ArchivedLog, FollowingReplica, FollowOptions
from coordination.log import Log
from coordination.state.types import serving_of
from objectstore import fingerprint, tasks
from objectstore.fingerprint import COPY_OF, BrokenFingerprint, Fingerprint, ForeignBucket
from objectstore.naming import FINGERPRINT_KEY
from objectstore.reading_only import ReadOnlyStore
from objectstore.store import NoBucket, NotFound, ObjectStore, Retryable, StoreError

_log = logger("following")


class ReadersHealth(Health):
    """Tries no write."""

    async def _write(self) -> None:
        """Nothing is written, so nothing says that it could not be."""


class ReplicaApp(App):
    """One replica. Made inside the event loop that it lives in. `config.store.url` is the bucket."""

    health_type = ReadersHealth
    dispatcher_type = ReadOnlyDispatcher
    replica: FollowingReplica

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock | None = None,
        store: ObjectStore | None = None,
        config_file: Path | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        clock = clock or SystemClock()
        reading = ReadOnlyStore(store or store_of(config, clock))
        given = config.follow
        self.archived = ArchivedLog(reading, FollowOptions(given.poll_ms / 1000, given.gap_wait_ms / 1000))
        super().__init__(
            config,
            clock=clock,
            log=self.archived,
            store=reading,
            config_file=config_file,
            memory_bytes=memory_bytes,
        )
        self.health.add("archive", lambda: self.archived.problem, leaves=False)
        self.metrics.before_reading.append(self._tell_behind)
        self._looks: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve. Waits while the bucket is away; safe to cancel, then `stop`.

        Raises OSError for a port that is taken, ForeignBucket, BrokenFingerprint, StateError, ReplicaFailed.
        """
        await self._show_itself()
        found = await self._found()
        self.archived.log = log_of_bucket(found, self.config.cluster.name)
        services = self._assembled(found.cluster_id)
        await self._open(services)
        self.health.waits_for = "this replica reads the log that the bucket has"
        await self.replica.start(self._registration(""))
        self.health.waits_for = ""
        services.lingering.listed(serving_of(self.standing.brokers().values()))
        self._serving.set()
        self.health.start()
        self._looks = tasks.start(self._look_again(found), "looks at cluster.json")
        _log.info(
            "following",
            kafka=self.kafka_ports,
            http=self.http_port,
            log=self.archived.log,
            revision=self.replica.revision,
            version=VERSION,
        )

    async def stop(self) -> None:
        """See App."""
        if self._looks is not None:
            self._looks.cancel()
        await super().stop()

    # What is other than at an agent.

    def _replica(self) -> FollowingReplica:
        options = replica_options(self.config)
        return FollowingReplica(self.log, self.store, self.clock, options, self.archived)

    def _followed(self, log: Log, signals: Signals) -> Log:
        """No relay has it."""
        self.relayed = None
        return MeasuredLog(WatchedLog(log, signals.log_reads, signals.appends), self.metrics)

    def _know_people(self) -> None:
        super()._know_people()
        self._authority = ReadersOnly(
            self.config.authorizer, lambda: self.replica.state, self.metrics, self.shadow, self.trail
        ).read_only()

    def _routes(self, parts: Parts, health: HealthRoutes) -> ASGIApp:
        return ReadOnlyHttp(super()._routes(parts, health))

    def _assembled(self, cluster_id: bytes) -> Services:
        services = super()._assembled(cluster_id)
        services.ranges = {key: each for key, each in services.ranges.items() if key not in NOT_SERVED}
        services.fetch.objects_come_late = True
        return services

    def _tell_behind(self) -> None:
        self.metrics.follow_behind_seconds.set(self.replica.behind_s)
        self.metrics.follow_blocked.set(int(bool(self.archived.problem)))

    # The bucket.

    async def _found(self) -> Fingerprint:
        """Whose bucket it is. Waits until it is there. Raises BrokenFingerprint, StoreError."""
        while True:
            try:
                found, _ = await fingerprint.stored(self.store)
            except (NotFound, NoBucket, Retryable) as error:
                missing = f"it has no {FINGERPRINT_KEY} (yet): {error}"
                self._wait_for("store", Retryable(missing) if isinstance(error, NotFound) else error)
            else:
                self._answers("store")
                return found
            await self.clock.sleep(RETRY_S)

    async def _look_again(self, found: Fingerprint) -> None:
        """End when the bucket is given to another log: whoever starts again follows that one."""
        while True:
            await self.clock.sleep(LOOK_S)
            try:
                now, _ = await fingerprint.stored(self.store)
            except (StoreError, BrokenFingerprint):
                continue
            if now != found:
                self.replica.give_up(
                    ForeignBucket(
                        f"the bucket was given from log {found.log_identity!r} to {now.log_identity!r} (a "
                        "restore, or the promotion of a copy): start this replica again to follow that one"
                    )
                )
                return


def log_of_bucket(found: Fingerprint, cluster: str) -> str:
    """The identity of the log whose archive the bucket has. Raises ForeignBucket."""
    if found.cluster != cluster:
        raise ForeignBucket(
            f"the bucket is of cluster {found.cluster!r}, cluster.name says {cluster!r}: name the bucket "
            "with the cluster's prefix, or correct cluster.name"
        )
    if found.log_identity.startswith(COPY_OF):
        return found.restored_from
    if found.restored_from:
        raise ForeignBucket(
            f"the bucket is being restored into log {found.log_identity!r}: finish that, then start again"
        )
    return found.log_identity
