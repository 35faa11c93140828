"""The reader: a helper process that reads every topic back through aiokafka, knowing nothing of the load.

It assigns all partitions and reads from their start while records are still being written. Told to
finish, it asks for the end offsets and reads on until it has passed them all. Plan: `bootstrap`,
`topics` with their
partition counts, `history` folder. Events: `reading`, `read` (rows, at), `done` (rows).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from deploy.run.access import Access
from deploy.run.children import run, tell, told
from iceberg.spark.history import HistoryRow, HistoryWriter, bytes_hash, headers_hash

POLL_MS = 500
RECORDS_MAX = 20_000
TELL_SECONDS = 0.2
ENDS_SECONDS_MAX = 120


async def read(plan: Mapping[str, Any], history: HistoryWriter) -> None:
    """Read until told to finish and every partition's end is passed."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=plan["bootstrap"],
        **Access.of(plan).python(),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_bytes=16 << 20,
        max_partition_fetch_bytes=4 << 20,
    )
    await consumer.start()
    try:
        await _assign(consumer, plan["topics"])
        tell("reading")
        finish = asyncio.create_task(asyncio.to_thread(told))
        ends: dict[TopicPartition, int] | None = None
        told_at = 0.0
        while ends is None or not await _passed(consumer, ends):
            batches = await consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_MAX)
            for records in batches.values():
                for record in records:
                    history.add(_row(record))
            if time.time() - told_at > TELL_SECONDS:
                told_at = time.time()
                tell("read", rows=history.rows, at=told_at)
            if ends is None and finish.done():
                ends = await _ends(consumer)
    finally:
        await consumer.stop()


async def _assign(consumer: AIOKafkaConsumer, topics: Mapping[str, int]) -> None:
    consumer.assign(
        [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
    )
    await consumer.seek_to_beginning()


async def _ends(consumer: AIOKafkaConsumer) -> dict[TopicPartition, int]:
    """The end offset of every assigned partition, asked again while agents come and go."""
    deadline = time.monotonic() + ENDS_SECONDS_MAX
    while True:
        try:
            return dict(await consumer.end_offsets(consumer.assignment()))
        except KafkaError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.5)


async def _passed(consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]) -> bool:
    return all([await consumer.position(partition) >= end for partition, end in ends.items()])


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


def main() -> None:
    """Run the plan given on standard input."""
    plan = told()
    with HistoryWriter(Path(plan["history"]) / "consumed.parquet") as history:
        asyncio.run(read(plan, history))
    tell("done", rows=history.rows)


if __name__ == "__main__":
    run(main)
