"""Puts the Kafka side of an agent together from its ports. No sockets here; agent/app.py adds them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from agent.cluster.hints import LeaderHints
from agent.cluster.lingering import Lingering
from agent.config import Config
from agent.config.users import UsersFile
from agent.health.standing import Standing
from agent.kafka.authority.authority import Authority
from agent.kafka.context import Services
from agent.kafka.fetch.driver import FetchDriver, FetchLimits
from agent.kafka.fetch.frames import Frames
from agent.kafka.fetch.redacted import Redaction
from agent.kafka.fetch.rewriting import Rewriting
from agent.kafka.fetch.sessions import SessionLimits, Sessions
from agent.kafka.groups.consumer.classic_driver import ClassicMembers
from agent.kafka.groups.consumer.driver import ConsumerGroups
from agent.kafka.groups.consumer.runner import Surroundings
from agent.kafka.groups.coordinator import GroupCoordinator
from agent.kafka.handlers import HANDLERS
from agent.kafka.login.logins import Logins
from agent.kafka.login.passwords import Passwords
from agent.kafka.produce.driver import ProduceDriver, PutChunk
from agent.kafka.produce.gaps import Gaps
from agent.kafka.produce.planner import FlushLimits
from agent.kafka.quotas.quotas import Quotas
from agent.kafka.topic_bodies import TopicBodies
from agent.net.tokens.identity import KeySource
from agent.rules.pool import RulesPool
from agent.telemetry.damages import Damages
from agent.telemetry.metrics import Metrics
from agent.telemetry.refusals import Refusals
from agent.telemetry.rule_figures import RuleFigures
from agent.telemetry.shadow import Shadow
from agent.telemetry.trail import Trail
from coordination.clock import Clock
from coordination.replica import Replica
from coordination.state.quarantine_names import topic_of
from objectstore.flush import ChunkPutter
from objectstore.hedged import HedgedReads
from objectstore.lateness import HedgePolicy
from objectstore.merged import MergedRanges
from objectstore.naming import ChunkId
from objectstore.reader import ChunkReader
from objectstore.store import Buffer, ObjectStore, Reads
from schema.validator import ValidatorCache

if TYPE_CHECKING:
    from agent.net.tokens.issued import IssuedTokens

PUT_BURST_S = 0.25  # seconds of the PUT budget that may be used at once
PUT_SHARE = 0.5  # of a Produce's time; the rest is the log's
HEDGE_S_MIN = 0.05  # no request of the store counts as late before this
NEVER_S = 1e9


def flush_limits(config: Config) -> FlushLimits:
    """The flush planner's limits as configured."""
    produce = config.produce
    return FlushLimits(
        buffer_bytes_max=produce.chunk_bytes_max,
        linger_s=produce.linger_ms / 1000,
        quiet_s=produce.quiet_ms / 1000,
        in_flight_max=produce.puts_in_flight_max,
        puts_per_s=produce.puts_per_s_max,
        puts_burst=max(1.0, produce.puts_per_s_max * PUT_BURST_S),
    )


def _fetch_limits(config: Config) -> FetchLimits:
    return FetchLimits(config.fetch.wait_ms_max / 1000, config.fetch.response_bytes_max)


def _hedges(longest_ms: int) -> HedgePolicy:
    hedge_s = longest_ms / 1000 or NEVER_S
    return HedgePolicy(delay_s_min=min(HEDGE_S_MIN, hedge_s) if longest_ms else NEVER_S, delay_s_max=hedge_s)


def reads_of(config: Config, store: ObjectStore, metrics: Metrics) -> Reads:
    """How consumers' records are read from the store: hedged, where that is configured."""
    hedge_ms = config.fetch.hedge_ms
    return HedgedReads(store, _hedges(hedge_ms), metrics.get_hedged.inc) if hedge_ms else store


def open_reader(config: Config, store: Reads) -> ChunkReader:
    """The chunk reader with the configured caches."""
    return ChunkReader(
        store,
        config.fetch.cache_bytes_max,
        cold_bytes_max=config.fetch.cold_cache_bytes_max,
        concurrency_max=config.fetch.cold_reads_in_flight_max,
    )


def put_chunk_of(config: Config, store: ObjectStore, metrics: Metrics) -> PutChunk:
    """How chunks are stored: hedged, and given up early enough to tell the producer that nothing happened."""
    putter = ChunkPutter(store, policy=_hedges(config.produce.hedge_ms))
    seconds = config.produce.commit_timeout_ms / 1000 * PUT_SHARE

    async def put(chunk: ChunkId, parts: Sequence[Buffer]) -> int:
        async with asyncio.timeout(seconds):
            hedges = await putter.put(chunk, parts)
        metrics.put_hedged.inc(hedges)
        return hedges

    return put


def assemble(
    config: Config,
    clock: Clock,
    replica: Replica,
    reader: ChunkReader,
    merged: MergedRanges,
    put_chunk: PutChunk,
    cluster_id: bytes,
    metrics: Metrics,
    standing: Standing,
    damages: Damages | None = None,
    refusals: Refusals | None = None,
    rules: RulesPool | None = None,
    rule_figures: RuleFigures | None = None,
    users: UsersFile | None = None,
    trail: Trail | None = None,
    shadow: Shadow | None = None,
    keys: KeySource | None = None,
    authority: Authority | None = None,
    logins: Logins | None = None,
) -> Services:
    """The services that handlers use. `cluster_id` (16 bytes) goes into every chunk."""
    produce = _produce(config, replica, reader, put_chunk, cluster_id, metrics)
    damages = damages or Damages(clock, metrics)
    trail = trail or Trail(config.audit_log, clock, config.agent_name, metrics)
    fetch = FetchDriver(replica, reader, merged, _fetch_limits(config), metrics, damages)
    hints = LeaderHints(standing.brokers, clock.monotonic)
    authority = authority or authority_of(config, clock, replica, metrics, shadow, trail)
    groups, consumer_groups = _groups(replica, clock, hints, authority)
    _connect(replica, standing, produce, fetch, groups)
    return Services(
        config=config,
        clock=clock,
        replica=replica,
        reader=reader,
        merged=merged,
        produce=produce,
        fetch=fetch,
        sessions=_sessions(config, clock, replica, fetch, metrics),
        rewriting=_rewriting(config, replica, metrics),
        hints=hints,
        groups=groups,
        consumer_groups=consumer_groups,
        validators=_validators(config),
        rules=rules or RulesPool(config.rules),
        rule_figures=_figures(replica, produce, rule_figures or RuleFigures(clock, metrics)),
        metrics=metrics,
        damages=damages,
        refusals=refusals or Refusals(clock, metrics),
        ranges={key: handler.VERSIONS for key, handler in HANDLERS.items()},
        standing=standing,
        trail=trail,
        authority=authority,
        quotas=Quotas(config.quotas, clock, lambda: replica.state.quotas, metrics),
        logins=logins or logins_of(config, clock, replica, metrics, users, keys),
        gaps=Gaps(config.produce),
        lingering=Lingering(config.health.listed_ms / 1000, clock.monotonic),
        topic_bodies=TopicBodies(config.limits.metadata_cache_bytes_max),
        listener_zones={each.name: each.zone for each in config.listeners if each.zone},
    )


def logins_of(
    config: Config,
    clock: Clock,
    replica: Replica,
    metrics: Metrics,
    users: UsersFile | None,
    keys: KeySource | None,
) -> Logins:
    """What is known of users, and of whose tokens count."""
    tokens = None
    if keys is not None:
        from agent.net.tokens.verifying import Tokens  # not all pay for it (agent/net/tokens/identity.py)

        tokens = Tokens(config.oauth, keys, clock)
    return Logins(config, clock, lambda: replica.state, metrics, users, tokens)


def catalog_tokens_of(config: Config, clock: Clock, passwords: Passwords) -> IssuedTokens | None:
    """What gives the catalog's users tokens; None where nobody does."""
    secret = config.catalog.token_secret.get_secret_value().encode()
    if not secret:
        return None
    from agent.net.tokens.issued import IssuedTokens  # not all pay for it

    cluster, lifetime_s = config.cluster.name, config.catalog.session_s
    return IssuedTokens(secret, cluster, lifetime_s, clock, passwords.standing)


def _produce(
    config: Config,
    replica: Replica,
    reader: ChunkReader,
    put_chunk: PutChunk,
    cluster_id: bytes,
    metrics: Metrics,
) -> ProduceDriver:
    """What stores records."""
    driver = ProduceDriver(
        replica,
        put_chunk,
        reader.put_own,
        cluster_id,
        flush_limits(config),
        config.produce.buffer_bytes_max,
        metrics,
    )
    driver.agents = lambda: len(replica.state.brokers)
    return driver


def authority_of(
    config: Config, clock: Clock, replica: Replica, metrics: Metrics, shadow: Shadow | None, trail: Trail
) -> Authority:
    """Who may do what by the ACLs that are applied here."""
    shadow = shadow or Shadow(clock, config.authorizer.shadow_rows_max)
    return Authority(config.authorizer, lambda: replica.state, metrics, shadow, trail)


def _sessions(
    config: Config, clock: Clock, replica: Replica, fetch: FetchDriver, metrics: Metrics
) -> Sessions:
    """What consumers ask for again and again."""
    limits = SessionLimits(
        config.fetch.sessions_max, config.fetch.session_partitions_max, config.fetch.session_stale_ms / 1000
    )
    evicted, refused = metrics.fetch_sessions_evicted.inc, metrics.fetch_sessions_refused.inc
    sessions = Sessions(limits, fetch.waiters, clock.monotonic, clock.random_bits, evicted, refused)
    replica.add_reload_listener(lambda _state: sessions.reloaded())
    return sessions


def _rewriting(config: Config, replica: Replica, metrics: Metrics) -> Rewriting:
    return Rewriting(
        replica,
        Redaction(replica, config.redaction, metrics),
        Frames(replica, config.listeners, metrics),
    )


def _connect(
    replica: Replica,
    standing: Standing,
    produce: ProduceDriver,
    fetch: FetchDriver,
    groups: GroupCoordinator,
) -> None:
    """Who is woken by what is applied, and told when the agent is not well."""
    replica.add_listener(fetch.applied)
    replica.add_reload_listener(lambda _state: fetch.waiters.wake_all())
    _send_away_when_unwell(standing, produce, fetch, groups)


def _figures(replica: Replica, produce: ProduceDriver, figures: RuleFigures) -> RuleFigures:
    """They are told what quarantines get."""
    produce.on_companion = partial(_set_aside, replica, figures)
    return figures


def _set_aside(replica: Replica, figures: RuleFigures, handle: int, records: int) -> None:
    """Count what a quarantine got."""
    partition = replica.state.partitions[handle]
    if partition is not None:
        figures.set_aside(topic_of(partition.topic.name), records)


def _validators(config: Config) -> ValidatorCache:
    return ValidatorCache(
        entries_max=config.schemas.validators_max, allow_unknown=config.schemas.allow_unknown
    )


def _groups(
    replica: Replica, clock: Clock, hints: LeaderHints, authority: Authority
) -> tuple[GroupCoordinator, ConsumerGroups]:
    """The coordinators of both protocols, each knowing the other."""
    groups = GroupCoordinator(replica, hints)
    acls = (lambda: authority.revision) if authority.enforces else None
    consumer_groups = ConsumerGroups(
        Surroundings(replica, clock, groups.became_consumer, groups.became_classic, acls),
        groups.refusal,
        groups.is_coordinator,
    )
    groups.others = ClassicMembers(consumer_groups)
    groups.on_moved.append(consumer_groups.moved)
    groups.on_changed.append(consumer_groups.changed)
    return groups, consumer_groups


def _send_away_when_unwell(
    standing: Standing, produce: ProduceDriver, fetch: FetchDriver, groups: GroupCoordinator
) -> None:
    """Whoever waits here learns at once that others serve."""
    fetch.away = standing.away
    produce.away = lambda: standing.away() and not standing.orderly

    def send_away(log_fails: bool) -> None:
        if not standing.orderly:  # who leaves in good order finishes what it has
            produce.send_away(unknown=log_fails)
        fetch.waiters.wake_all()
        groups.brokers_changed()

    standing.on_away.append(send_away)
