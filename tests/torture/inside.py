"""What no client can see: the log, the chunks and the agents' own words after a run.

The state is replayed here from the same log and the same bucket, by nobody's grace: neither registered nor
through an agent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from coordination.clock import SystemClock
from coordination.open import open_log
from coordination.replica.follower import Follower
from coordination.replica.options import ReplicaOptions
from coordination.state import State
from coordination.state.types import Partition
from objectstore.batch import check_crc, peek, records, split
from objectstore.merged import MergedRanges
from objectstore.naming import SliceRef
from objectstore.open import open_store
from objectstore.reader import ChunkReader
from objectstore.store import StoreError
from tests.torture.cluster import Cluster, Member
from tests.torture.verdict import Finding
from tests.torture.walk import Walk

CACHE_BYTES = 1 << 20
PLAN_BYTES_MAX = 1 << 60
AGREE_SECONDS_MAX = 30
LEVELS = ("error", "critical")
UNREADABLE = ("unreadable-manifest", "unreadable-chunk")
LOOKS_MAX = 5  # at a partition of which something was replaced while it was read


def inspect(cluster: Cluster, topic: str | None = None) -> list[Finding]:
    """Everything below, over a cluster that is whole again; the chunks of one topic, or of all."""
    findings = [Finding("agent-ended", "process", words) for words in cluster.ended]
    findings += asyncio.run(_agree(cluster))
    findings += asyncio.run(chunks_differ(*cluster.opened, topic))
    for member in cluster.members:
        findings += list(words(member))
    return findings


def words(member: Member) -> Iterator[Finding]:
    """What an agent said that it must never have to say: errors, tracebacks."""
    for line in member.new_lines():
        try:
            said = json.loads(line)
        except ValueError:
            said = {"level": "critical", "event": line}  # whatever is no log line is not meant to be there
        if said.get("level") in LEVELS or "exception" in said:
            yield Finding("agent-error", member.agent.name, line[:2000])


async def _agree(cluster: Cluster) -> list[Finding]:
    """All agents have the same hash at a revision that all have been at."""
    async with asyncio.timeout(AGREE_SECONDS_MAX):
        while True:
            told = [await asyncio.to_thread(member.status) for member in cluster.members]
            hashes = [{each["revision"]: each["state_hash"] for each in one["recent"]} for one in told]
            common = set(hashes[0]).intersection(*hashes[1:])
            if common:
                break
            await asyncio.sleep(0.2)
    found = []
    for revision in sorted(common):
        if len({one[revision] for one in hashes}) > 1:
            detail = ", ".join(one[revision] for one in hashes)
            found.append(Finding("state-differs", f"revision {revision}", detail))
    return found


async def chunks_differ(
    log_url: str, store_url: str, store_options: dict[str, Any], topic: str | None
) -> list[Finding]:
    """Every partition's batches tile [log start, high watermark), exist, are whole and in sequence.

    The agents go on merging and collecting, so what this state names may be replaced and gone by the time it
    is read. What the state of then names and nobody has is lost.
    """
    found: list[Finding] = []
    for _ in range(LOOKS_MAX):
        async with standing(log_url, store_url, store_options) as inside:
            partitions = partitions_of(inside.state, topic)
            found = [
                one for each in partitions for one in await _partition(each, inside.ranges, inside.reader)
            ]
        if not any(one.anomaly in UNREADABLE for one in found):
            break
    return found


@dataclass(frozen=True, slots=True)
class Inside:
    """A state that stands still, and what reads the records that it names."""

    state: State
    ranges: MergedRanges
    reader: ChunkReader


@asynccontextmanager
async def standing(log_url: str, store_url: str, store_options: dict[str, Any]) -> AsyncIterator[Inside]:
    """The state as the log's last entry of now leaves it."""
    clock = SystemClock()
    log = open_log(log_url, clock)
    store = open_store(store_url, **store_options)
    follower = Follower(log, store, ReplicaOptions())
    await follower.load()
    following = asyncio.create_task(follower.run())
    try:
        target = await log.current()
        follower.knows(target)
        async with asyncio.timeout(AGREE_SECONDS_MAX):
            await follower.wait(target)
        await _cancelled(following)  # the state stands still from here on
        reader, ranges = ChunkReader(store, CACHE_BYTES), MergedRanges(store)
        yield Inside(follower.state, ranges, reader)
        await ranges.close()
        await reader.close()
    finally:
        await _cancelled(following)
        await store.close()
        await log.close()


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def partitions_of(state: State, topic: str | None) -> list[Partition]:
    """Those of the topic, or all."""
    there = [partition for partition in state.partitions if partition is not None]
    return [partition for partition in there if topic in (None, partition.topic.name)]


async def whole(ranges: MergedRanges, partition: Partition) -> list[SliceRef]:
    """Every slice from the log start on.

    One plan may end in front of a segment that is gone; the next one begins there and says so. Raises
    StoreError for that, and where what was planned is merged while the rest is looked up.
    """
    refs: list[SliceRef] = []
    due = partition.log_start
    while True:
        planned = (await ranges.slices(partition, due, PLAN_BYTES_MAX)).plan(due, PLAN_BYTES_MAX)
        if not planned:
            return refs
        if refs and planned[0].base_offset < due:
            raise StoreError(f"{partition.topic.name}-{partition.index} was merged at {due} meanwhile")
        refs += planned
        due = planned[-1].end_offset


async def _partition(partition: Partition, ranges: MergedRanges, reader: ChunkReader) -> list[Finding]:
    place = f"{partition.topic.name}-{partition.index}"
    merged = partition.merged
    walk = Walk(
        partition.log_start,
        merged.end_offset if merged is not None else 0,
        merged.first_dirty_offset if merged is not None else 0,
        lambda producer, offset: _listed(partition, producer, offset),
    )
    try:
        refs = await whole(ranges, partition)
    except StoreError as error:
        return [Finding("unreadable-manifest", place, str(error))]
    except KeyError as error:  # the state let go of what it still refers to
        return [
            Finding(
                "unreadable-chunk", place, f"the state has slices of a chunk that it does not know: {error}"
            )
        ]
    for ref in refs:
        try:
            data = await reader.read(ref)
        except StoreError as error:
            return [Finding("unreadable-chunk", place, f"offset {ref.base_offset}: {error}")]
        for position, length in split(data):
            header = peek(data, position)
            if header.last_offset < partition.log_start:
                continue  # of a slice whose beginning DeleteRecords took from readers
            if not check_crc(data, position, position + length):
                return [Finding("corrupt-batch", place, f"offset {header.base_offset}")]
            wrong = walk.batch(header, header.control and aborts(data[position : position + length]))
            if wrong is not None:
                return [Finding("tiling", place, wrong)]
    wrong = walk.end(partition.high_watermark)
    return [Finding("tiling", place, wrong)] if wrong is not None else []


def _listed(partition: Partition, producer: int, offset: int) -> bool:
    """Whether readers of this offset are told that the producer's batch there was aborted."""
    return any(
        each.producer_id == producer and each.first_offset <= offset < each.marker_offset
        for each in partition.aborted(offset, offset + 1)
    )


def aborts(marker: memoryview) -> bool:
    """Whether a control batch is the marker of an abort: its one record's key is (version, type)."""
    (record,) = records(marker)
    return record.key is not None and record.key[2:4] == b"\0\0"
