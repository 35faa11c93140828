"""Records in the bucket that tests damage, of a topic "t", and what a Fetch gives of it then."""

from __future__ import annotations

from typing import Any

from agent.kafka.context import Client
from agent.net.wire.generated import fetch as f
from agent.net.wire.generated import produce as p
from coordination.commands import SkipDamaged
from coordination.state.types import Done, Partition
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import BatchHeader, peek, records, split
from objectstore.cache import SliceCache
from objectstore.merged import MergedRanges
from objectstore.naming import ChunkId, chunk_key, manifest_key, segment_key
from tests.unit.agent.background.merging_rig import merge_rows
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, produce
from tests.unit.agent.rig import Agent, batch

BAD = ("gone", "flipped", "cut", "empty")
"""What becomes of an object."""


def forget(agent: Agent) -> None:
    """As after a restart: nothing is in memory."""
    reader = agent.services.reader
    reader._tail, reader._cold = SliceCache(0), SliceCache(0)


def partition(agent: Agent, index: int) -> Partition:
    return agent.services.replica.state.topics["t"].partitions[index]


def chunk_at(agent: Agent, index: int, offset: int) -> ChunkId:
    chunk = partition(agent, index).slices.plan(offset, 1)[0].chunk
    assert isinstance(chunk, ChunkId)
    return chunk


async def fetch(agent: Agent, *offsets: int, wait_ms: int = 0, min_bytes: int = 1) -> list[Any]:
    """Each partition from its offset on."""
    wanted = [
        f.FetchPartition(index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in enumerate(offsets)
    ]
    topic = f.FetchTopic(topic="t", partitions=wanted)
    request = f.FetchRequest(max_wait_ms=wait_ms, min_bytes=min_bytes, topics=[topic])
    return list((await agent.call("Fetch", request, 12)).responses[0].partitions)


def values(answer: Any) -> list[bytes | None]:
    return [record.value for record in records(answer.records)] if len(answer.records) else []


def batches(answer: Any) -> list[BatchHeader]:
    return [peek(answer.records, position) for position, _ in split(answer.records)]


def holes(answer: Any) -> list[tuple[int, int]]:
    """The offsets of batches without records."""
    return [(b.base_offset, b.last_offset + 1) for b in batches(answer) if not b.record_count]


async def filled(agent: Agent) -> None:
    """Two partitions of three flushes each; a flush of one is in a chunk of its own."""
    await create(agent)
    for number in range(3):
        for index in (0, 1):
            await produce(agent, batch(b"%d-%d" % (index, number)), index=index)


async def send(agent: Agent, client: Client, number: int) -> None:
    data = [p.PartitionProduceData(0, memoryview(batch(b"x-%d" % number, b"y-%d" % number)))]
    topic = p.TopicProduceData("t", partition_data=data)
    request = p.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
    await agent.call("Produce", request, 9, client)


async def merged(agent: Agent, store: MemoryStore) -> None:
    """Two partitions, each with two merged segments of one record and one record in its tail."""
    await filled(agent)
    for _ in range(2):
        for index in (0, 1):
            await merge_rows(agent, store, 1, index=index)
    forget(agent)
    agent.services.merged = agent.services.fetch._merged = MergedRanges(store)  # and no manifest is known


async def flip(store: MemoryStore, chunk: ChunkId, text: bytes) -> None:
    data = bytearray(await store.get(chunk_key(chunk)))
    data[data.index(text)] ^= 1
    await store.put(chunk_key(chunk), [data])


async def spoil(store: MemoryStore, key: str, how: str, at: int) -> None:
    """Delete an object, flip a bit of the byte `at`, cut off what is from there on, or all of it."""
    if how == "gone":
        await store.delete([key])
        return
    data = bytearray(await store.get(key))
    if how == "flipped":
        data[at] ^= 1
    else:
        del data[at if how == "cut" else 0 :]
    await store.put(key, [data])


async def spoil_chunk(agent: Agent, store: MemoryStore, offset: int, how: str) -> str:
    """Damage or delete the chunk of this offset of partition 0, as `filled` made it; its key."""
    key = chunk_key(chunk_at(agent, 0, offset))
    await spoil(store, key, how, at=(await store.get(key)).index(b"0-%d" % offset))
    return key


async def spoil_merged(agent: Agent, store: MemoryStore, what: str, how: str) -> int:
    """Damage or delete the manifest, the second segment, its index or its block; the first offset hurt."""
    pointer = partition(agent, 0).merged
    assert pointer is not None
    if what == "manifest":
        await spoil(store, manifest_key(pointer.manifest), how, at=-1)
        return 0
    manifest = await MergedRanges(store).manifest(pointer.manifest)
    await spoil(store, segment_key(manifest[1].segment), how, at=-1 if what == "index" else 100)
    return 1


async def skip(agent: Agent, *ranges: tuple[int, int]) -> None:
    """Pass over what is damaged there, in partition 0."""
    starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
    message = SkipDamaged(partition=partition(agent, 0).handle, start=starts, end=ends, by="me")
    replica = agent.services.replica
    assert isinstance(await replica.propose(message, incarnation=replica.incarnation), Done)
