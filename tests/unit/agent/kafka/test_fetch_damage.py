"""Rule 16: a damaged object concerns its offsets. Every other partition of the same Fetch flows."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from agent.net.wire.generated import list_offsets as lo
from coordination.kafka_codes import Code
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import peek
from objectstore.faulty import Fault, FaultyStore
from objectstore.merged import MergedRanges
from objectstore.naming import chunk_key, manifest_key, segment_key
from objectstore.segment import HEADER_BYTES as SEGMENT_HEADER
from objectstore.store import Retryable
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.damage_rig import (
    BAD,
    chunk_at,
    fetch,
    filled,
    flip,
    forget,
    merged,
    partition,
    send,
    spoil,
    spoil_chunk,
    values,
)
from tests.unit.agent.kafka.test_handlers_produce_fetch import create
from tests.unit.agent.rig import Agent


@pytest.mark.parametrize("how", BAD)
async def test_what_lies_before_is_served_then_the_error_and_other_partitions_flow(
    agent: Agent, memory_store: MemoryStore, how: str
) -> None:
    await filled(agent)
    key = await spoil_chunk(agent, memory_store, 1, how)
    forget(agent)
    first, second = await fetch(agent, 0, 0)
    assert (first.error_code, values(first)) == (0, [b"0-0"])
    assert (second.error_code, values(second)) == (0, [b"1-0", b"1-1", b"1-2"])
    with capture_logs() as lines:
        first, second = await fetch(agent, 1, 0)
    assert (first.error_code, values(first)) == (Code.CORRUPT_MESSAGE, [])
    assert (second.error_code, values(second)) == (0, [b"1-0", b"1-1", b"1-2"])
    (line,) = [each for each in lines if each["log_level"] == "error"]
    assert (line["topic"], line["partition"], line["from_offset"], line["to_offset"]) == ("t", 0, 1, 2)
    assert key in line["reason"]
    (first,) = await fetch(agent, 2)
    assert (first.error_code, values(first)) == (0, [b"0-2"]), "and what lies behind"
    (found,) = agent.services.damages.ranges(agent.services.replica.state)
    assert (found.topic, found.partition, found.start, found.end, found.count) == ("t", 0, 1, 2, 1)
    assert agent.services.metrics.damaged_reads.labels("t")._value.get() == 1


@pytest.mark.parametrize("hit", [0, 1])
async def test_sound_batches_of_a_damaged_slice_are_served(
    start: StartAgent, memory_store: MemoryStore, hit: int
) -> None:
    """Batches of one flush are one slice: only the one that is damaged is lost, whatever stands beside it."""
    agent = await start("a", produce={"linger_ms": 300, "quiet_ms": 100})
    await create(agent)
    clients = [agent.connect() for _ in range(3)]
    await asyncio.gather(*(send(agent, client, n) for n, client in enumerate(clients)))
    one = partition(agent, 0).slices.plan(0, 1 << 20)[-1]
    assert one.end_offset - one.base_offset == 4, "two batches of two records"
    first = one.base_offset
    before = values((await fetch(agent, first))[0])
    damaged = before[2 * hit]
    assert isinstance(damaged, bytes)
    await flip(memory_store, chunk_at(agent, 0, first), damaged)
    forget(agent)
    lost, sound = first + 2 * hit, first + 2 * (1 - hit)
    for offset in (lost, lost + 1):
        assert (await fetch(agent, offset))[0].error_code == Code.CORRUPT_MESSAGE
    (answer,) = await fetch(agent, sound)
    assert (answer.error_code, values(answer)) == (0, before[2 - 2 * hit : 4 - 2 * hit])
    assert peek(answer.records).base_offset == sound


async def test_a_store_out_of_reach_is_no_damage(start: StartAgent, memory_store: MemoryStore) -> None:
    store = FaultyStore(memory_store)
    agent = await start("a", store_port=store)
    await filled(agent)
    forget(agent)
    store.order("get_range", *[Fault.REFUSED] * 50)
    (first,) = await fetch(agent, 0)
    assert first.error_code == Code.KAFKA_STORAGE_ERROR, "retriable: clients ask again in silence"
    assert not agent.services.damages.ranges(agent.services.replica.state)


async def test_an_object_that_is_too_short_is_damaged(agent: Agent, memory_store: MemoryStore) -> None:
    await filled(agent)
    chunk = chunk_at(agent, 0, 0)
    data = await memory_store.get(chunk_key(chunk))
    await memory_store.put(chunk_key(chunk), [data[:100]])
    forget(agent)
    first, second = await fetch(agent, 0, 0)
    assert first.error_code == Code.CORRUPT_MESSAGE
    assert values(second) == [b"1-0", b"1-1", b"1-2"]


async def test_a_log_that_cannot_be_asked_leaves_it_open_whether_a_chunk_is_lost(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a state newer than the look tells that the object is still named."""
    await filled(agent)
    await memory_store.delete([chunk_key(chunk_at(agent, 0, 0))])
    forget(agent)

    async def away() -> int:
        raise TimeoutError

    monkeypatch.setattr(agent.services.replica, "barrier", away)
    first, second = await fetch(agent, 0, 0)
    assert first.error_code == Code.KAFKA_STORAGE_ERROR
    assert values(second) == [b"1-0", b"1-1", b"1-2"]


async def test_offsets_by_time_in_damaged_records_are_their_first(
    agent: Agent, memory_store: MemoryStore
) -> None:
    """Whoever asks by time gets to the damage and hears of it there; other partitions are answered."""
    await filled(agent)
    await memory_store.delete([chunk_key(chunk_at(agent, 0, 0))])
    forget(agent)
    stamps = [lo.ListOffsetsPartition(partition_index=index, timestamp=1) for index in (0, 1)]
    request = lo.ListOffsetsRequest(replica_id=-1, topics=[lo.ListOffsetsTopic("t", stamps)])
    answer = (await agent.call("ListOffsets", request, 9)).topics[0].partitions
    assert [(each.error_code, each.offset) for each in answer] == [(0, 0), (0, 0)]


@pytest.mark.parametrize("how", BAD)
async def test_a_damaged_manifest_concerns_its_partition(
    agent: Agent, memory_store: MemoryStore, how: str
) -> None:
    await merged(agent, memory_store)
    pointer = partition(agent, 0).merged
    assert pointer is not None
    await spoil(memory_store, manifest_key(pointer.manifest), how, at=-1)
    first, second = await fetch(agent, 0, 0)
    assert first.error_code == Code.CORRUPT_MESSAGE
    assert values(second) == [b"1-0", b"1-1", b"1-2"]
    (first,) = await fetch(agent, 2)
    assert values(first) == [b"0-2"], "the tail is read without it"
    (found,) = agent.services.damages.ranges(agent.services.replica.state)
    assert (found.partition, found.start, found.end) == (0, 0, 2)


@pytest.mark.parametrize("how", BAD)
@pytest.mark.parametrize("at", [-1, SEGMENT_HEADER + 70])
async def test_a_damaged_segment_concerns_its_offsets(
    agent: Agent, memory_store: MemoryStore, how: str, at: int
) -> None:
    """Its index or a block of it: what lies in the segment before it is served, and what lies behind."""
    await merged(agent, memory_store)
    pointer = partition(agent, 0).merged
    assert pointer is not None
    manifest = await MergedRanges(memory_store).manifest(pointer.manifest)
    await spoil(memory_store, segment_key(manifest[1].segment), how, at)
    found = {offset: (await fetch(agent, offset, 0)) for offset in (0, 1, 2)}
    assert values(found[0][0]) == [b"0-0"]
    assert (found[1][0].error_code, values(found[1][0])) == (Code.CORRUPT_MESSAGE, [])
    assert values(found[2][0]) == [b"0-2"]
    assert all(values(second) == [b"1-0", b"1-1", b"1-2"] for _, second in found.values())
    (damaged,) = agent.services.damages.ranges(agent.services.replica.state)
    assert (damaged.partition, damaged.start, damaged.end) == (0, 1, 2)


@pytest.mark.parametrize("head_fails", [False, True])
async def test_an_index_that_the_store_fails_for_is_not_said_to_be_damaged(
    agent: Agent, memory_store: MemoryStore, head_fails: bool
) -> None:
    """Neither where the segment is as long as it was, nor where nobody knows."""
    await merged(agent, memory_store)
    pointer = partition(agent, 0).merged
    assert pointer is not None
    store = FaultyStore(memory_store)
    ranges = MergedRanges(store)
    manifest = await ranges.manifest(pointer.manifest)
    store.order("get_range", Fault.TRUNCATED)
    if head_fails:
        store.order("head", Fault.REFUSED)
    with pytest.raises(Retryable, match="get_range ended early"):
        await ranges.index(manifest[0])
    assert len((await ranges.index(manifest[0])).blocks) == 1
