"""What tables store and rewrite: commits every `tables.interval_ms`, small files that become large ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agent.costs import coefficients as measured
from agent.costs.load import Load, Settings
from coordination.topic_configs import effective_int
from iceberg.pace import LARGE_BYTES

MB = 1e6
HISTORY_S = effective_int("floe.table.history.ms", {}, {}) / 1000
GROWTH = 8
"""Files become one when they have so many times the rows of the largest of them (docs/tables.md)."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Of all topics. Rates are a second's, sizes bytes."""

    interval_s: float
    data_puts: float
    metadata_puts: float
    compaction_puts: float
    gets: float
    lists: float
    rewrites: float
    """How often a row is written once more."""
    commit_cores: float
    compaction_cores: float
    rows_bytes: float
    replaced_bytes: float
    metadata_bytes: float


def tables(load: Load, settings: Settings, agents: float) -> Tables:
    """What it comes to with so many agents that commit. Topics get alike."""
    rules = settings.tables
    rate, ratio = load.write * load.tables, load.table_ratio
    each_s = interval_s(load, settings, agents)
    data, commits = load.partitions / each_s, load.topics / each_s
    rewrites = rewritten(rate * ratio / data, load, settings)
    merged = data * min(1.0, rewrites)
    made, read = merged / (GROWTH - 1), merged * GROWTH / (GROWTH - 1)
    kept_s = HISTORY_S + rules.orphan_grace_s
    metadata = commits * metadata_bytes(load.partitions / load.topics)
    objects = data + made + commits * measured.COMMIT_OBJECTS.value
    return Tables(
        interval_s=each_s,
        data_puts=data,
        metadata_puts=commits * measured.COMMIT_OBJECTS.value,
        compaction_puts=made,
        gets=read,
        lists=objects * kept_s / measured.LIST_KEYS.value / rules.orphan_interval_s,
        rewrites=rewrites,
        commit_cores=_committing(load),
        compaction_cores=rate * ratio * rewrites / 1e9 * measured.TABLE_COMPACT.value,
        rows_bytes=rate * ratio * (load.table_retention_s or load.retention_s),
        replaced_bytes=rate * ratio * rewrites * kept_s,
        metadata_bytes=metadata * kept_s,
    )


def interval_s(load: Load, settings: Settings, agents: float) -> float:
    """Seconds between two commits of a topic: longer where small ones would store too many objects."""
    rules = settings.tables
    topic_rate = load.write * load.tables / load.topics
    usual = min(rules.interval_ms / 1000, rules.bytes_per_commit_max / topic_rate)
    objects = load.partitions / load.topics + measured.COMMIT_OBJECTS.value
    large = LARGE_BYTES * objects / (topic_rate * load.table_ratio)
    if not rules.objects_per_s_max or usual >= large:
        return usual
    return max(usual, min(large, load.topics * objects / (rules.objects_per_s_max * agents)))


def rewritten(file_bytes: float, load: Load, settings: Settings) -> float:
    """How often compaction writes a row anew: from files of commits to large ones, GROWTH times each time."""
    rules = settings.tables
    if file_bytes >= rules.compacted_file_bytes / 2:
        return 0.0
    partition = (
        load.partition_write * load.tables * load.table_ratio * (load.table_retention_s or load.retention_s)
    )
    return max(0.0, math.log(min(rules.compacted_file_bytes, partition) / file_bytes, GROWTH))


def metadata_bytes(partitions: float) -> float:
    """Bytes of metadata of one commit with new records in so many partitions."""
    one, hundred = measured.COMMIT_BYTES_1.value, measured.COMMIT_BYTES_100.value
    return 1_000 * (one + (hundred - one) * (partitions - 1) / 99)


def _committing(load: Load) -> float:
    """Cores: a record costs what one of 1 kB does, a larger one as its bytes."""
    records = load.write * load.tables / load.message_bytes
    return records * max(load.message_bytes, measured.TABLE_BENCH_RECORD) / MB / measured.TABLE_COMMIT.value
