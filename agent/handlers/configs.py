"""Configs of topics and brokers as Kafka's administrative requests see them.

Topics have the configs of coordination/topic_configs.py. A broker shows the cluster's defaults of these under
Kafka's broker-level names, and a few of the agent's own settings, read-only: files and the environment change
those. The resource "all brokers" (an empty name) holds the cluster's defaults, which can be changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from agent.context import Context
from coordination.topic_configs import TOPIC_CONFIGS, ConfigType, effective


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


@dataclass(frozen=True, slots=True)
class Entry:
    """One config of a resource. `chain` holds (name, value, source), the one in force first."""

    name: str
    value: str
    source: Source
    type: ConfigType
    read_only: bool
    doc: str
    chain: tuple[tuple[str, str, Source], ...]


TOPIC_NAME_BY_BROKER_NAME: dict[str, str] = {
    config.broker_name: config.name for config in TOPIC_CONFIGS.values() if config.broker_name
}


def topic_entries(own: dict[str, str], cluster: dict[str, str]) -> Iterator[Entry]:
    """Every config of a topic."""
    for name, config in sorted(TOPIC_CONFIGS.items()):
        chain: list[tuple[str, str, Source]] = []
        if name in own:
            chain.append((name, own[name], Source.TOPIC))
        chain += _cluster_chain(name, cluster)
        yield Entry(name, chain[0][1], chain[0][2], config.type, False, config.doc, tuple(chain))


def broker_entries(ctx: Context, all_brokers: bool) -> Iterator[Entry]:
    """The configs of one broker, or with `all_brokers` what was set for all of them."""
    cluster = ctx.state.cluster_configs
    for broker_name, name in sorted(TOPIC_NAME_BY_BROKER_NAME.items()):
        if all_brokers and name not in cluster:
            continue
        config = TOPIC_CONFIGS[name]
        chain = _cluster_chain(name, cluster)
        yield Entry(broker_name, chain[0][1], chain[0][2], config.type, False, config.doc, tuple(chain))
    if not all_brokers:
        yield from _own_entries(ctx)


def _own_entries(ctx: Context) -> Iterator[Entry]:
    """The agent's settings that clients ask for by Kafka's names."""
    config = ctx.services.config
    rows = (
        ("auto.create.topics.enable", str(config.topics.auto_create).lower(), ConfigType.BOOLEAN),
        ("connections.max.idle.ms", str(config.limits.connection_idle_ms_max), ConfigType.LONG),
        ("default.replication.factor", "1", ConfigType.INT),
        ("delete.topic.enable", "true", ConfigType.BOOLEAN),
        ("fetch.max.bytes", str(config.fetch.response_bytes_max), ConfigType.INT),
        ("num.partitions", str(config.topics.partitions), ConfigType.INT),
        ("producer.id.expiration.ms", str(config.produce.producer_id_expiration_ms), ConfigType.INT),
        ("socket.request.max.bytes", str(config.limits.request_bytes_max), ConfigType.INT),
    )
    for name, value, kind in rows:
        chain = ((name, value, Source.STATIC_BROKER),)
        yield Entry(name, value, Source.STATIC_BROKER, kind, True, "A setting of the agent.", chain)


def _cluster_chain(name: str, cluster: dict[str, str]) -> list[tuple[str, str, Source]]:
    """Where the value comes from below the topic: the cluster's default, then the built-in one."""
    synonym = TOPIC_CONFIGS[name].broker_name or name
    chain: list[tuple[str, str, Source]] = []
    if name in cluster:
        chain.append((synonym, effective(name, {}, cluster), Source.ALL_BROKERS))
    chain.append((synonym, TOPIC_CONFIGS[name].default, Source.DEFAULT))
    return chain
