"""`floe table audit TOPIC`: one topic, read through a Kafka client, against its table.

The topic is read with aiokafka over TCP from its log start to the end it has when the audit begins,
not from the chunks: what is compared is what a consumer of that moment sees. Rows that the table gains
meanwhile are left out; a table that is behind is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from iceberg.spark.audit import AuditInput, audit
from iceberg.spark.history import HistoryRow, HistoryWriter, bytes_hash, headers_hash
from iceberg.spark.verdict import Verdict

RECORDS_PER_POLL_MAX = 20_000
POLL_MS = 500
TABLE_POLL_S = 1.0

Progress = Callable[[int, int], None]


class NoSuchTopic(ValueError):
    """The topic to audit does not exist."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Log start and end offset per partition, as the brokers answered when the audit began."""

    starts: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    newest: Mapping[int, int] = field(default_factory=dict)
    """The offset of the last record below the end: a transaction's marker may stand behind it."""

    @property
    def records(self) -> int:
        """How many offsets there are between them."""
        return sum(end - self.starts[partition] for partition, end in self.ends.items())


async def audit_topic(
    spark: SparkSession,
    topic: str,
    table: str,
    *,
    bootstrap: str,
    scratch: Path,
    wait_s: float = 60.0,
    progress: Progress = lambda _done, _all: None,
) -> Verdict:
    """Read `topic` from `bootstrap`, wait up to `wait_s` for `table` to reach its end, compare.

    `table` is `floe.namespace.name`; the history goes below `scratch`. `progress` gets records read and
    records in all. Raises NoSuchTopic. A table that is still behind after the wait shows as `missing`.
    """
    history = scratch / "audit" / topic / "consumed.parquet"
    bounds = await read_topic(topic, bootstrap, history, progress)
    await _reached(spark, table, bounds, wait_s)
    given = AuditInput(
        tables={topic: table},
        consumed=history,
        log_start={(topic, partition): start for partition, start in bounds.starts.items()},
        ends={(topic, partition): end for partition, end in bounds.ends.items()},
    )
    return await asyncio.to_thread(audit, spark, given)


async def read_topic(topic: str, bootstrap: str, history: Path, progress: Progress) -> Bounds:
    """Write what a consumer reads of the whole topic to the file `history`. Raises NoSuchTopic."""
    partitions = await _partitions(topic, bootstrap)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    try:
        bounds = await _bounds(consumer, partitions)
        with HistoryWriter(history) as writer:
            newest = await _copy(consumer, topic, bounds, writer, progress)
    finally:
        await consumer.stop()
    return replace(bounds, newest=newest)


async def _partitions(topic: str, bootstrap: str) -> list[TopicPartition]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        if topic not in await admin.list_topics():  # asked first: describing could make the topic
            raise NoSuchTopic(f"topic {topic!r} does not exist")
        (described,) = await admin.describe_topics([topic])
    finally:
        await admin.close()
    return [TopicPartition(topic, partition["partition"]) for partition in described["partitions"]]


async def _bounds(consumer: AIOKafkaConsumer, partitions: Sequence[TopicPartition]) -> Bounds:
    consumer.assign(partitions)
    starts = await consumer.beginning_offsets(partitions)
    ends = await consumer.end_offsets(partitions)
    for partition in partitions:
        consumer.seek(partition, starts[partition])
    return Bounds(
        {partition.partition: starts[partition] for partition in partitions},
        {partition.partition: ends[partition] for partition in partitions},
    )


async def _copy(
    consumer: AIOKafkaConsumer, topic: str, bounds: Bounds, writer: HistoryWriter, progress: Progress
) -> dict[int, int]:
    """Records below the ends, until every partition's position has passed its end. The last of each."""
    newest: dict[int, int] = {}
    behind = {partition for partition, end in bounds.ends.items() if end > bounds.starts[partition]}
    while behind:
        batches = await consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_PER_POLL_MAX)
        for place, records in batches.items():
            for record in records:
                if record.offset < bounds.ends[place.partition]:
                    writer.add(_row(record))
                    newest[place.partition] = record.offset
        progress(writer.rows, bounds.records)
        for partition in sorted(behind):
            if await consumer.position(TopicPartition(topic, partition)) >= bounds.ends[partition]:
                behind.discard(partition)
    return newest


def _row(record: ConsumerRecord) -> HistoryRow:
    return HistoryRow(
        record.topic,
        record.partition,
        record.offset,
        bytes_hash(record.key),
        bytes_hash(record.value),
        headers_hash(record.headers),
        record.timestamp,
    )


async def _reached(spark: SparkSession, table: str, bounds: Bounds, wait_s: float) -> None:
    """Wait until the table has the newest records, at most `wait_s` seconds."""
    try:
        async with asyncio.timeout(wait_s):
            while not await asyncio.to_thread(_complete, spark, table, bounds):  # noqa: ASYNC110 - polls a table
                await asyncio.sleep(TABLE_POLL_S)
    except TimeoutError:
        return


def _complete(spark: SparkSession, table: str, bounds: Bounds) -> bool:
    found = (
        spark.table(table).groupBy("kafka.partition").agg(F.max("kafka.offset").alias("highest")).collect()
    )
    highest = {row["partition"]: row["highest"] for row in found}
    return all(highest.get(partition, -1) >= newest for partition, newest in bounds.newest.items())
