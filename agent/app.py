"""The composition root: one agent from its configuration to its end. Start reading here.

Order of a start: HTTP (so that probes are answered while the rest waits) → log and store reachable, the
bucket is this cluster's (rule 11) → Kafka's sockets, whose requests wait → snapshot, catch up, register →
serve who comes → read ahead → enter Metadata → background jobs. A stop goes the other way: leave Metadata,
send clients away, finish flushes and answers, end the incarnation, close.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from starlette.types import ASGIApp

from agent.background.jobs import Background
from agent.cluster.peers.service import Peers, warmer_of
from agent.cluster.relay.service import Relaying, relayed
from agent.config import Config, advertised
from agent.config.rules import scheme
from agent.dependencies import log_of, replica_options, store_of
from agent.health.binding import Binding
from agent.health.files import watch_files
from agent.health.health import Health, Signals
from agent.health.standing import Standing
from agent.health.watched import WatchedLog, WatchedStore
from agent.http import HealthRoutes, HttpServer, Inside, Parts, build
from agent.kafka.asking import Asking
from agent.kafka.assembly import (
    assemble,
    authority_of,
    catalog_tokens_of,
    logins_of,
    open_reader,
    put_chunk_of,
    reads_of,
)
from agent.kafka.context import Services
from agent.kafka.dispatch import Dispatcher
from agent.kafka.login.passwords import Passwords
from agent.kafka.order import ENDED
from agent.kafka.showing import Showing
from agent.kafka.traced import TracedDispatcher
from agent.kafka.trail.writer import TrailWriter
from agent.net.admission import Admission
from agent.net.configured import server_limits
from agent.net.doors import Doors
from agent.net.listening import RequestContext
from agent.net.server import Server
from agent.net.tokens.identity import Bearers
from agent.net.wire.frame import RequestHeader
from agent.net.wire.primitives import Buffer
from agent.registering import registration
from agent.rules.pool import RulesPool
from agent.telemetry.damages import Damages
from agent.telemetry.episodes import Episodes
from agent.telemetry.exporting import Exporting
from agent.telemetry.logs import logger
from agent.telemetry.measured import MeasuredLog
from agent.telemetry.metrics import Metrics
from agent.telemetry.native import build_facts
from agent.telemetry.refusals import Refusals
from agent.telemetry.rule_figures import RuleFigures
from agent.telemetry.shadow import Shadow
from agent.telemetry.told_figures import told_now
from agent.telemetry.tracing import Traces
from agent.telemetry.trail import Trail
from agent.version import VERSION
from coordination.clock import Clock, SystemClock
from coordination.commands import RegisterAgent
from coordination.log import Log, Unavailable
from coordination.replica import Replica
from coordination.state.scram import SECRET_BYTES
from coordination.state.types import serving_of
from coordination.trouble import Troubles
from objectstore.fingerprint import Fingerprint, claim_when_reachable
from objectstore.merged import MergedRanges
from objectstore.store import ObjectStore

_log = logger("app")

RETRY_S = 0.5  # between two tries to ask the log who it is
STOP_SHARE = 0.7  # of the bound of a stop, for flushes and answers; the rest closes things


class App:
    """One agent. Made inside the event loop that it lives in.

    `log` and `store` replace the configured ones (tests share memory ones between agents). `config_file`:
    where the configuration came from; `memory_bytes`: what it was made to fit. Both are told of.
    `watched_at`: where the process that watches several agents asks it; None: nobody does.
    """

    health_type: type[Health] = Health
    dispatcher_type: type[Dispatcher] = Dispatcher
    _services: Services | None = None
    _dispatcher: Dispatcher | TracedDispatcher | None = None
    _exporting: Exporting | None = None
    _trail_writer: TrailWriter
    _stopping = False
    peers: Peers | None = None
    relaying: Relaying | None = None
    http_port = 0

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock | None = None,
        log: Log | None = None,
        store: ObjectStore | None = None,
        config_file: Path | None = None,
        memory_bytes: int | None = None,
        watched_at: Path | None = None,
    ) -> None:
        self.config, self.memory_bytes = config, memory_bytes
        self.clock = clock or SystemClock()
        self.metrics = Metrics()
        self.damages, self.refusals = Damages(self.clock, self.metrics), Refusals(self.clock, self.metrics)
        self.rules, self.rule_figures = RulesPool(config.rules), RuleFigures(self.clock, self.metrics)
        self.trail = self._trail()
        self.shadow = Shadow(self.clock, config.authorizer.shadow_rows_max)
        self.traces, signals, troubles = self._tracing(), Signals(), Troubles(self.clock.now_ms)
        log, store = log or log_of(config, self.clock), store or store_of(config, self.clock)
        self.log = self._followed(log, signals)
        self.store: ObjectStore = WatchedStore(store, signals.store_reads, signals.store_writes)
        self.replica = self._replica()
        self.reader = open_reader(config, reads := reads_of(config, self.store, self.metrics))
        self.merged = MergedRanges(reads, config.fetch.index_cache_bytes_max)
        self.background = Background(
            config,
            self.clock,
            self.replica,
            self.log,
            self.store,
            self.reader,
            self.merged,
            self.metrics,
            troubles,
            self.trail,
            self.traces,
        )
        self.health = self.health_type(config, self.replica, self.store, signals, troubles)
        self.files = watch_files(config, config_file, log)
        self.binding = Binding(self.store, self.replica.give_up)
        self.standing = Standing(config, self.replica, self.health, asyncio.get_running_loop().time)
        self.warmer = warmer_of(config, self.replica, self.reader)
        self._waits = {what: _waiting_for(what) for what in ("log", "store")}
        self._serving, self.kafka_ports = asyncio.Event(), list[int]()
        self._admission = Admission(config.quotas, self.metrics, self.clock.monotonic)
        self._server = Server(self._dispatch, server_limits(config), self.metrics, ENDED, self._admission)
        self._know_people()
        self._show(watched_at)
        self.replica.on_wake.append(self._server.drop_all)

    def _show(self, watched_at: Path | None) -> None:
        """What answers by HTTP, to everybody and to the process that watches this one."""
        parts = self._parts()
        health = HealthRoutes(parts)
        routes = self._routes(parts, health)
        self._http = HttpServer(routes, self.config.http, self._doors.http, self.metrics)
        self._inside = None if watched_at is None else Inside(watched_at, health, self._about)

    def _routes(self, parts: Parts, health: HealthRoutes) -> ASGIApp:
        return build(parts, health)

    def _replica(self) -> Replica:
        return Replica(self.log, self.store, self.clock, replica_options(self.config))

    def _followed(self, log: Log, signals: Signals) -> Log:
        """The log as this agent uses it: by the zone's relay where there is one, watched, measured."""
        self.relayed = relayed(self.config, log)
        watched = WatchedLog(self.relayed or log, signals.log_reads, signals.appends)
        return MeasuredLog(watched, self.metrics)

    def _tracing(self) -> Traces:
        """What requests and commits tell of their time, for a collector. Raises ConfigError."""
        self.metrics.build.info(build_facts())
        config, now = self.config.traces, asyncio.get_running_loop().time
        traces = Traces(config, self.clock, self.metrics, now)
        if traces.on:
            about = {
                "service.name": "floe",
                "service.version": VERSION,
                "service.instance.id": self.config.agent_name,
                "floe.cluster": self.config.cluster.name,
                "cloud.availability_zone": self.config.agent.zone,
            }
            self._exporting = Exporting(config, traces, self.clock, about)
        return traces

    def _trail(self) -> Trail:
        """Who did what; the newest of it is remembered for the console."""
        config = self.config
        remembered = config.console.changes_remembered_max if config.console.enabled else 0
        return Trail(config.audit_log, self.clock, config.agent_name, self.metrics, remembered)

    def _know_people(self) -> None:
        """Who comes in and who may do what, for Kafka and HTTP. Reads files. Raises ConfigError."""
        config = self.config
        self._doors = Doors(config, self.metrics)
        self._authority = authority_of(
            config, self.clock, self.replica, self.metrics, self.shadow, self.trail
        )
        self._logins = logins_of(
            config, self.clock, self.replica, self.metrics, self._doors.users, self._doors.keys
        )
        self._passwords = Passwords(self._logins, self.clock.random_bytes(SECRET_BYTES))
        self._tokens = catalog_tokens_of(config, self.clock, self._passwords)

    @property
    def kafka_port(self) -> int:
        """The bound port of the first Kafka listener."""
        return self.kafka_ports[0]

    async def start(self) -> None:
        """Serve. Waits while log or store are away; safe to cancel, then `stop`.

        Raises OSError for a port that is taken, ForeignBucket, StateError, ReplicaFailed, LogRegressed.
        """
        await self._show_itself()
        fingerprint = await self._claim_bucket()
        if scheme(self.config.log.url) == "etcd":
            self.binding.start(fingerprint)
        services = self._assembled(fingerprint.cluster_id)
        await self._open(services)
        peer_address = await self._start_peers(fingerprint)
        await self.replica.start(self._registration(peer_address))
        services.lingering.listed(serving_of(self.standing.brokers().values()))  # from now on never nobody
        self._serving.set()
        self._trail_writer.start()
        warming = self.warmer.warm_up(self.config.peers.warm_ms_max / 1000)
        await asyncio.gather(warming, self.standing.give_way())
        await self.replica.enter()
        services.groups.start()
        services.consumer_groups.start()
        self.health.start()
        await self.background.start(fingerprint)
        _log.info(
            "serving",
            kafka=self.kafka_ports,
            http=self.http_port,
            node_id=self.replica.node_id,
            version=VERSION,
        )

    async def _show_itself(self) -> None:
        """Answer probes, and read files again from now on."""
        self.metrics.before_reading.append(self._forget_topics)
        self.http_port = await self._http.start()
        if self._inside is not None:
            await self._inside.start()
        self._doors.start()
        if self._exporting is not None:
            self._exporting.start()
        await self.files.start()

    def _assembled(self, cluster_id: bytes) -> Services:
        """What handlers use, and what writes down who used it."""
        services = assemble(
            self.config,
            self.clock,
            self.replica,
            self.reader,
            self.merged,
            self.binding.guarding(put_chunk_of(self.config, self.store, self.metrics)),
            cluster_id,
            self.metrics,
            self.standing,
            self.damages,
            self.refusals,
            self.rules,
            self.rule_figures,
            trail=self.trail,
            authority=self._authority,
            logins=self._logins,
        )
        self._trail_writer = TrailWriter(
            self.config.audit_log, self.trail, services.produce, self.replica, self.clock, self.metrics
        )
        return services

    async def _open(self, services: Services) -> None:
        """Let clients in. Raises OSError for a port that is taken."""
        services.hang_up = self._server.hang_up
        self._admission.limit_addresses(services.quotas.connection_rate, services.quotas.limits_addresses)
        self._services, dispatcher = services, self.dispatcher_type(services)
        self._dispatcher = TracedDispatcher(dispatcher, self.traces) if self.traces.on else dispatcher
        self.kafka_ports = await self._server.start(self._doors.listeners)

    async def stop(self) -> None:
        """Leave in good order within `shutdown.timeout_ms`. Idempotent; safe after a failed start."""
        if self._stopping:
            return
        self._stopping = self.health.stopping = True
        config = self.config.shutdown
        if self._serving.is_set() and self.replica.ready:
            await self._leave(config.drain_ms / 1000)
        await self._doors.stop()
        await self.health.stop()
        await self.files.stop()
        await self.binding.stop()
        await self.background.stop()
        if self._services is not None:
            # Requests of a start that was given up wait for what will not come.
            seconds = config.timeout_ms / 1000 * STOP_SHARE if self._serving.is_set() else 0.0
            await self._finish(self._services, seconds)
        await self.rules.close()
        await self.warmer.close()
        if self.peers is not None:
            await self.peers.stop()
        await self.replica.stop()
        await self.merged.close()
        await self.reader.close()
        await self._http.stop()
        if self._inside is not None:
            await self._inside.stop()
        if self._exporting is not None:
            await self._exporting.stop()
        if self._services is not None:
            self._trail_writer.close()
        await self.store.close()
        await self.log.close()
        _log.info("stopped")

    async def _leave(self, drain_s: float) -> None:
        """Leave Metadata; clients are sent away once the others know, `drain_s` later at most."""
        await self.replica.leave()
        await self.replica.known_to_others(drain_s)
        self.standing.send_away()
        await asyncio.sleep(drain_s)

    async def _finish(self, services: Services, seconds: float) -> None:
        """Answer parked polls, flush what was admitted, let the answers leave."""
        services.fetch.leave()
        await services.groups.stop()
        await services.consumer_groups.stop()
        if seconds:
            drains = asyncio.gather(services.produce.drain(), self._server.drain(seconds))
            try:
                async with asyncio.timeout(seconds):
                    await drains
            except TimeoutError:
                _log.warning("not everything was flushed in time", seconds=seconds)
        await self._trail_writer.stop()  # after what it tells of, before what it writes by
        await services.produce.close()
        await self._server.drain(0)

    async def _dispatch(
        self, context: RequestContext, header: RequestHeader, body: memoryview
    ) -> list[Buffer] | None:
        """Requests that come before the agent serves wait for it."""
        if not self._serving.is_set():
            await self._serving.wait()
        assert self._dispatcher is not None, "serving without a dispatcher"
        return await self._dispatcher(context, header, body)

    async def _claim_bucket(self) -> Fingerprint:
        """Wait for the log and the store, and compare what they say of the cluster (rule 11)."""
        identity = await self._log_identity()
        ours = Fingerprint(self.config.cluster.name, self.clock.random_bytes(16), identity)
        fingerprint = await claim_when_reachable(
            self.store, ours, self.clock, lambda error, _pause: self._wait_for("store", error)
        )
        self._answers("store")
        return fingerprint

    async def _log_identity(self) -> str:
        while True:
            try:
                identity = await self.log.identity()
                self._answers("log")
                return identity
            except Unavailable as error:
                self._wait_for("log", error)
            await self.clock.sleep(RETRY_S)

    def _wait_for(self, what: str, error: Exception) -> None:
        """Say in the log and in `/readyz` what keeps this start waiting."""
        self._waits[what].met(what, error=str(error))
        self.health.waits_for = f"this agent waits for the {what}, and starts once it is there: {error}"

    def _answers(self, what: str) -> None:
        self._waits[what].over(what)
        self.health.waits_for = ""

    async def _start_peers(self, fingerprint: Fingerprint) -> str:
        """Read within the zone; gives the address for other agents, empty without. Raises OSError."""
        config = self.config.peers
        if not config.enabled or scheme(self.config.log.url) == "sqlite":
            return ""
        self.peers = Peers(
            self.config,
            self.clock,
            self.replica,
            self.reader,
            self.store,
            fingerprint.cluster_id,
            self.metrics,
            lambda: told_now(self.config.agent_name, self.metrics, self.health.reasons()).encoded(),
        )
        if self.relayed is not None:
            server, client = self.peers.server, self.peers.client
            self.relaying = Relaying(self.config, self.relayed, self.replica, server, client)
        return f"{advertised(config.host, config.advertised_host)}:{await self.peers.start()}"

    def _registration(self, peer_address: str) -> RegisterAgent:
        return registration(self.config, self.kafka_ports, self.http_port, peer_address)

    def _about(self) -> Mapping[str, object]:
        """Who this is and where it answers, for the process that watches it."""
        return {"node_id": self.replica.node_id, "kafka": self.kafka_ports, "http": self.http_port}

    def _parts(self) -> Parts:
        """What HTTP shows."""
        return Parts(
            config=self.config,
            metrics=self.metrics,
            replica=self.replica,
            store=self.store,
            clock=self.clock,
            catalog=self.background.catalog,
            damages=self.damages,
            refusals=self.refusals,
            rules=self.rules,
            rule_figures=self.rule_figures,
            passwords=self._passwords,
            tokens=self._tokens,
            bearers=Bearers([each for each in (self._tokens, self._logins.tokens) if each is not None]),
            authority=self._authority,
            trail=self.trail,
            shadow=self.shadow,
            committers=self.background.committers,
            latest=self.background.latest,
            publishers=self.background.publishers,
            archive=self.background.archive,
            scrub=lambda: self.background.scrub,
            lags=self.background.lag_history,
            peers=lambda: self.peers.client if self.peers is not None else None,
            kafka=lambda: Showing(self._services) if self._services and self._serving.is_set() else None,
            asked=lambda: Asking(self._services) if self._services and self._serving.is_set() else None,
            queues=self._queues,
            reads=self._reads,
            health=self.health,
            standing=self.standing,
            traces=self.traces,
            files=self.files,
            memory_bytes=self.memory_bytes,
        )

    def _forget_topics(self) -> None:
        """Metrics name topics that are there only."""
        topics = self.replica.state.topics
        for each in (self.damages, self.refusals.topics, self.rule_figures, self.metrics.traffic):
            each.keep(topics.__contains__)

    def _reads(self) -> Mapping[str, int]:
        stats = self.reader.stats
        counts = {
            "tail_hits": stats.tail_hits,
            "cold_hits": stats.cold_hits,
            "misses": stats.misses,
            "gets": stats.gets,
            "get_bytes": stats.get_bytes,
            "index_gets": self.merged.reads,
            "warmed_bytes": self.warmer.warmed_bytes,
        }
        others = [each.counts() for each in (self.peers, self.relaying) if each is not None]
        return counts | {name: count for each in others for name, count in each.items()}

    def _queues(self) -> Mapping[str, int]:
        stats = self.reader.stats
        sizes = {
            "connections": self._server.connections,
            "request_bytes": self._server.request_bytes,
            "cached_bytes": self.reader.cached_bytes,
            "index_cached_bytes": self.merged.cached_bytes,
            "tail_hits": stats.tail_hits,
            "cold_hits": stats.cold_hits,
            "cold_reads": stats.misses,
            **self.rules.sizes,
        }
        if self._services is not None:
            sizes["produce_buffered_bytes"] = self._services.produce.buffered_bytes
            sizes["produce_held_bytes"] = self._services.produce.budget.used
            sizes["fetch_parked"] = self._services.fetch.waiters.count
            sizes["fetch_sessions"] = self._services.sessions.count
            sizes["fetch_session_partitions"] = self._services.sessions.partitions
            sizes["leader_changes"] = self._services.hints.changes
            sizes["groups_classic"] = len(self._services.groups.running())
            sizes["groups_consumer"] = self._services.consumer_groups.running()
        return sizes


def _waiting_for(what: str) -> Episodes:
    """The lines of a start that waits."""
    now = asyncio.get_running_loop().time
    return Episodes(_log, now, begins=f"waiting for the {what}", ends=f"the {what} answers")
