"""Merging and compaction go on around damage that somebody decided to pass over, and around no other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from agent.background.rewriting.compaction.job import Compaction
from agent.background.rewriting.decisions import NOWHERE, Decided, Decisions
from agent.background.rewriting.merging.spared import Unreadable
from agent.net.wire.generated import fetch as f
from coordination.clock import ManualClock
from coordination.commands import MoveLogStart, SkipDamaged
from coordination.state.types import Done, Skipped
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import peek, records, split
from objectstore.faulty import Fault, FaultyStore
from objectstore.grace import Grace
from objectstore.merged import DamagedIndex, MergedRanges
from objectstore.naming import SEGMENTS, chunk_key, segment_key
from objectstore.reader import ChunkMissing
from objectstore.segment import verify
from objectstore.store import Retryable
from tests.unit.agent.background.compaction_rig import compaction
from tests.unit.agent.background.merging_rig import EAGER, merge_rows, parts_of
from tests.unit.agent.background.test_compaction import put
from tests.unit.agent.background.test_merged_collection import collect
from tests.unit.agent.background.test_merging import keys
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.admin_calls import create as create_topic
from tests.unit.agent.kafka.admin_calls import topic
from tests.unit.agent.kafka.damage_rig import (
    BAD,
    batches,
    chunk_at,
    fetch,
    filled,
    forget,
    holes,
    merged,
    partition,
    send,
    skip,
    spoil,
    spoil_chunk,
    spoil_merged,
    values,
)
from tests.unit.agent.kafka.test_handlers_produce_fetch import create
from tests.unit.agent.rig import Agent

ALL = replace(EAGER, segment_bytes=300)  # what there is becomes one segment


async def merge_all(
    agent: Agent, store: Any, rows: int = 3, *, skipped_wait_ms: int = 0, **changes: Any
) -> list[int]:
    """Merge the partition's oldest rows and all of its segments into one; the handles that were swapped."""
    parts = parts_of(agent, store, replace(ALL, **changes), skipped_wait_ms=skipped_wait_ms)
    done = await merge_rows(agent, store, rows, parts=parts)
    forget(agent)
    return done.swapped


async def seen(agent: Agent, end: int = 3) -> list[list[tuple[int, int, int]]]:
    """What a Fetch gives from each offset on: batches as (first, last, count)."""
    found = []
    for offset in range(end):
        answer = (await fetch(agent, offset))[0]
        assert answer.error_code == 0
        found.append([(b.base_offset, b.last_offset, b.record_count) for b in batches(answer)])
    return found


async def verified(agent: Agent, store: MemoryStore) -> int:
    """Check the partition's manifest and segments against one another; how many records they name."""
    pointer = partition(agent, 0).merged
    assert pointer is not None
    manifest = await MergedRanges(store).manifest(pointer.manifest)
    assert manifest.summary().records == pointer.records
    counted = 0
    for info in (manifest[number] for number in range(len(manifest))):
        verify(await store.get(segment_key(info.segment)), info)
    for offset in range(pointer.end_offset):
        answer = (await fetch(agent, offset))[0]
        counted += sum(b.record_count for b in batches(answer)[:1] if b.base_offset == offset)
    assert counted == pointer.records
    return counted


@pytest.mark.parametrize("how", BAD)
@pytest.mark.parametrize("hurt", [0, 1, 2])
async def test_a_merge_goes_on_around_damage_that_is_skipped(
    agent: Agent, memory_store: MemoryStore, how: str, hurt: int
) -> None:
    """Wherever it is, also at the very end, which a reader has to get behind."""
    await filled(agent)
    await spoil_chunk(agent, memory_store, hurt, how)
    forget(agent)
    await skip(agent, (hurt, hurt + 1))
    before = await seen(agent)
    assert await merge_all(agent, memory_store) == [partition(agent, 0).handle]
    assert len(partition(agent, 0).slices) == 0
    assert await seen(agent) == before, "each offset is answered as before"
    assert await verified(agent, memory_store) == 2
    (segment,) = await keys(memory_store, SEGMENTS)
    pointer = partition(agent, 0).merged
    assert pointer is not None
    manifest = await MergedRanges(memory_store).manifest(pointer.manifest)
    assert (segment, manifest[0].records) == (segment_key(manifest[0].segment), 2)
    assert manifest[0].first_timestamp_ms >= 0, "of the first record, not of a hole before it"


@pytest.mark.parametrize("how", BAD)
async def test_a_merge_waits_at_damage_that_nobody_decided_on(
    agent: Agent, memory_store: MemoryStore, how: str
) -> None:
    await filled(agent)
    for offset in (0, 1):
        await spoil_chunk(agent, memory_store, offset, how)
    await skip(agent, (1, 2))
    with pytest.raises(Exception, match=r"CRC|does not exist|ends at"):
        await merge_all(agent, memory_store)
    await skip(agent, (0, 1))
    assert await merge_all(agent, memory_store)
    assert holes((await fetch(agent, 0))[0]) == [(0, 1), (1, 2)]


async def test_a_damaged_object_stays_until_the_swap_and_its_grace(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await filled(agent)
    key = await spoil_chunk(agent, memory_store, 1, "flipped")
    await skip(agent, (1, 2))
    assert await collect(agent, memory_store) == [], "it is in the state"
    await merge_all(agent, memory_store)
    assert key not in await collect(agent, memory_store, grace_s=3600)
    assert key in await keys(memory_store, "chunks/")
    assert key in await collect(agent, memory_store)
    assert await verified(agent, memory_store) == 2


async def test_an_object_that_comes_back_while_the_decision_is_young_is_read(
    agent: Agent, memory_store: MemoryStore
) -> None:
    """Rows before it move on meanwhile, those from it on stay as they are."""
    await filled(agent)
    key = chunk_key(chunk_at(agent, 0, 1))
    content = await memory_store.get(key)
    await memory_store.delete([key])
    await skip(agent, (1, 2))
    assert await merge_all(agent, memory_store, skipped_wait_ms=3_600_000)
    assert await merge_all(agent, memory_store, skipped_wait_ms=3_600_000) == []
    pointer = partition(agent, 0).merged
    assert pointer is not None
    assert pointer.end_offset == 1
    await memory_store.put(key, [content])
    assert await merge_all(agent, memory_store)
    assert values((await fetch(agent, 0))[0]) == [b"0-0", b"0-1", b"0-2"]


class HurtPartition:
    """All of a partition that decisions are looked up by."""

    handle = 3
    held_start = 2

    def __init__(self, *stamps: tuple[int, int]) -> None:
        self.skipped = tuple(Skipped(start, start + 5, since_ms, "me") for start, since_ms in stamps)


def test_what_is_young_is_left_alone() -> None:
    """By its own decision's age; what is behind it waits, what is old does not."""
    hurt: Any = HurtPartition((0, 10), (20, 90), (40, 10))
    clock = ManualClock()

    def as_of(now_ms: int) -> Decided:
        return Decisions(Grace(50, lambda: now_ms, clock.monotonic)).of(hurt)

    found = as_of(100)
    assert found.final == (hurt.skipped[0], hurt.skipped[2])
    assert [found.alone_from(offset) for offset in (0, 22, 24, 25)] == [20, 22, 24, NOWHERE]
    assert as_of(60).final == (hurt.skipped[0], hurt.skipped[2])
    assert as_of(59).final == ()


def test_a_decision_stamped_by_a_clock_that_was_years_ahead_grows_old_all_the_same() -> None:
    """Seed 669 of the simulation: by five minutes; and what is stamped rightly waits no less for it."""
    hurt: Any = HurtPartition((0, 1 << 40), (20, 1_000))
    now_ms, clock = [1_000], ManualClock()
    decisions = Decisions(Grace(50, lambda: now_ms[0], clock.monotonic))
    assert decisions.of(hurt).final == ()
    clock.advance(0.049)
    assert decisions.of(hurt).recent == hurt.skipped
    now_ms[0] = 1_050
    assert decisions.of(hurt).final == hurt.skipped[1:]
    clock.advance(0.002)
    assert decisions.of(hurt).final == hurt.skipped
    hurt.handle = 4
    assert decisions.of(hurt).final == hurt.skipped[1:], "another partition's is known since now"


@pytest.mark.parametrize("what", ["manifest", "index", "block"])
@pytest.mark.parametrize("how", BAD)
async def test_merged_damage_becomes_a_hole(
    agent: Agent, memory_store: MemoryStore, what: str, how: str
) -> None:
    """A lost block, a lost segment, and a manifest with all that it named."""
    await merged(agent, memory_store)
    pointer = partition(agent, 0).merged
    start = await spoil_merged(agent, memory_store, what, how)
    with pytest.raises(Exception, match=r"match|does not exist|ends at|less than"):
        await merge_all(agent, memory_store)
    assert partition(agent, 0).merged == pointer
    if what == "manifest":
        await skip(agent, (1, 2))
        with pytest.raises((DamagedIndex, ChunkMissing)):  # half of what was in it is nobody's decision
            await merge_all(agent, memory_store)
    await skip(agent, (start, 2))
    assert await merge_all(agent, memory_store)
    assert partition(agent, 0).merged != pointer
    sound = [b"0-0", b"0-2"][start == 0 :]
    assert values((await fetch(agent, 0))[0]) == sound
    assert holes((await fetch(agent, start))[0]) == [(start, 2)]
    assert await verified(agent, memory_store) == len(sound)
    state = agent.services.replica.state
    assert not agent.services.damages.ranges(state)


async def lost_row(start: StartAgent, store: MemoryStore) -> tuple[Agent, int, int]:
    """An agent with a last row of two batches of two records, [first, end), whose chunk is gone."""
    agent = await start("a", produce={"linger_ms": 300, "quiet_ms": 100})
    await create(agent)
    clients = [agent.connect() for _ in range(3)]
    await asyncio.gather(*(send(agent, client, number) for number, client in enumerate(clients)))
    rows = partition(agent, 0).slices.plan(0, 1 << 20)
    first, end = rows[-1].base_offset, rows[-1].end_offset
    assert end - first == 4, "two batches in one row"
    await store.delete([chunk_key(chunk_at(agent, 0, first))])
    return agent, first, end


async def test_a_row_is_passed_over_when_all_that_is_lost_of_it_is(
    start: StartAgent, memory_store: MemoryStore
) -> None:
    agent, first, end = await lost_row(start, memory_store)
    await skip(agent, (first, first + 2))
    with pytest.raises(Unreadable):
        await merge_all(agent, memory_store)
    await skip(agent, (first + 2, end))
    assert await merge_all(agent, memory_store)


async def test_what_lies_below_the_log_start_is_in_nobodys_way(
    start: StartAgent, memory_store: MemoryStore
) -> None:
    """A row of which the first part was deleted: only the rest was decided on, and only that counts."""
    agent, first, end = await lost_row(start, memory_store)
    await skip(agent, (first, end))
    handle, replica = partition(agent, 0).handle, agent.services.replica
    assert isinstance(await replica.propose(MoveLogStart(partition=[handle], offset=[first + 2])), Done)
    assert [(each.start, each.end) for each in partition(agent, 0).skipped] == [(first + 2, end)]
    assert await merge_all(agent, memory_store)
    assert holes((await fetch(agent, first + 2))[0]) == [(first, end)]


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.TRUNCATED])
async def test_a_store_out_of_reach_is_taken_for_no_damage(
    start: StartAgent, memory_store: MemoryStore, fault: Fault
) -> None:
    store = FaultyStore(memory_store)
    agent = await start("a", store_port=store)
    await filled(agent)
    await skip(agent, (0, 3))
    store.order("get_range", *[fault] * 3)
    with pytest.raises(Retryable):
        await merge_all(agent, store)
    assert partition(agent, 0).merged is None
    assert await merge_all(agent, store)
    assert values((await fetch(agent, 0))[0]) == [b"0-0", b"0-1", b"0-2"]


class Once(FaultyStore):
    """Says once of each object that it is not there."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.denied: list[str] = []
        self.on = False

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ObjectStore."""
        if self.on and key not in self.denied:
            self.denied.append(key)
            return await super().get_range(f"{key}.absent", start, length)
        return await super().get_range(key, start, length)


async def test_one_look_that_finds_nothing_is_no_proof(start: StartAgent, memory_store: MemoryStore) -> None:
    """Nor is one that finds wrong bytes: two reads say what is damaged."""
    store = Once(memory_store)
    agent = await start("a", store_port=store)
    await merged(agent, memory_store)
    await skip(agent, (0, 3))
    parts = parts_of(agent, store, ALL)
    parts = replace(parts, ranges=MergedRanges(store))
    store.on = True
    assert (await merge_rows(agent, store, 3, parts=parts)).swapped
    assert len(store.denied) == 3, "two segments, each by its index, and a chunk"
    forget(agent)
    assert values((await fetch(agent, 0))[0]) == [b"0-0", b"0-1", b"0-2"]


async def test_wrong_bytes_on_the_way_are_no_damage(start: StartAgent, memory_store: MemoryStore) -> None:
    store = FaultyStore(memory_store)
    agent = await start("a", store_port=store)
    await filled(agent)
    await skip(agent, (0, 3))
    store.order("get_range", Fault.CORRUPT)
    assert await merge_all(agent, store)
    assert values((await fetch(agent, 0))[0]) == [b"0-0", b"0-1", b"0-2"]


def job(agent: Agent, store: Any) -> Compaction:
    return compaction(agent, store, agent.services.clock)


async def skip_in(agent: Agent, name: str, start: int, end: int) -> None:
    handle = agent.services.replica.state.topics[name].partitions[0].handle
    message = SkipDamaged(partition=handle, start=[start], end=[end], by="me")
    assert isinstance(await agent.services.replica.propose(message), Done)


async def compacted(agent: Agent, store: Any) -> bool:
    handle = agent.services.replica.state.topics["c"].partitions[0].handle
    done = await job(agent, store).compact(handle)
    forget(agent)
    return done is not None and done.swapped


async def two_keys(agent: Agent) -> list[str]:
    """Three chunks of keys a and b; their keys in the store."""
    await create_topic(agent, topic("c", cleanup_policy="compact"))
    for number in range(3):
        await put(agent, "c", (b"a", b"%d" % number), (b"b", b"%d" % number))
    slices = agent.services.replica.state.topics["c"].partitions[0].slices.plan(0, 1 << 20)
    return [chunk_key(ref.chunk) for ref in slices]  # type: ignore[arg-type]  # a tail's rows are in chunks


@pytest.mark.parametrize("how", BAD)
@pytest.mark.parametrize("hurt", [0, 1, 2])
async def test_a_compaction_goes_on_around_damage_that_is_skipped(
    agent: Agent, memory_store: MemoryStore, how: str, hurt: int
) -> None:
    """What was lost replaced nothing: older records of its keys stay."""
    chunks = await two_keys(agent)
    await spoil(memory_store, chunks[hurt], how, at=100)
    assert not await compacted(agent, memory_store)
    await skip_in(agent, "c", 2 * hurt, 2 * hurt + 2)
    forget(agent)
    assert await compacted(agent, memory_store)
    newest = 1 if hurt == 2 else 2
    value = b"%d" % newest
    assert len(agent.services.replica.state.topics["c"].partitions[0].slices) == 0
    found = await kept_to_the_end(agent)
    assert found == [(2 * newest, b"a", value), (2 * newest + 1, b"b", value)]


async def kept_to_the_end(agent: Agent) -> list[tuple[int, bytes | None, bytes | None]]:
    """All records, read as a consumer does that must get to the high watermark."""
    found: list[tuple[int, bytes | None, bytes | None]] = []
    offset, end = 0, 6
    while offset < end:
        answer = await fetch_of(agent, "c", offset)
        assert answer.error_code == 0
        raw = answer.records
        headers = [peek(raw, position) for position, _ in split(raw)]
        assert headers, f"stuck at {offset}"
        found += [(row.offset, row.key, row.value) for row in records(raw) if row.offset >= offset]
        offset = headers[-1].last_offset + 1
    return found


async def fetch_of(agent: Agent, name: str, offset: int) -> Any:
    part = f.FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = f.FetchRequest(max_wait_ms=0, topics=[f.FetchTopic(name, partitions=[part])])
    return (await agent.call("Fetch", request, 12)).responses[0].partitions[0]
