"""What the log itself holds after a run, as rows of the table `broker_log`: batch by batch, with its records.

Read as the audits of inside.py are: from the log and the bucket, through no agent.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from coordination.state.types import Partition
from objectstore.batch import BatchHeader, peek, records, split
from objectstore.store import StoreError
from tests.checker.tables import Logged
from tests.torture.history import text
from tests.torture.inside import LOOKS_MAX, Inside, aborts, partitions_of, standing, whole


def read_log(log_url: str, store_url: str, store_options: dict[str, Any], topic: str) -> list[Logged]:
    """The rows of a topic's partitions. Raises StoreError where an object of the newest state is gone.

    The agents go on merging and collecting: what a state names may be gone by the time it is read, and is
    looked for in a newer one then, as `chunks_differ` does.
    """
    for _ in range(LOOKS_MAX - 1):
        with suppress(StoreError):
            return asyncio.run(_read(log_url, store_url, store_options, topic))
    return asyncio.run(_read(log_url, store_url, store_options, topic))


async def _read(log_url: str, store_url: str, store_options: dict[str, Any], topic: str) -> list[Logged]:
    async with standing(log_url, store_url, store_options) as inside:
        partitions = partitions_of(inside.state, topic)
        return [row for each in partitions for row in await _partition(each, inside)]


async def _partition(partition: Partition, inside: Inside) -> list[Logged]:
    key, merged = f"{partition.topic.name}-{partition.index}", partition.merged
    rows = [
        Logged(
            key,
            "bounds",
            partition.log_start,
            partition.high_watermark,
            merged_to=merged.end_offset if merged is not None else 0,
            compacted_to=merged.first_dirty_offset if merged is not None else 0,
            stable=partition.last_stable,
        )
    ]
    for ref in await whole(inside.ranges, partition):
        data = await inside.reader.read(ref)
        for position, length in split(data):
            header = peek(data, position)
            rows.append(_batch(key, header, data[position : position + length]))
    return rows


def _batch(key: str, header: BatchHeader, data: memoryview) -> Logged:
    place = (header.base_offset, header.last_offset + 1, header.producer_id, header.producer_epoch)
    if header.control:
        return Logged(key, "abort" if aborts(data) else "commit", *place, stamp_ms=header.max_timestamp)
    held = tuple((each.offset, text(each.value or b"")) for each in records(data))
    return Logged(key, "records", *place, header.base_sequence, header.transactional, records=held)
