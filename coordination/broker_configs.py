"""The broker configs that clients and tools can notice, for the whole cluster.

One table serves apply, DescribeConfigs and the paths that act on a config. What was set is held in the state
(`cluster_configs`, by the names here) and counts on every agent: there is no properties file per broker. The
defaults of topic configs stand under Kafka's broker names for them (coordination/topic_configs.py). Names,
types, defaults and bounds are Apache Kafka 4.3's; where Kafka would have to be restarted, Floe is not, so
that more of them may be changed while it runs. `read_only` ones are shown as they are: an agent's own
settings, and what nothing here would act on. What can be changed is acted on, or is the default of a topic
config, which topics show.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from coordination.config_types import INT_MAX, LONG_MAX, NAME_SHOWN_MAX, Config, ConfigType, split_list
from coordination.topic_configs import HOUR_MS, MINUTE_MS, QUARANTINE, TOPIC_CONFIGS

PARTITIONS_PER_TOPIC_MAX = 10_000
PARTITIONS_PER_ANSWER_MAX = 100_000


@dataclass(frozen=True, slots=True)
class BrokerConfig(Config):
    """A config of the cluster's brokers.

    `topic_config` names the topic config whose default this is, "" where it is none; below feature level
    `since` the config cannot be set. `unset` says that
    Kafka has no default: it is described as null, and `coarser` (name, unit in ms) are asked in its place.
    """

    read_only: bool = False
    topic_config: str = ""
    unset: bool = False
    coarser: tuple[tuple[str, int], ...] = ()
    since: int = 1


_B, _S, _I, _L, _D, _LIST, _SHORT = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
    ConfigType.SHORT,
)
_NONE = "No effect in Floe: "
_THREADS = _NONE + "an agent has its own pools."
_DISK = _NONE + "there are no log segments on broker disks."
_REPLICAS = _NONE + "there are no replicas."
_INNER = _NONE + "there is no such topic inside."
_SHARE = _NONE + "there are no share groups."
_STREAMS = _NONE + "there is no streams rebalance protocol."
_OWN = "A setting of the agent's own: its file or environment changes it."


def _acting(
    name: str,
    kind: ConfigType,
    default: str,
    doc: str,
    low: float = -LONG_MAX,
    high: float = LONG_MAX,
    since: int = 1,
) -> BrokerConfig:
    return BrokerConfig(name, kind, default, doc, low, high, in_effect=True, since=since)


def _idle(
    name: str, kind: ConfigType, default: str, doc: str, low: float = -LONG_MAX, high: float = LONG_MAX
) -> BrokerConfig:
    return BrokerConfig(name, kind, default, doc, low, high, read_only=True)


def _shown(name: str, kind: ConfigType, default: str, doc: str = _OWN, unset: bool = False) -> BrokerConfig:
    return BrokerConfig(name, kind, default, doc, read_only=True, unset=unset)


_TOPICS = (
    _acting("auto.create.topics.enable", _B, "true",
            "Whether a topic that a client asks for and wants created is created."),
    _acting("num.partitions", _I, "1", "Partitions of a topic whose creator names no number.",
            1, PARTITIONS_PER_TOPIC_MAX),
    _idle("default.replication.factor", _I, "1", _REPLICAS, 1, 32767),
    _acting("delete.topic.enable", _B, "true", "Whether topics can be deleted."),
    _acting("max.request.partition.size.limit", _I, "2000",
            "Most partitions in one page of DescribeTopicPartitions.", 1, PARTITIONS_PER_ANSWER_MAX),
    _acting("producer.id.expiration.ms", _I, "86400000",
            "An idempotent producer idle for this long, ms, is forgotten.", 1, INT_MAX),
    _acting("floe.producers.max", _I, "2000000",
            "Most idempotent producers that the cluster remembers, counted per partition that they write to. "
            "Beyond it the longest idle ones go in partitions that have more than their share.",
            1, INT_MAX, since=2),
    _shown("producer.id.expiration.check.interval.ms", _I, "600000",
           _NONE + "the job that forgets idle producers has a pace of its own."),
)  # fmt: skip

_RETENTION = (
    BrokerConfig("log.retention.hours", _I, "168",
                 "As log.retention.ms, in hours; counts where neither that nor log.retention.minutes is set.",
                 -1, INT_MAX, in_effect=True),
    BrokerConfig("log.retention.minutes", _I, "",
                 "As log.retention.ms, in minutes; counts where that is not set.",
                 -1, INT_MAX, in_effect=True, unset=True,
                 coarser=(("log.retention.hours", HOUR_MS // MINUTE_MS),)),
    _acting("log.roll.hours", _I, "168", "As log.roll.ms, in hours; counts where that is not set.",
            1, INT_MAX),
    BrokerConfig("log.roll.jitter.hours", _I, "0", _DISK, 0, INT_MAX),
    _acting("log.retention.check.interval.ms", _L, "300000",
            "Time between two looks for records that are past their retention, ms.", 1),
    _shown("log.cleaner.enable", _B, "true", "Compacted topics are always compacted."),
    _acting("log.cleaner.backoff.ms", _L, "15000",
            "Time between two looks for partitions to compact, ms, when there were none.", 0),
    _idle("log.cleaner.threads", _I, "1", _THREADS, 0, INT_MAX),
    _acting("log.cleaner.dedupe.buffer.size", _L, "134217728",
            "Memory for the keys of one pass of compaction, bytes; a key takes about 150."),
    _idle("log.cleaner.io.buffer.size", _I, "524288", _THREADS, 0, INT_MAX),
    _idle("log.cleaner.io.buffer.load.factor", _D, "0.9", _THREADS),
    _idle("log.cleaner.io.max.bytes.per.second", _D, "1.7976931348623157E308", _THREADS, 0, math.inf),
    _shown("log.flush.scheduler.interval.ms", _L, str(LONG_MAX),
           _NONE + "an acknowledged record is durable."),
    _shown("log.flush.offset.checkpoint.interval.ms", _I, "60000", _DISK),
    _shown("log.flush.start.offset.checkpoint.interval.ms", _I, "60000", _DISK),
)  # fmt: skip

_GROUPS = (
    _acting("group.initial.rebalance.delay.ms", _I, "3000",
            "How long the first rebalance of an empty classic group waits for more members, ms.", 0, INT_MAX),
    _acting("group.min.session.timeout.ms", _I, "6000",
            "Shortest session timeout that a member of a classic group may ask for, ms.", 0, INT_MAX),
    _acting("group.max.session.timeout.ms", _I, "1800000",
            "Longest session timeout that a member of a classic group may ask for, ms.", 0, INT_MAX),
    _acting("group.max.size", _I, str(INT_MAX), "Most members of a classic group.", 1, INT_MAX),
    _acting("offset.metadata.max.bytes", _I, "4096", "Longest metadata of a committed offset, bytes.",
            0, 1 << 20),
    _acting("offsets.retention.minutes", _I, "10080",
            "How long the offsets of a group without members are kept, minutes.", 1, INT_MAX),
    _acting("offsets.retention.check.interval.ms", _L, "600000",
            "Time between two looks for offsets past their retention, ms.", 1),
    _shown("group.coordinator.rebalance.protocols", _LIST, "classic,consumer",
           "The protocols that groups may speak; the feature group.version switches `consumer`."),
    _shown("group.coordinator.threads", _I, "4", _THREADS),
    _shown("group.coordinator.background.threads", _I, "2", _THREADS),
    _shown("group.coordinator.append.linger.ms", _I, "-1",
           _NONE + "what is ready goes into one log entry."),
    _idle("group.coordinator.cached.buffer.max.bytes", _I, "1048588", _THREADS, 524288, INT_MAX),
    _shown("offsets.commit.timeout.ms", _I, "5000", _NONE + "a commit waits for its log entry."),
    _shown("offsets.load.buffer.size", _I, "5242880", _INNER),
    _shown("offsets.topic.compression.codec", _I, "0", _INNER),
    _shown("offsets.topic.num.partitions", _I, "50", _INNER),
    _shown("offsets.topic.replication.factor", _SHORT, "3", _INNER),
    _shown("offsets.topic.segment.bytes", _I, "104857600", _INNER),
)  # fmt: skip

_CONSUMER_GROUPS = (
    _acting("group.consumer.session.timeout.ms", _I, "45000",
            "A member of a consumer group that is silent for this long, ms, is taken for gone.", 1, INT_MAX),
    _acting("group.consumer.min.session.timeout.ms", _I, "45000",
            "Least consumer.session.timeout.ms of a group, ms.", 1, INT_MAX),
    _acting("group.consumer.max.session.timeout.ms", _I, "60000",
            "Most consumer.session.timeout.ms of a group, ms.", 1, INT_MAX),
    _acting("group.consumer.heartbeat.interval.ms", _I, "5000",
            "Time between heartbeats that members of consumer groups are told to keep, ms.", 1, INT_MAX),
    _acting("group.consumer.min.heartbeat.interval.ms", _I, "5000",
            "Least consumer.heartbeat.interval.ms of a group, ms.", 1, INT_MAX),
    _acting("group.consumer.max.heartbeat.interval.ms", _I, "15000",
            "Most consumer.heartbeat.interval.ms of a group, ms.", 1, INT_MAX),
    _acting("group.consumer.assignment.interval.ms", _I, "1000",
            "Least time between two assignments of a consumer group, ms.", 0, INT_MAX),
    _acting("group.consumer.min.assignment.interval.ms", _I, "0",
            "Least consumer.assignment.interval.ms of a group, ms.", 0, INT_MAX),
    _acting("group.consumer.max.assignment.interval.ms", _I, "15000",
            "Most consumer.assignment.interval.ms of a group, ms.", 0, INT_MAX),
    _acting("group.consumer.max.size", _I, str(INT_MAX), "Most members of a consumer group.", 1, INT_MAX),
    BrokerConfig("group.consumer.assignors", _LIST, "uniform,range",
                 "The server's assignors; the first is that of members who name none.",
                 choices=("uniform", "range"), in_effect=True),
    BrokerConfig("group.consumer.migration.policy", _S, "bidirectional",
                 "Whether a group with members may move between the classic and the consumer protocol.",
                 pattern=re.compile("(?i)disabled|downgrade|upgrade|bidirectional"), in_effect=True),
    _idle("group.consumer.regex.refresh.interval.ms", _I, "600000",
          _NONE + "a regular expression is matched again whenever topics come, go or grow.", 10_000, INT_MAX),
)  # fmt: skip

_OTHER_GROUPS = (
    _idle("group.share.session.timeout.ms", _I, "45000", _SHARE, 1, INT_MAX),
    _idle("group.share.heartbeat.interval.ms", _I, "5000", _SHARE, 1, INT_MAX),
    _idle("group.share.record.lock.duration.ms", _I, "30000", _SHARE, 1000, HOUR_MS),
    _idle("group.share.delivery.count.limit", _I, "5", _SHARE, 2, 10),
    _idle("group.share.partition.max.record.locks", _I, "2000", _SHARE, 100, 10_000),
    _idle("group.share.assignment.interval.ms", _I, "1000", _SHARE, 0, INT_MAX),
    _idle("group.streams.session.timeout.ms", _I, "45000", _STREAMS, 1, INT_MAX),
    _idle("group.streams.heartbeat.interval.ms", _I, "5000", _STREAMS, 1, INT_MAX),
    _idle("group.streams.initial.rebalance.delay.ms", _I, "3000", _STREAMS, 0, INT_MAX),
    _idle("group.streams.assignment.interval.ms", _I, "1000", _STREAMS, 0, INT_MAX),
    _idle("group.streams.num.standby.replicas", _I, "0", _STREAMS, 0, INT_MAX),
)  # fmt: skip

_TRANSACTIONS = (
    _acting("transaction.max.timeout.ms", _I, "900000",
            "Longest transaction timeout that a producer may ask for, ms.", 1, INT_MAX, since=2),
    _acting("transactional.id.expiration.ms", _I, "604800000",
            "A transactional id idle for this long, ms, is forgotten.", 1, INT_MAX, since=2),
    _acting("transaction.abort.timed.out.transaction.cleanup.interval.ms", _I, "10000",
            "Time between two looks for transactions past their timeout, ms.", 1, INT_MAX, since=2),
    _acting("transaction.remove.expired.transaction.cleanup.interval.ms", _I, "3600000",
            "Time between two looks for transactional ids past their expiration, ms.", 1, INT_MAX, since=2),
    _shown("transaction.partition.verification.enable", _B, "true", "Always checked."),
    _shown("transaction.two.phase.commit.enable", _B, "false", "Not offered."),
    _shown("transaction.state.log.load.buffer.size", _I, "5242880", _INNER),
    _shown("transaction.state.log.min.isr", _I, "2", _INNER),
    _shown("transaction.state.log.num.partitions", _I, "50", _INNER),
    _shown("transaction.state.log.replication.factor", _SHORT, "3", _INNER),
    _shown("transaction.state.log.segment.bytes", _I, "104857600", _INNER),
)  # fmt: skip

_AGENT = (
    _shown("advertised.listeners", _LIST, "", unset=True),
    _shown("broker.id", _I, "-1"),
    _shown("broker.rack", _S, "", unset=True),
    _shown("connections.max.idle.ms", _L, "600000"),
    _shown("fetch.max.bytes", _I, "57671680"),
    _shown("listener.security.protocol.map", _S,
           "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"),
    _shown("listeners", _LIST, "PLAINTEXT://:9092"),
    _shown("log.dirs", _LIST, "", unset=True),
    _shown("max.connections", _I, str(INT_MAX)),
    _shown("node.id", _I, "", unset=True),
    _shown("process.roles", _LIST, "", unset=True),
    _shown("socket.request.max.bytes", _I, "104857600"),
    _shown("authorizer.class.name", _S, "", "There is no authoriser."),
    _shown("inter.broker.listener.name", _S, "", "Agents do not speak Kafka's protocol to each other.", True),
    _shown("security.inter.broker.protocol", _S, "PLAINTEXT",
           "Agents do not speak Kafka's protocol to each other."),
)  # fmt: skip

_MACHINE = (
    _idle("background.threads", _I, "10", _THREADS, 1, INT_MAX),
    _idle("num.io.threads", _I, "8", _THREADS, 1, INT_MAX),
    _idle("num.network.threads", _I, "3", _THREADS, 1, INT_MAX),
    _idle("num.recovery.threads.per.data.dir", _I, "2", _THREADS, 1, INT_MAX),
    _idle("num.replica.fetchers", _I, "1", _REPLICAS),
    _shown("auto.leader.rebalance.enable", _B, "true", "Leadership is a hint that follows the live agents."),
    _shown("leader.imbalance.check.interval.seconds", _L, "300", _REPLICAS),
    _shown("max.incremental.fetch.session.cache.slots", _I, "1000", _NONE + "fetch sessions are not kept."),
    _shown("queued.max.requests", _I, "500", _THREADS),
    _shown("replica.lag.time.max.ms", _L, "30000", _REPLICAS),
    _shown("request.timeout.ms", _I, "30000", _REPLICAS),
)  # fmt: skip


def _of_topics() -> tuple[BrokerConfig, ...]:
    """The cluster's defaults of topic configs. One that Kafka spells in coarser units too has no default."""
    return tuple(
        BrokerConfig(
            topic.broker_name, topic.type, topic.default, topic.doc, topic.low, topic.high, topic.choices,
            topic.pattern, topic.form, topic.in_effect, topic.also, topic.known_from, topic.check, False,
            topic.name, bool(topic.coarser) or topic.name == "flush.ms", topic.coarser,
        )
        for topic in TOPIC_CONFIGS.values()
        if topic.broker_name
    )  # fmt: skip


BROKER_CONFIGS: dict[str, BrokerConfig] = {
    config.name: config
    for part in (
        _TOPICS, _RETENTION, _GROUPS, _CONSUMER_GROUPS, _OTHER_GROUPS, _TRANSACTIONS, _AGENT, _MACHINE,
        _of_topics(),
    )
    for config in part
}  # fmt: skip


def text(cluster_configs: Mapping[str, str], name: str) -> str:
    """The value in force for the cluster, by Kafka's broker name. KeyError for a name not in the table.

    Of a config that Kafka leaves unset, such as log.retention.ms, it is what the coarser names say, else
    the default of the topic config.
    """
    value = cluster_configs.get(name)
    if value is not None:
        return value
    config = BROKER_CONFIGS[name]
    for coarser, unit in config.coarser:
        if coarser in cluster_configs or not config.default:
            count = integer(cluster_configs, coarser)
            return str(count * unit) if count >= 0 else "-1"
    return config.default


def integer(cluster_configs: Mapping[str, str], name: str) -> int:
    """`text` of a number. ValueError where there is none (the read-only `node.id`)."""
    return int(text(cluster_configs, name))


def boolean(cluster_configs: Mapping[str, str], name: str) -> bool:
    """`text` of a boolean."""
    return text(cluster_configs, name).lower() == "true"


def items(cluster_configs: Mapping[str, str], name: str) -> list[str]:
    """`text` of a list, item by item."""
    return split_list(text(cluster_configs, name))


def refusal(name: str, value: str) -> str | None:
    """Why the cluster may not have this config; None when it may."""
    config = BROKER_CONFIGS.get(name)
    if config is None:
        return f"Unknown broker config name: {name[:NAME_SHOWN_MAX]}"
    problem = config.refusal(value)
    if problem is None and value == QUARANTINE:
        return f"{name}={value} is for single topics, each of which gets a quarantine with it: set it there"
    return problem


_AT_MOST = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.min.assignment.interval.ms", "group.consumer.assignment.interval.ms"),
    ("group.consumer.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"),
)


def contradiction(cluster_configs: Mapping[str, str]) -> str | None:
    """Which two of the values in force do not go together (Kafka's GroupCoordinatorConfig); None for none."""
    for less, more in _AT_MOST:
        low, high = integer(cluster_configs, less), integer(cluster_configs, more)
        if low > high:
            return f"{less}: {low} exceeds {more}, which is {high}"
    if not items(cluster_configs, "group.consumer.assignors"):
        return "group.consumer.assignors: at least one is needed"
    return None
