"""ListOffsets: the first, last, newest or timed offset of partitions.

Versions 1 to 11.
Behaviour: answered after a read barrier. -1: the high watermark, or the last stable offset with
read_committed; -2: the log start; -3 (from 7): the record with the highest timestamp; -4 (from 8): the
log start, there being one tier; -5 (from 9) and -6 (from 11): -1, as Kafka without tiered storage; a
timestamp: the first record at or after it, found inside its batch. No match: -1 twice, no error. Where
those records are damaged: the first offset of the slice that they are in. Timestamps are looked up side by
side, and each partition answers for itself: KAFKA_STORAGE_ERROR where its records cannot be read in time.
Deviations: none known.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from agent.kafka.context import Context
from agent.kafka.fetch.planner import RECORDS_EPOCH
from agent.kafka.fetch.timestamps import Found, first_at_or_after, highest
from agent.kafka.handlers.lookup import find_partition
from agent.net.wire.api import Encoded
from agent.net.wire.generated import list_offsets
from agent.net.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from agent.net.wire.steps import Pace, encoded
from coordination.kafka_codes import Code
from coordination.state.types import Partition
from objectstore.batch import CorruptBatch
from objectstore.naming import SliceRef
from objectstore.reader import ChunkMissing, CorruptSlice
from objectstore.store import StoreError

KEY = 2
VERSIONS = (1, 11)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
SINCE = {
    LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11,
}  # fmt: skip
READ_COMMITTED = 1
LOOKS_AT_ONCE = 16  # partitions whose records are looked at side by side; each may hold a slice in memory
LOOKED_AT_S_MAX = (
    10.0  # for all of a request, seconds: what is slow must not cost its neighbours their answer
)
LOOKS_MAX = (
    4  # a chunk that is gone was replaced, a slice was deleted or lies across the log start: look again
)


class _Look(NamedTuple):
    """A partition that is asked for a time, and where its answer goes."""

    topic: str
    asked: ListOffsetsPartition
    rows: list[ListOffsetsPartitionResponse]
    at: int


async def handle(ctx: Context, request: ListOffsetsRequest, version: int) -> Encoded:
    """One answer per partition, in the request's order."""
    fresh = await ctx.barrier()
    pace = Pace()
    named: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        for each in topic.partitions:
            named[topic.name, each.partition_index] += 1
            await pace.row()
    response, looks = ListOffsetsResponse(), []
    for topic in request.topics:
        rows: list[ListOffsetsPartitionResponse] = []
        response.topics.append(ListOffsetsTopicResponse(topic.name, rows))
        for each in topic.partitions:
            if named[topic.name, each.partition_index] > 1:
                answer: ListOffsetsPartitionResponse | None = _error(each, Code.INVALID_REQUEST)
            elif not fresh:
                answer = _error(each, Code.LEADER_NOT_AVAILABLE)
            else:
                answer = _known(ctx, topic.name, each, request.isolation_level, version)
            if answer is None:
                looks.append(_Look(topic.name, each, rows, len(rows)))
            rows.append(answer or _error(each, Code.KAFKA_STORAGE_ERROR))
            await pace.row()
    if looks:
        await _look_at_all(ctx, looks, request.isolation_level)
    return await encoded(list_offsets, response, version, "topics", "partitions")


def _known(
    ctx: Context, name: str, each: ListOffsetsPartition, isolation: int, version: int
) -> ListOffsetsPartitionResponse | None:
    """What is answered without a look at records; None where one is needed."""
    if each.timestamp < 0 and SINCE.get(each.timestamp, version + 1) > version:
        return _error(each, Code.UNSUPPORTED_VERSION)
    if each.current_leader_epoch > ctx.state.leader_epoch:
        return _error(each, Code.UNKNOWN_LEADER_EPOCH)
    partition = find_partition(ctx.state.topics.get(name), each.partition_index)
    if partition is None:
        return _error(each, Code.UNKNOWN_TOPIC_OR_PARTITION)
    match each.timestamp:
        case -1:
            return _found(each, _end(partition, isolation))
        case -2 | -4:
            return _found(each, partition.log_start)
        case -5 | -6:
            return _none(each)
    return None


async def _look_at_all(ctx: Context, looks: list[_Look], isolation: int) -> None:
    """Fill in the answers by time. What is not there in time stays as it is: an error, to be asked again."""
    waiting = iter(looks)
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOKED_AT_S_MAX):
            lines = (_look_at(ctx, waiting, isolation) for _ in range(min(LOOKS_AT_ONCE, len(looks))))
            await asyncio.gather(*lines)


async def _look_at(ctx: Context, waiting: Iterator[_Look], isolation: int) -> None:
    """One after the other of those that nobody looks at yet."""
    for look in waiting:
        look.rows[look.at] = await _timed(ctx, look.topic, look.asked, isolation)
        await asyncio.sleep(0)  # what is in memory is there at once


async def _timed(
    ctx: Context, name: str, each: ListOffsetsPartition, isolation: int
) -> ListOffsetsPartitionResponse:
    partition = find_partition(ctx.state.topics.get(name), each.partition_index)
    if partition is None:  # deleted meanwhile
        return _error(each, Code.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        found = await by_time(ctx, partition, each.timestamp)
    except (StoreError, CorruptBatch, ChunkMissing, TimeoutError):
        return _error(each, Code.KAFKA_STORAGE_ERROR)
    # The end as of now, not as of before the look: the log start may have passed that one meanwhile.
    if found is None or found.offset >= _end(partition, isolation):
        return _none(each)
    return _found(each, found.offset, found.timestamp)


def _end(partition: Partition, isolation: int) -> int:
    return partition.last_stable if isolation == READ_COMMITTED else partition.high_watermark


async def by_time(ctx: Context, partition: Partition, timestamp: int) -> Found | None:
    """The record by timestamp, or the one with the highest for -3.

    Raises StoreError, CorruptBatch, TimeoutError.
    """
    newest, gone, merged = timestamp == MAX_TIMESTAMP, None, ctx.services.merged
    best, after = None, 0
    for _ in range(LOOKS_MAX):
        ref: SliceRef | None = None
        try:
            looking = merged.max_timestamp if newest else partial(merged.by_timestamp, timestamp_ms=timestamp)
            ref = await looking(partition, start=after)
            if ref is None or (best is not None and best.timestamp >= ref.max_timestamp_ms):
                return best
            content = await _read(ctx, ref)
        except (ChunkMissing, CorruptSlice) as error:
            if isinstance(error, ChunkMissing) and gone != error.chunk:
                gone = error.chunk  # replaced, unless a newer state names it still
                await ctx.barrier()
                continue
            if ref is None:
                raise
            if ref.end_offset <= partition.log_start:
                continue  # deleted while it was looked at
            return _damaged(ctx, partition, ref, error)
        start = partition.log_start
        if ref.end_offset <= start:
            continue  # deleted while it was read: nothing is known of the records behind it
        found = await (highest(content, start) if newest else first_at_or_after(content, timestamp, start))
        if ref.base_offset < start and (newest or found is None):
            best, after = found, ref.end_offset  # its time may be of a record that is deleted
            continue
        # A producer's header may claim a timestamp that no record of it has: its first offset then.
        return found or Found(max(ref.base_offset, start), ref.max_timestamp_ms)
    raise StoreError(f"records were deleted {LOOKS_MAX} times while they were looked at: ask again")


async def _read(ctx: Context, ref: SliceRef) -> memoryview:
    (content,) = await ctx.services.reader.read_each([ref])
    if isinstance(content, Exception):
        raise content
    return content


def _damaged(ctx: Context, partition: Partition, ref: SliceRef, trouble: StoreError) -> Found:
    """The answer where damaged records are in the way: the first of them, as their times are not known.

    A client that reads on from there is told of the damage.
    """
    ctx.services.damages.note(partition, ref.base_offset, ref.end_offset, str(trouble))
    return Found(max(ref.base_offset, partition.log_start), ref.max_timestamp_ms)


def _found(each: ListOffsetsPartition, offset: int, timestamp: int = -1) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=each.partition_index, offset=offset, timestamp=timestamp, leader_epoch=RECORDS_EPOCH
    )


def _none(each: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=each.partition_index)


def _error(each: ListOffsetsPartition, code: Code) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=code)
