"""Merged ranges through real handlers: what a client reads does not depend on what is merged."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from agent.background.rewriting.merging.merge import merge, plan, portions
from agent.background.rewriting.merging.planner import RANGE, Due
from agent.background.rewriting.merging.spared import Unreadable
from agent.background.rewriting.merging.worker import Worker
from coordination.commands import Claim, CreateTopic, DeleteTopic, MoveLogStart, ReleaseClaim
from coordination.kafka_codes import Code
from coordination.state.types import Done
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import peek, split
from objectstore.cache import SliceCache
from objectstore.faulty import FaultRates, FaultyStore
from objectstore.naming import MANIFESTS, SEGMENTS, manifest_key, object_key
from objectstore.store import ObjectStore, Retryable
from tests.unit.agent.background.merging_rig import EAGER, job_of, merge_rows, partition_of, parts_of
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.test_handlers_produce_fetch import NOW, create, fetch, offsets, produce, values
from tests.unit.agent.rig import Agent, batch


async def fill(agent: Agent, count: int, index: int = 0, first: int = 0) -> None:
    """`count` batches of two records, each a slice of its own."""
    for number in range(first, first + count):
        raw = batch(b"a%d" % number, b"b%d" % number, timestamp=NOW + 10 * number)
        assert (await produce(agent, raw, index=index)).error_code == 0


def expected(first: int, last: int) -> list[bytes]:
    """The values of the records [first, last)."""
    return [b"%s%d" % (b"ab"[n % 2 : n % 2 + 1], n // 2) for n in range(first, last)]


def forget_memory(agent: Agent) -> None:
    agent.services.reader._tail = SliceCache(0)


async def keys(store: ObjectStore, prefix: str) -> list[str]:
    return [meta.key async for page in store.list(prefix) for meta in page]


async def test_every_offset_reads_the_same_before_and_after_merging(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await create(agent)
    await fill(agent, 10)
    forget_memory(agent)
    before = [values(await fetch(agent, offset)) for offset in range(20)]
    for rows in (3, 1, 4):
        done = await merge_rows(agent, memory_store, rows)
        assert (done.swapped, done.refused) == ([0], [])
        for offset in range(20):
            answer = await fetch(agent, offset)
            assert (answer.error_code, answer.high_watermark) == (0, 20)
            assert values(answer) == before[offset]
    merged = partition_of(agent).merged
    assert merged is not None
    assert (merged.end_offset, len(partition_of(agent).slices)) == (16, 2)
    assert partition_of(agent).size_bytes == merged.size_bytes + partition_of(agent).slices.size_bytes


async def test_limits_cut_at_batch_ends_in_merged_ranges_too(agent: Agent, memory_store: MemoryStore) -> None:
    await create(agent)
    await fill(agent, 6)
    await merge_rows(agent, memory_store, 4)
    size = len(batch(b"a0", b"b0"))
    for offset in range(12):
        start = offset - offset % 2
        assert values(await fetch(agent, offset, bytes_max=1)) == expected(start, start + 2), (
            "the first whole"
        )
        found = values(await fetch(agent, offset, bytes_max=2 * size))
        assert found in (expected(start, start + 2), expected(start, start + 4)), "what fits, and no gap"
    empty = await fetch(agent, 12)
    assert (empty.error_code, values(empty) if empty.records else []) == (0, [])


async def test_offsets_by_time_are_found_in_merged_ranges(agent: Agent, memory_store: MemoryStore) -> None:
    await create(agent)
    await fill(agent, 10)
    asked = (-1, -2, -3, -4, 0, NOW + 1, NOW + 35, NOW + 71, NOW + 90, NOW + 92)
    before = await offsets(agent, *asked)
    await merge_rows(agent, memory_store, 3)
    await merge_rows(agent, memory_store, 4)
    assert await offsets(agent, *asked) == before
    await merge_rows(agent, memory_store, 9)
    assert await offsets(agent, *asked) == before, "all is merged"
    await agent.services.replica.propose(MoveLogStart(partition=[0], offset=[5]))
    assert await offsets(agent, -2, 0, NOW + 35) == [(0, 5, -1), (0, 5, NOW + 21), (0, 8, NOW + 40)]


async def test_a_log_start_inside_a_merged_range_is_where_reading_begins(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await create(agent)
    await fill(agent, 8)
    await merge_rows(agent, memory_store, 6)
    await agent.services.replica.propose(MoveLogStart(partition=[0], offset=[7]))
    assert (await fetch(agent, 6)).error_code == Code.OFFSET_OUT_OF_RANGE
    assert values(await fetch(agent, 7)) == expected(6, 16), "an offset inside a batch returns that batch"
    await merge_rows(agent, memory_store, 1)
    await agent.services.replica.propose(MoveLogStart(partition=[0], offset=[13]))
    done = await merge_rows(agent, memory_store, 1)
    assert done.swapped == [0]
    merged = partition_of(agent).merged
    assert merged is not None
    assert (merged.start_offset, merged.segments) == (12, 2), "a dead segment goes with the next merge"
    assert len(agent.services.replica.state.segment_garbage) == 1
    assert values(await fetch(agent, 13)) == expected(12, 16)


async def test_a_reader_whose_manifest_was_collected_plans_again(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await create(agent)
    await fill(agent, 8)
    await merge_rows(agent, memory_store, 4)
    merged = partition_of(agent).merged
    assert merged is not None
    ranges = agent.services.merged
    seen: list[Any] = []
    original = ranges.plan

    async def late(named: Any, offset: int, bytes_max: int) -> Any:
        """The first look comes with the old pointer, after all of it was replaced and deleted."""
        if not seen:
            seen.append(named)
            await merge_rows(agent, memory_store, 2)
            await memory_store.delete([manifest_key(named)])
            ranges._manifests._kept.clear()
        return await original(named, offset, bytes_max)

    ranges.plan = late  # type: ignore[method-assign]  # a slow reader cannot be had otherwise
    answer = await fetch(agent, 0)
    assert seen == [merged.manifest]
    assert (answer.error_code, values(answer)) == (0, expected(0, 16))


async def test_rows_merged_while_a_reader_looks_leave_no_gap(agent: Agent, memory_store: MemoryStore) -> None:
    await create(agent)
    await fill(agent, 8)
    await merge_rows(agent, memory_store, 2)
    ranges = agent.services.merged
    original = ranges.plan

    async def slow(named: Any, offset: int, bytes_max: int) -> Any:
        """Between the look at the old manifest and the plan the tail moves on."""
        found = await original(named, offset, bytes_max)
        ranges.plan = original  # type: ignore[method-assign]  # put back after one call
        await merge_rows(agent, memory_store, 3)
        return found

    ranges.plan = slow  # type: ignore[method-assign]  # the race cannot be had otherwise
    assert values(await fetch(agent, 1)) == expected(0, 4), "less than there is, and nothing skipped"
    assert values(await fetch(agent, 4)) == expected(4, 16)


async def test_a_missing_segment_is_told_never_an_empty_answer(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await create(agent)
    await fill(agent, 4)
    await merge_rows(agent, memory_store, 4)
    await memory_store.delete(await keys(memory_store, SEGMENTS))
    assert (await fetch(agent, 0)).error_code == Code.CORRUPT_MESSAGE


async def test_duplicates_are_known_after_their_rows_were_merged(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await create(agent)
    raw = batch(b"x", b"y", producer_id=7, producer_epoch=0, base_sequence=0)
    first = await produce(agent, raw)
    await fill(agent, 3)
    await merge_rows(agent, memory_store, 4)
    again = await produce(agent, raw)
    assert (again.error_code, again.base_offset) == (0, first.base_offset) == (0, 0)
    assert partition_of(agent).high_watermark == 8


async def test_two_agents_that_merge_the_same_rows_do_it_once(
    start: StartAgent, memory_store: MemoryStore
) -> None:
    one, other = await start("a"), await start("b")
    await create(one)
    await fill(one, 8)
    await other.services.replica.barrier()
    done = await asyncio.gather(
        merge_rows(one, memory_store, 4), merge_rows(other, memory_store, 6), return_exceptions=False
    )
    assert sorted(len(each.swapped) for each in done) == [0, 1]
    assert len(await keys(memory_store, SEGMENTS)) == len(await keys(memory_store, MANIFESTS)) == 1
    for agent in (one, other):
        await agent.services.replica.barrier()
        assert values(await fetch(agent, 0)) == expected(0, 16)


async def test_the_job_claims_ranges_and_leaves_the_newest_rows(
    start: StartAgent, memory_store: MemoryStore
) -> None:
    one, other = await start("a"), await start("b")
    await create(one, partitions=3)
    for index in range(3):
        await fill(one, 12, index)
    await other.services.replica.barrier()
    rules = replace(EAGER, keep_slices=2)
    jobs = {agent: job_of(agent, memory_store, rules) for agent in (one, other)}
    for job in jobs.values():
        await job._look()
    claims = one.services.replica.state.claims
    chosen = next(agent for agent in jobs if jobs[agent]._chosen(0) == agent.services.replica.node_id)
    assert claims["merging/0"].incarnation == chosen.services.replica.incarnation
    for index in range(3):
        part = partition_of(chosen, index=index)
        assert (part.merged is not None, len(part.slices)) == (True, 2)
        assert values(await fetch(chosen, 0, index=index)) == expected(0, 24)
    assert jobs[chosen]._metrics.merge_gets._value.get() < 36, "a chunk is read once for all its partitions"


async def test_nobody_goes_through_a_range_that_another_agent_has(
    start: StartAgent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await start("a"), await start("b")
    await create(one)
    assert isinstance(await one.services.replica.propose(Claim(name="merging/0")), Done)
    await other.services.replica.barrier()
    looked: list[int] = []
    job = job_of(other, memory_store)
    monkeypatch.setattr(job, "due", lambda number, now_s: looked.append(number))
    await job._look()
    assert looked == []
    held = one.services.replica.state.claims["merging/0"]
    release = ReleaseClaim(name="merging/0", claim_revision=held.revision)
    await one.services.replica.propose(release)
    await other.services.replica.barrier()
    await job._look()
    assert looked == [0]


async def test_an_agent_that_should_not_have_a_range_any_more_gives_it_back(
    start: StartAgent, memory_store: MemoryStore
) -> None:
    agents = [await start(name) for name in ("a", "b")]
    job = job_of(agents[0], memory_store)
    chosen = next(each for each in agents if job._chosen(0) == each.services.replica.node_id)
    keeper = next(each for each in agents if each is not chosen)
    await create(keeper)
    assert isinstance(await keeper.services.replica.propose(Claim(name="merging/0")), Done)
    await job_of(keeper, memory_store)._look()
    assert "merging/0" not in keeper.services.replica.state.claims
    waiting = job_of(keeper, memory_store)
    await fill(keeper, 10)
    for looks in range(4):
        await waiting._look()
        assert ("merging/0" in keeper.services.replica.state.claims) == (looks >= 3), "the other goes first"


async def test_aged_rows_are_merged_however_few(agent: Agent, memory_store: MemoryStore) -> None:
    await create(agent)
    await fill(agent, 2)
    job = job_of(agent, memory_store, replace(EAGER, age_s=0.0))
    assert job_of(agent, memory_store).due(0, 0.0) == []
    assert [(each.handle, each.rows, each.aged) for each in job.due(0, 0.0)] == [(0, 2, True)]
    await job._look()
    assert len(partition_of(agent).slices) == 0
    assert values(await fetch(agent, 0)) == expected(0, 4)


async def test_small_segments_become_larger_ones(agent: Agent, memory_store: MemoryStore) -> None:
    await create(agent)
    counts = []
    for number in range(32):
        await fill(agent, 2, first=2 * number)
        await merge_rows(agent, memory_store, 2)
        merged = partition_of(agent).merged
        assert merged is not None
        counts.append(merged.segments)
    assert max(counts) <= 14, counts
    assert values(await fetch(agent, 0)) == expected(0, 128)


async def test_damage_in_a_chunk_is_noticed_and_nothing_is_swapped(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await create(agent)
    await fill(agent, 3)
    await damage_first_chunk(agent, memory_store, 0)
    with pytest.raises(Unreadable, match="CRC"):
        await merge_rows(agent, memory_store, 3)
    assert partition_of(agent).merged is None
    assert await keys(memory_store, SEGMENTS) == []


async def damage_first_chunk(agent: Agent, store: MemoryStore, index: int) -> None:
    """One bit of the partition's oldest batch is not what it was."""
    (ref,) = partition_of(agent, index=index).slices.oldest(1, 1)
    key = object_key(ref.chunk)
    data = bytearray(await store.get(key))
    data[ref.position + 70] ^= 1
    await store.put(key, [data])


async def test_damage_in_one_partition_does_not_keep_the_others_from_being_merged(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await create(agent, partitions=3)
    for index in range(3):
        await fill(agent, 8, index)
    await damage_first_chunk(agent, memory_store, 1)
    job = job_of(agent, memory_store)
    await job._look()
    assert not any(partition_of(agent, index=index).merged for index in range(3)), "one group, one failure"
    assert await keys(memory_store, SEGMENTS) + await keys(memory_store, MANIFESTS) == []
    await job._look()
    assert [partition_of(agent, index=index).merged is not None for index in range(3)] == [True, False, True]
    await job._look()
    assert job.due(0, asyncio.get_running_loop().time()) == [], "left alone for a while"
    forget_memory(agent)
    assert (await fetch(agent, 0, index=1)).error_code == Code.CORRUPT_MESSAGE
    assert values(await fetch(agent, 0, index=2)) == expected(0, 16)


async def test_a_range_in_which_nothing_succeeds_is_left_to_another_agent(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await create(agent)
    await fill(agent, 8)
    store = FaultyStore(memory_store, 1, FaultRates(refused=1.0))
    job = job_of(agent, store)
    await job._look()
    assert "merging/0" not in agent.services.replica.state.claims
    store.rates = FaultRates()
    await job._look()
    assert partition_of(agent).merged is None, "not at once again"
    assert "merging/0" not in agent.services.replica.state.claims


async def test_what_a_failed_merge_has_written_is_deleted(agent: Agent, memory_store: MemoryStore) -> None:
    await create(agent, partitions=2)
    for index in range(2):
        await fill(agent, 3, index)

    class Full(MemoryStore):
        """Has no room for manifests."""

        get_range = memory_store.get_range
        delete = memory_store.delete

        async def put(self, key: str, parts: Any, condition: Any = None) -> Any:
            if key.startswith(MANIFESTS):
                raise Retryable("full")
            return await memory_store.put(key, parts, condition)

    with pytest.raises(Retryable):
        await merge_rows(agent, Full(), 3)
    assert await keys(memory_store, SEGMENTS) == []


async def test_a_merge_holds_no_more_than_a_segment_at_once(agent: Agent, memory_store: MemoryStore) -> None:
    """Segments that are taken along count: partitions of the same load complete a level together."""
    await create(agent, partitions=4)
    parts = parts_of(agent, memory_store)
    for number in range(2):
        for index in range(4):
            await fill(agent, 8, index, first=8 * number)
            await merge_rows(agent, memory_store, 8, index=index, parts=parts)
    for index in range(4):
        await fill(agent, 60, index, first=16)
    found = [Due(partition_of(agent, index=index).handle, 60, 1) for index in range(4)]
    works = await plan(parts, found, agent.services.replica.incarnation)
    one = works[0].bytes
    for limit, counts in ((1, [1, 1, 1, 1]), (2 * one, [2, 2]), (3 * one, [3, 1]), (9 * one, [4])):
        assert [len(portion) for portion in portions(works, limit)] == counts


async def test_swaps_of_many_rows_go_into_several_entries(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.background.rewriting.merging.merge.SWAP_ROWS_MAX", 7)
    await create(agent, partitions=4)
    for index in range(4):
        await fill(agent, 3, index)
    found = [Due(partition_of(agent, index=index).handle, 3, 1) for index in range(4)]
    parts, incarnation = parts_of(agent, memory_store), agent.services.replica.incarnation
    before = agent.services.replica.state.revision
    done = await merge(parts, await plan(parts, found, incarnation), incarnation)
    assert done.swapped == [each.handle for each in found]
    assert agent.services.replica.state.revision == before + 2


async def test_the_last_row_of_a_quiet_partition_is_merged_for_its_age(
    agent: Agent, memory_store: MemoryStore
) -> None:
    """It may be the only one that keeps a large chunk in the bucket."""
    await create(agent)
    await fill(agent, 1)
    await job_of(agent, memory_store, replace(EAGER, age_s=0.0))._look()
    assert len(partition_of(agent).slices) == 0
    assert list(agent.services.replica.state.chunks.by_serial) == []
    assert values(await fetch(agent, 0)) == expected(0, 2)


async def test_a_helper_process_makes_the_same_segments(agent: Agent, memory_store: MemoryStore) -> None:
    await create(agent)
    await fill(agent, 8)
    helper = Worker()
    try:
        done = await merge_rows(
            agent, memory_store, 8, parts=replace(parts_of(agent, memory_store), worker=helper)
        )
    finally:
        await helper.close()
    assert done.swapped == [0]
    assert values(await fetch(agent, 0)) == expected(0, 16)


async def test_batches_are_copied_as_they_are(agent: Agent, memory_store: MemoryStore) -> None:
    """Nothing is decompressed or written anew: the same bytes but for offset and epoch."""
    await create(agent)
    raws = [batch(b"v" * 50, timestamp=NOW + n) for n in range(3)]
    for raw in raws:
        await produce(agent, raw)
    await merge_rows(agent, memory_store, 3)
    found = (await fetch(agent, 0)).records
    pieces = [bytes(found[position : position + size]) for position, size in split(found)]
    assert [piece[16:] for piece in pieces] == [raw[16:] for raw in raws]
    assert [peek(piece).base_offset for piece in pieces] == [0, 1, 2]


async def test_partitions_that_are_gone_cost_a_look_nothing(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handles are never given again: a look goes over what there is, not over what there ever was."""
    replica = agent.services.replica
    for number in range(2):
        gone = CreateTopic(name=f"gone-{number}", topic_id=b"%016d" % number, partitions=3 * RANGE)
        assert isinstance(await replica.propose(gone), Done)
    await create(agent)
    await fill(agent, 8)
    job = job_of(agent, memory_store)
    await job._look()
    job._put_off[0] = job._resting[0] = 1e12
    for number in range(2):
        assert isinstance(await replica.propose(DeleteTopic(name=f"gone-{number}")), Done)
    looked_at: list[int] = []
    look_at = job._look_at

    async def noted(number: int) -> None:
        looked_at.append(number)
        await look_at(number)

    monkeypatch.setattr(job, "_look_at", noted)
    await job._look()
    assert looked_at == [*range(7)], "once more, to forget them"
    assert (job._put_off, job._resting) == ({}, {})
    looked_at.clear()
    await job._look()
    assert looked_at == [partition_of(agent).handle // RANGE]
