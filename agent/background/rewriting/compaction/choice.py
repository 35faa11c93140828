"""Which partitions are due for compaction. Pure: from the state alone, without a look at a manifest.

Kafka's rules (LogCleanerManager.grabFilthiestCompactedLog, 4.3): a partition is due when the share of its
cleanable bytes exceeds `min.cleanable.dirty.ratio`, or when its oldest dirty record is older than
`max.compaction.lag.ms`; the overdue go first, then the largest share. Kafka leaves the active segment alone;
here nothing is due by its share before `dirty_bytes_min` have gathered, which serves the same end: a small
topic is not rewritten at every record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from coordination.state.data import StateData
from coordination.state.tables import topic_id_of
from coordination.state.types import Merged, Partition, Topic
from coordination.topic_configs import compacts, effective, effective_int
from iceberg.head import enabled, place

CLAIM = "compaction"  # with a partition's handle behind it
TIMESTAMP_MS_MAX = (1 << 63) - 1  # a record's is an int64


@dataclass(frozen=True, slots=True)
class Rules:
    """A topic's compaction: times in ms, a share, and bytes."""

    dirty_ratio_min: float
    dirty_bytes_min: int
    lag_ms_min: int
    lag_ms_max: int
    delete_retention_ms: int

    def newest_ms(self, now_ms: int) -> int:
        """Records later than this are too young. Without a lag none is, as in Kafka, whatever its time."""
        return now_ms - self.lag_ms_min if self.lag_ms_min else TIMESTAMP_MS_MAX

    @classmethod
    def of(cls, topic: Mapping[str, str], cluster: Mapping[str, str], dirty_bytes_min: int) -> Rules:
        """The rules that a topic's configs and the cluster's state."""
        return cls(
            float(effective("min.cleanable.dirty.ratio", topic, cluster)),
            dirty_bytes_min,
            effective_int("min.compaction.lag.ms", topic, cluster),
            effective_int("max.compaction.lag.ms", topic, cluster),
            effective_int("delete.retention.ms", topic, cluster),
        )


class Due(NamedTuple):
    """A partition that is due. The greatest goes first."""

    overdue: bool
    ratio: float
    handle: int


def limit_of(state: StateData, partition: Partition, *, tables: bool) -> int:
    """Offsets from here on are not compacted: transactions that are open, rows that the table lacks.

    So the table of a compacted topic has everything that was ever written to it. `tables`: this agent's
    cluster keeps tables, so that one that is not there yet is waited for. A table of the topic's name that is
    another's will never have its rows; one of a deleted topic of that name says nothing of this one's rows.
    """
    topic, limit = partition.topic, partition.settled
    if not enabled(topic, state.cluster_configs):
        return limit
    table = state.tables.get(place(state, topic))
    if table is None:
        return 0 if tables else limit
    topic_id = topic_id_of(state, table)
    if topic_id != topic.topic_id:
        never = not table.topic or topic_id in state.topics_by_id
        return limit if never or not tables else 0  # that of a topic that is gone will be set aside
    ledger = table.next_offsets
    return min(limit, ledger[partition.index] if partition.index < len(ledger) else 0)


def claim_of(handle: int) -> str:
    """The claim of who compacts a partition. Merging leaves its segments alone meanwhile."""
    return f"{CLAIM}/{handle}"


def due(partition: Partition, rules: Rules, limit: int, now_ms: int) -> Due | None:
    """Whether the partition is due; offsets from `limit` on do not count."""
    newest_ms = rules.newest_ms(now_ms)
    tail_bytes, tail_ms = _cleanable_tail(partition, limit, newest_ms)
    merged, clean_bytes = partition.merged, 0
    dirty_bytes, oldest_ms = tail_bytes, [tail_ms]
    if merged is not None:
        clean_bytes = merged.clean_bytes
        if merged.first_dirty_offset < merged.end_offset and merged.size_bytes > clean_bytes:
            first_ms = _first_dirty_ms(merged)
            if first_ms > newest_ms or merged.first_dirty_offset >= limit:
                return None
            dirty_bytes += merged.size_bytes - clean_bytes
            oldest_ms.append(first_ms)
    if not dirty_bytes:
        return None
    ratio = dirty_bytes / (dirty_bytes + clean_bytes)
    overdue = any(0 <= each < now_ms - rules.lag_ms_max for each in oldest_ms)
    if overdue or (ratio > rules.dirty_ratio_min and dirty_bytes >= rules.dirty_bytes_min):
        return Due(overdue, ratio, partition.handle)
    return None


def all_due(
    state: StateData, topic: Topic, dirty_bytes_min: int, now_ms: int, *, tables: bool
) -> Iterator[Due | None]:
    """For each partition of a topic whether it is due; nothing for a topic that is not compacted.

    One at a time, since a look goes over the rows of a tail: the caller may let others run in between.
    """
    cluster = state.cluster_configs
    if not compacts(topic.configs, cluster):
        return
    rules = Rules.of(topic.configs, cluster, dirty_bytes_min)
    for partition in topic.partitions:
        yield due(partition, rules, limit_of(state, partition, tables=tables), now_ms)


def _first_dirty_ms(merged: Merged) -> int:
    """Segments of older versions may tell a delete horizon (SegmentInfo.begun_ms)."""
    return min(merged.first_dirty_ms, merged.max_timestamp_ms)


def _cleanable_tail(partition: Partition, limit: int, newest_ms: int) -> tuple[int, int]:
    """Bytes of the tail's rows that may be compacted, and the oldest of their timestamps (-1: none)."""
    size, oldest_ms = 0, -1
    for end, length, stamp in partition.slices.pieces():
        if end > limit or stamp > newest_ms:
            break
        if 0 <= stamp < oldest_ms or oldest_ms < 0:
            oldest_ms = stamp
        size += length
    return size, oldest_ms
