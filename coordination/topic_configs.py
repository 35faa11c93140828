"""The topic configs that Floe knows: names, types, defaults, bounds and what each does here.

One table serves apply (which refuses what is not in it), DescribeConfigs and the paths that act on a
config. Names, types and defaults are Kafka's (org.apache.kafka.common.config.TopicConfig, 4.3); Floe's
own begin with `floe.`. A config that Kafka has and that means nothing without broker disks is accepted,
validated and reported, and its documentation says that it has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from coordination import record_rules, table_partition, table_sort
from coordination.config_types import INT_MAX, LONG_MAX, NAME_SHOWN_MAX, Config, ConfigType, split_list

_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
_TABLE_NAME = re.compile(rf"({_IDENTIFIER}(\.{_IDENTIFIER})?)?")
_THROTTLE = re.compile(r"(\*|none|\d+:\d+(,\d+:\d+)*)?")

NEW_CONFIGS = 2  # the feature level from which on configs are known that came later
OFF, OBSERVE, REJECT, QUARANTINE = "off", "observe", "reject", "quarantine"
RULES = (OFF, OBSERVE, REJECT, QUARANTINE)  # values of floe.value.rules and floe.key.rules
HOUR_MS = 3_600_000
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class TopicConfig(Config):
    """A config of a topic.

    `broker_name` is Kafka's name for the cluster's default of it, "" where there is none; `coarser` are
    further names of that default with the unit they count in, in ms, asked when `broker_name` is not set.
    """

    broker_name: str = ""
    coarser: tuple[tuple[str, int], ...] = ()


_STRATEGIES = "io.confluent.kafka.serializers.subject."
STRATEGIES = tuple(
    f"{_STRATEGIES}{name}" for name in ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
)
"""Confluent's names of the ways in which a record finds its subject."""

_B, _S, _I, _L, _D, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
_NONE = "No effect in Floe: "
_DISK = _NONE + "there are no log segments on broker disks."
_TIER = _NONE + "all records are in the object store already."

_TABLE: tuple[TopicConfig, ...] = (
    TopicConfig(
        "cleanup.policy", _LIST, "delete",
        "`delete`: old records go by retention.ms and retention.bytes. `compact`: the newest record of each "
        "key stays. Both: both. Empty: everything is kept.",
        choices=("compact", "delete"), broker_name="log.cleanup.policy", in_effect=True,
    ),
    TopicConfig(
        "compression.type", _S, "producer",
        "Batches are stored as the producer sent them, whatever is set here.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), broker_name="compression.type",
    ),
    TopicConfig("compression.gzip.level", _I, "-1", _NONE + "batches are never recompressed.", 1, 9,
                broker_name="compression.gzip.level", also=-1),
    TopicConfig("compression.lz4.level", _I, "9", _NONE + "batches are never recompressed.", 1, 17,
                broker_name="compression.lz4.level"),
    TopicConfig("compression.zstd.level", _I, "3", _NONE + "batches are never recompressed.", -131072, 22,
                broker_name="compression.zstd.level"),
    TopicConfig("delete.retention.ms", _L, "86400000",
                "How long a tombstone of a compacted topic stays after compaction first kept it, ms.", 0,
                broker_name="log.cleaner.delete.retention.ms", in_effect=True),
    TopicConfig("file.delete.delay.ms", _L, "60000", _DISK, 0, broker_name="log.segment.delete.delay.ms"),
    TopicConfig("flush.messages", _L, str(LONG_MAX), _NONE + "an acknowledged record is durable.", 1,
                broker_name="log.flush.interval.messages"),
    TopicConfig("flush.ms", _L, str(LONG_MAX), _NONE + "an acknowledged record is durable.", 0,
                broker_name="log.flush.interval.ms"),
    TopicConfig("follower.replication.throttled.replicas", _LIST, "", _NONE + "there are no replicas.",
                pattern=_THROTTLE),
    TopicConfig("index.interval.bytes", _I, "4096", _DISK, 0, INT_MAX,
                broker_name="log.index.interval.bytes"),
    TopicConfig("leader.replication.throttled.replicas", _LIST, "", _NONE + "there are no replicas.",
                pattern=_THROTTLE),
    TopicConfig("local.retention.bytes", _L, "-2", _TIER, -2, broker_name="log.local.retention.bytes"),
    TopicConfig("local.retention.ms", _L, "-2", _TIER, -2, broker_name="log.local.retention.ms"),
    TopicConfig("max.compaction.lag.ms", _L, str(LONG_MAX),
                "A record that is older than this, ms, makes its partition due for compaction.", 1,
                broker_name="log.cleaner.max.compaction.lag.ms", in_effect=True),
    TopicConfig("max.message.bytes", _I, "1048588", "The largest record batch, bytes, as sent.",
                0, INT_MAX, broker_name="message.max.bytes", in_effect=True),
    TopicConfig("message.timestamp.after.max.ms", _L, "3600000",
                "How far a CreateTime timestamp may lie after the agent's clock, ms.", 0,
                broker_name="log.message.timestamp.after.max.ms", in_effect=True),
    TopicConfig("message.timestamp.before.max.ms", _L, str(LONG_MAX),
                "How far a CreateTime timestamp may lie before the agent's clock, ms.", 0,
                broker_name="log.message.timestamp.before.max.ms", in_effect=True),
    TopicConfig("message.timestamp.type", _S, "CreateTime",
                "Whether a record keeps the producer's timestamp or gets the agent's at the append.",
                choices=("CreateTime", "LogAppendTime"), broker_name="log.message.timestamp.type",
                in_effect=True),
    TopicConfig("min.cleanable.dirty.ratio", _D, "0.5",
                "Share of a partition's bytes not yet compacted from which on it is due for compaction.",
                0, 1,
                broker_name="log.cleaner.min.cleanable.ratio", in_effect=True),
    TopicConfig("min.compaction.lag.ms", _L, "0", "A record younger than this, ms, is never compacted.", 0,
                broker_name="log.cleaner.min.compaction.lag.ms", in_effect=True),
    TopicConfig("min.insync.replicas", _I, "1", _NONE + "the object store replicates.", 1, INT_MAX,
                broker_name="min.insync.replicas"),
    TopicConfig("preallocate", _B, "false", _DISK, broker_name="log.preallocate"),
    TopicConfig("remote.storage.enable", _B, "false", _TIER),
    TopicConfig("remote.log.copy.disable", _B, "false", _TIER),
    TopicConfig("remote.log.delete.on.disable", _B, "false", _TIER),
    TopicConfig("retention.bytes", _L, "-1",
                "Record bytes of a partition above which its oldest go; below 0: no limit.",
                broker_name="log.retention.bytes", in_effect=True),
    TopicConfig("retention.ms", _L, "604800000",
                "Age of the newest timestamp of a piece of the log at which it goes, ms; -1: never.", -1,
                broker_name="log.retention.ms", in_effect=True,
                coarser=(("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS))),
    TopicConfig("segment.bytes", _I, "1073741824", _DISK, 1048576, INT_MAX, broker_name="log.segment.bytes"),
    TopicConfig("segment.index.bytes", _I, "10485760", _DISK, 4, INT_MAX,
                broker_name="log.index.size.max.bytes"),
    TopicConfig("segment.jitter.ms", _L, "0", _DISK, 0, broker_name="log.roll.jitter.ms",
                coarser=(("log.roll.jitter.hours", HOUR_MS),)),
    TopicConfig("segment.ms", _L, "604800000",
                "How far apart in time the records of one merged segment may lie, ms.", 1,
                broker_name="log.roll.ms", in_effect=True, coarser=(("log.roll.hours", HOUR_MS),)),
    TopicConfig("unclean.leader.election.enable", _B, "false", _NONE + "there is no election to lose by.",
                broker_name="unclean.leader.election.enable"),
    TopicConfig("floe.delete.retention.ms", _L, "86400000",
                "For how long the topic is kept when it is deleted, ms; meanwhile floe topic undelete brings "
                "it back. 0: not at all. What counts is set when it is deleted.", 0, 90 * 24 * HOUR_MS,
                broker_name="floe.delete.retention.ms", in_effect=True, known_from=NEW_CONFIGS),
    TopicConfig("floe.records.grace.ms", _L, "0",
                "For how long records that retention or DeleteRecords took stay in the bucket, ms; meanwhile "
                "floe topic undelete-records brings them back. 0: not at all. What counts is set when they "
                "go.", 0, 90 * 24 * HOUR_MS,
                broker_name="floe.records.grace.ms", in_effect=True, known_from=NEW_CONFIGS),
    TopicConfig("floe.delete.protection", _B, "false",
                "Whether DeleteTopics of the topic is refused (POLICY_VIOLATION).",
                broker_name="floe.delete.protection", in_effect=True, known_from=NEW_CONFIGS),
    TopicConfig("floe.restoring", _S, "",
                "Set while floe restore topic writes the topic, which is not whole before it is gone: of "
                "which topic, and a digest of up to where.", in_effect=True, known_from=NEW_CONFIGS),
    TopicConfig("floe.table.enabled", _B, "true", "Whether the topic is kept as an Iceberg table.",
                broker_name="floe.table.enabled", in_effect=True),
    TopicConfig("floe.table.name", _S, "",
                "The table's name, `table` or `namespace.table`; empty: in namespace floe, the topic's name "
                "with dots and dashes as underscores.",
                pattern=_TABLE_NAME, in_effect=True),
    TopicConfig("floe.table.retention", _S, "keep",
                "`keep`: rows stay in the table when the topic's records go. `follow`: rows below the log "
                "start go too, by whole files, once their records cannot come back.",
                choices=("keep", "follow"), broker_name="floe.table.retention", in_effect=True),
    TopicConfig("floe.table.history.ms", _L, "86400000",
                "For how long each snapshot of the table stays, ms: a stream that stood still for no longer "
                "goes on. Older ones become part of the table's first, where new streams begin. "
                "The table's own history.expire.max-snapshot-age-ms counts instead where it is set.",
                0, broker_name="floe.table.history.ms", in_effect=True, known_from=NEW_CONFIGS),
    TopicConfig("floe.table.compaction", _B, "true",
                "Whether small data files of the table become large ones (`tables.compacted_file_bytes`).",
                broker_name="floe.table.compaction", in_effect=True, known_from=NEW_CONFIGS),
    TopicConfig("floe.table.mode", _S, "append",
                "`append`: the table has a row of each record. `upsert`: beside it stands a second table, "
                "called like it with `__latest` behind, which has the newest row of each record key.",
                choices=("append", "upsert"), broker_name="floe.table.mode", in_effect=True,
                known_from=NEW_CONFIGS),
    TopicConfig("floe.table.envelope", _S, "none",
                "What the rows of the `__latest` table are, where there is one. `none`: the records, and a "
                "null value deletes. `debezium`: `after` of the values; a value whose `op` is `d` deletes.",
                choices=("none", "debezium"), broker_name="floe.table.envelope", in_effect=True,
                known_from=NEW_CONFIGS),
    TopicConfig("floe.table.publish", _B, "true",
                "Whether the table is published to the other catalogs that the agents are configured with "
                "(`catalogs`).",
                broker_name="floe.table.publish", in_effect=True, known_from=NEW_CONFIGS),
    TopicConfig("floe.table.layout", _S, "nested",
                "Where the columns of the value's message stand: `nested`, inside `value`; `flat`, at the "
                "table's top level. It counts until the table has the first of them.",
                choices=("nested", "flat"), broker_name="floe.table.layout", in_effect=True,
                known_from=NEW_CONFIGS),
    TopicConfig("floe.table.partition", _S, "",
                "How the table is partitioned: columns, and transforms of them, parted by commas, as "
                "`day(kafka.timestamp), bucket(16, value.user_id), truncate(8, value.page), value.country`; "
                "also year, month and hour. Empty: not at all. New files are written so, none anew.",
                pattern=table_partition.PATTERN, form=table_partition.FORM, check=table_partition.refusal,
                broker_name="floe.table.partition", in_effect=True, known_from=NEW_CONFIGS),
    TopicConfig("floe.table.sort", _S, "",
                "How rows are sorted within each data file: columns, and transforms of them, parted by "
                "commas, each with `asc` or `desc` and `nulls-first` or `nulls-last`, as "
                "`value.country, day(kafka.timestamp) desc nulls-last`. Empty: by offset. New files are "
                "written so, none anew.",
                pattern=table_sort.PATTERN, form=table_sort.FORM, check=table_sort.refusal,
                broker_name="floe.table.sort", in_effect=True, known_from=NEW_CONFIGS),
    TopicConfig("floe.table.format-version", _S, "2",
                "The Iceberg format version of the table. `3`: rows have ids that stay through compaction "
                "(row lineage); for engines that read it. A table becomes one of version 3 with its next "
                "commit, and there is no way back.",
                choices=("2", "3"), broker_name="floe.table.format-version", in_effect=True,
                known_from=NEW_CONFIGS),
    TopicConfig("floe.produce.check", _S, "uncompressed",
                "What is looked at before a batch is stored, beside its header and CRC. `headers`: nothing "
                "more. `uncompressed`: every record of a batch that is not compressed. `full`: those of "
                "compressed batches too.",
                choices=("headers", "uncompressed", "full"), broker_name="floe.produce.check",
                in_effect=True, known_from=NEW_CONFIGS),
    TopicConfig("floe.redact", _S, "off",
                "What clients without clearance (`redaction`) read in place of fields that the schema marks. "
                "`remove`: nothing. `hash`: a keyed hash of text and bytes. `mask`: four asterisks. `off`: "
                "everybody reads all fields. Values that no schema explains are withheld.",
                choices=("off", "remove", "hash", "mask"), broker_name="floe.redact", in_effect=True,
                known_from=NEW_CONFIGS),
    TopicConfig("floe.redact.tags", _LIST, "PII",
                "Tags of confluent.field_meta (in AVRO and JSON schemas `confluent:tags`) and of a schema's "
                "metadata that mark a field, beside `debug_redact` and `floe.redact`.",
                broker_name="floe.redact.tags", in_effect=True, known_from=NEW_CONFIGS),
    TopicConfig("floe.frames", _S, "as-written",
                "How messages are read, whatever their producers send. `bare`: without Confluent's frame. "
                "`confluent`: with it. A listener's `frames` counts before it.",
                choices=("as-written", "bare", "confluent"), broker_name="floe.frames", in_effect=True,
                known_from=NEW_CONFIGS),
    *(
        TopicConfig(
            f"confluent.{role}.schema.validation", _B, "false",
            f"Whether every {role} must name, in Confluent's frame, a schema that is registered under the "
            "topic's subject, and be it. Null is taken.",
            in_effect=True, known_from=NEW_CONFIGS,
        )
        for role in ("key", "value")
    ),
    *(
        TopicConfig(
            f"confluent.{role}.subject.name.strategy", _S, STRATEGIES[0],
            f"Which subject the {role}s' schemas are to be registered under, while their validation is on: "
            f"TopicNameStrategy, <topic>-{role}; RecordNameStrategy, the message's full name; "
            "TopicRecordNameStrategy, <topic>-<full name>.",
            choices=STRATEGIES, in_effect=True, known_from=NEW_CONFIGS,
        )
        for role in ("key", "value")
    ),
    TopicConfig("floe.value.rules", _S, OFF,
                "What becomes of records whose values break rules of protovalidate that the bound message "
                "has. `off`: rules are not looked at. `observe`: they are kept, counted and told in /status. "
                "`reject`: their batches are refused. `quarantine`: they go to the topic of this name with "
                "`.quarantine` behind it, as do values that are no such message; the others are kept.",
                choices=RULES, broker_name="floe.value.rules", in_effect=True, known_from=NEW_CONFIGS),
    TopicConfig("floe.key.rules", _S, OFF, "The same for keys.",
                choices=RULES, broker_name="floe.key.rules", in_effect=True, known_from=NEW_CONFIGS),
    TopicConfig("floe.rules", _S, "",
                "Rules of the topic's own in CEL, of key, value, headers and timestamp: one expression, as "
                "`value.amount > 0.0`, or a list of id, expression and message as JSON. What becomes of "
                "records that break them floe.value.rules says. Empty: none.",
                check=record_rules.refusal, in_effect=True, known_from=NEW_CONFIGS),
)  # fmt: skip

TOPIC_CONFIGS: dict[str, TopicConfig] = {config.name: config for config in _TABLE}


def refusal(name: str, value: str, level: int) -> str | None:
    """Why a topic may not have this config at a feature level; None when it may. Kafka: INVALID_CONFIG."""
    config = TOPIC_CONFIGS.get(name)
    if config is None or config.known_from > level:
        return f"Unknown topic config name: {name[:NAME_SHOWN_MAX]}"
    return config.refusal(value)


def contradiction(topic: Mapping[str, str], cluster: Mapping[str, str]) -> str | None:
    """Which two of the values in force do not go together (Kafka's LogConfig); None for none."""
    least, most = "min.compaction.lag.ms", "max.compaction.lag.ms"
    if not cluster and least not in topic and most not in topic:
        return None  # both are the defaults, as for most of the thousands of topics that one change may make
    low, high = effective(least, topic, cluster), effective(most, topic, cluster)
    if int(low) > int(high):
        return f"conflict topic config setting {least} ({low}) > {most} ({high})"
    return None


def effective(name: str, topic: Mapping[str, str], cluster: Mapping[str, str]) -> str:
    """The value in force: the topic's own, else the cluster's, else the default. KeyError when unknown.

    `cluster` holds what was set for the cluster, under Kafka's broker names.
    """
    own = topic.get(name)
    if own is not None:
        return own
    config = TOPIC_CONFIGS[name]
    if cluster and config.broker_name:
        general = cluster.get(config.broker_name)
        if general is not None:
            return general
        for coarser, unit_ms in config.coarser:
            if coarser in cluster:
                count = int(cluster[coarser])
                return str(count * unit_ms) if count >= 0 else "-1"
    return config.default


def effective_int(name: str, topic: Mapping[str, str], cluster: Mapping[str, str]) -> int:
    """`effective` of a numeric config."""
    return int(effective(name, topic, cluster))


def effective_bool(name: str, topic: Mapping[str, str], cluster: Mapping[str, str]) -> bool:
    """`effective` of a boolean config."""
    return effective(name, topic, cluster).lower() == "true"


def deletes(topic: Mapping[str, str], cluster: Mapping[str, str]) -> bool:
    """Whether old records go by time and size (`cleanup.policy` holds `delete`)."""
    return "delete" in split_list(effective("cleanup.policy", topic, cluster))


def compacts(topic: Mapping[str, str], cluster: Mapping[str, str]) -> bool:
    """Whether only the newest record of each key stays (`cleanup.policy` holds `compact`)."""
    return "compact" in split_list(effective("cleanup.policy", topic, cluster))


def rules_in_force(topic: Mapping[str, str], cluster: Mapping[str, str]) -> tuple[str, str]:
    """What becomes of keys and of values that break rules of their message."""
    return effective("floe.key.rules", topic, cluster), effective("floe.value.rules", topic, cluster)


def record_rules_in_force(topic: Mapping[str, str], cluster: Mapping[str, str]) -> str:
    """The topic's own rules as they are configured; empty where there are none, or nobody looks at them."""
    own = topic.get("floe.rules", "")
    return own if own.strip() and effective("floe.value.rules", topic, cluster) != OFF else ""
