"""Configs of topics, brokers and groups as Kafka's administrative requests see them.

What can be set stands in coordination's tables: topic_configs.py, broker_configs.py, group_configs.py. A
broker shows the cluster's configs, which are the same on every agent, and read-only its agent's own
settings: files and the environment change those. The resource "all brokers" (an empty name) is what was set
for the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import dropwhile

from agent.kafka.context import Context
from coordination.broker_configs import BROKER_CONFIGS, BrokerConfig
from coordination.config_types import NAME_SHOWN_MAX, ConfigType
from coordination.group_configs import GROUP_CONFIGS
from coordination.group_configs import text as group_text
from coordination.topic_configs import TOPIC_CONFIGS, TopicConfig, effective

LOG_DIR = "object-store"  # the one "directory" there is, in log.dirs and DescribeLogDirs
UNKNOWN_TYPE = 0
FOR_ALL = "It counts for the whole cluster, whichever broker is named."


class Resource(IntEnum):
    """Resource types of the config requests (ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Source(IntEnum):
    """Where a value comes from (DescribeConfigsResponse.ConfigSource)."""

    TOPIC = 1
    ALL_BROKERS = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    GROUP = 8


Chain = tuple[tuple[str, str, Source], ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One config of a resource. `chain` holds (name, value, source), the one in force first."""

    name: str
    value: str | None
    source: Source
    type: int
    read_only: bool
    doc: str
    chain: Chain


def topic_entries(own: Mapping[str, str], cluster: Mapping[str, str]) -> Iterator[Entry]:
    """Every config of a topic."""
    for name, config in sorted(TOPIC_CONFIGS.items()):
        chain = _cluster_chain(config, cluster)
        source = chain[0][2] if chain else Source.DEFAULT
        if name in own:
            chain, source = ((name, own[name], Source.TOPIC), *chain), Source.TOPIC
        yield Entry(name, effective(name, own, cluster), source, config.type, False, config.doc, chain)


def topic_source(name: str, own: Mapping[str, str], cluster: Mapping[str, str]) -> Source:
    """Where the value of a topic's config comes from."""
    if name in own:
        return Source.TOPIC
    chain = _cluster_chain(TOPIC_CONFIGS[name], cluster)
    return chain[0][2] if chain else Source.DEFAULT


def _cluster_chain(config: TopicConfig, cluster: Mapping[str, str]) -> Chain:
    """Where the value comes from below the topic: the cluster's default, then the built-in one.

    A default that Kafka spells in a coarser unit only, such as log.retention.hours, is not listed by it.
    """
    if not config.broker_name:
        return ()
    names = [config.broker_name, *(name for name, _ in config.coarser)]
    chain = [(name, cluster[name], Source.ALL_BROKERS) for name in names if name in cluster]
    defaults = [
        (name, BROKER_CONFIGS[name].default, Source.DEFAULT)
        for name in names
        if not BROKER_CONFIGS[name].unset
    ]
    if not chain:
        defaults = list(dropwhile(lambda each: each[0] != config.broker_name, defaults))
    return (*chain, *defaults)


def all_brokers_entries(ctx: Context) -> Iterator[Entry]:
    """What was set for the whole cluster."""
    for name, value in sorted(ctx.state.cluster_configs.items()):
        config = BROKER_CONFIGS[name]
        chain = ((name, value, Source.ALL_BROKERS),)
        yield Entry(name, value, Source.ALL_BROKERS, config.type, config.read_only, config.doc, chain)


def broker_entries(ctx: Context, node_id: int) -> Iterator[Entry]:
    """Every config of one broker. Another agent's own settings are known only as far as it announces them."""
    own = _own_settings(ctx, node_id)
    for name, config in sorted(BROKER_CONFIGS.items()):
        chain = _broker_chain(config, ctx.state.cluster_configs, own)
        value, source = (chain[0][1], chain[0][2]) if chain else (None, Source.DEFAULT)
        doc = config.doc if config.read_only else f"{config.doc} {FOR_ALL}"
        yield Entry(name, value, source, config.type, config.read_only, doc, chain)


def _broker_chain(config: BrokerConfig, cluster: Mapping[str, str], own: Mapping[str, str]) -> Chain:
    name = config.name
    chain: list[tuple[str, str, Source]] = []
    if name in cluster:
        chain.append((name, cluster[name], Source.ALL_BROKERS))
    if name in own:
        chain.append((name, own[name], Source.STATIC_BROKER))
    if not config.unset:
        chain.append((name, config.default, Source.DEFAULT))
    return tuple(chain)


def _own_settings(ctx: Context, node_id: int) -> dict[str, str]:
    """An agent's own settings by Kafka's names."""
    broker = ctx.state.brokers[node_id]
    settings = {
        "advertised.listeners": ",".join(f"{e.name}://{e.host}:{e.port}" for e in broker.listeners),
        "broker.id": str(node_id),
        "listener.security.protocol.map": ",".join(f"{e.name}:PLAINTEXT" for e in broker.listeners),
        "log.dirs": LOG_DIR,
        "node.id": str(node_id),
        "process.roles": "broker",
    }
    if broker.zone:
        settings["broker.rack"] = broker.zone
    if broker.incarnation == ctx.services.replica.incarnation:
        config = ctx.services.config
        settings |= {
            "connections.max.idle.ms": str(config.limits.connection_idle_ms_max),
            "fetch.max.bytes": str(config.fetch.response_bytes_max),
            "listeners": ",".join(f"{each.name}://{each.host}:{each.port}" for each in config.listeners),
            "max.connections": str(config.limits.connections_max),
            "socket.request.max.bytes": str(config.limits.request_bytes_max),
        }
    return settings


def no_broker(name: str, called: str) -> str:
    """Why a resource that should be a broker is none: not a number, or that of no live broker."""
    shown = name[:NAME_SHOWN_MAX]
    if not name.isdecimal():
        return f"{called} must be an integer, but it is: {shown}"
    return f"Unexpected broker id, expected that of a live broker or an empty string, but received {shown}"


def group_entries(ctx: Context, group_id: str) -> Iterator[Entry]:
    """Every config of a group, which need not exist."""
    own, cluster = ctx.state.group_configs.get(group_id, {}), ctx.state.cluster_configs
    for name, config in sorted(GROUP_CONFIGS.items()):
        below = BROKER_CONFIGS.get(config.broker_name)
        chain = _broker_chain(below, cluster, {}) if below else ((name, config.default, Source.DEFAULT),)
        if name in own:
            chain = ((name, own[name], Source.GROUP), *chain)
        value = group_text(ctx.state, group_id, name)
        yield Entry(name, value, chain[0][2], config.type, False, config.doc, chain)


def logger_entries(ctx: Context) -> Iterator[Entry]:
    """The level of this agent's log, the only logger it has."""
    level = ctx.services.config.logging.level.replace("warning", "warn").upper()
    yield Entry("root", level, Source.BROKER_LOGGER, UNKNOWN_TYPE, True, "", ())


def client_metrics_entries() -> Iterator[Entry]:
    """A subscription that asks for nothing: client telemetry is not offered."""
    for name, value, kind in (
        ("interval.ms", "300000", ConfigType.INT),
        ("match", "", ConfigType.LIST),
        ("metrics", "", ConfigType.LIST),
    ):
        yield Entry(name, value, Source.DEFAULT, kind, True, "Client telemetry is not offered.", ())
