"""Damaged records stop the rows of their own partition, until they are back or passed over."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.background.rewriting.decisions import Decisions
from agent.background.rewriting.merging.merge import Parts, merge, plan
from agent.background.rewriting.merging.planner import Due
from agent.background.rewriting.merging.worker import Session, Worker
from coordination.clock import SystemClock
from coordination.commands import SkipDamaged
from coordination.state.types import Done
from iceberg import ledger
from iceberg.committer import CommitError, Committer
from iceberg.ledger import Range
from iceberg.obstacles import REASONS_MAX, Obstacles, Replan
from iceberg.plan import FilePlan
from objectstore.batch import NewRecord, build
from objectstore.cache import SliceCache
from objectstore.grace import Grace
from objectstore.merged import MergedRanges, SlicePlan
from objectstore.naming import ChunkId, chunk_key, manifest_key, segment_key
from tests.unit.agent.background.merging_rig import EAGER, Inline
from tests.unit.agent.kafka.damage_rig import BAD
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import KillAt, Rig, value_of

MANY = 8  # damaged partitions


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent, with nothing of the records in memory."""
    async with rigs.running(tmp_path) as found:
        found.reader._tail = found.reader._cold = SliceCache(0)
        yield found


async def filled(rig: Rig, partitions: int = 2) -> None:
    """Three chunks of two records in each partition."""
    await rig.create_topic(partitions=partitions)
    for number in range(3):
        for index in range(partitions):
            await rig.produce([b"%d-%d" % (index, 2 * number), b"%d-%d" % (index, 2 * number + 1)], index)


def chunk_at(rig: Rig, index: int, offset: int) -> ChunkId:
    chunk = rig.replica.state.topics["t"].partitions[index].slices.plan(offset, 1)[0].chunk
    assert isinstance(chunk, ChunkId)
    return chunk


async def spoil(rig: Rig, chunk: ChunkId, how: str) -> bytes:
    """What the object was before it was damaged or deleted."""
    return await spoil_key(rig, chunk_key(chunk), how, 100)


async def spoil_key(rig: Rig, key: str, how: str, at: int) -> bytes:
    """The same by its key: deleted, one bit of the byte `at` flipped, cut off there, or emptied."""
    content = await rig.store.get(key)
    if how == "gone":
        await rig.store.delete([key])
    else:
        data = bytearray(content)
        if how == "flipped":
            data[at] ^= 1
        else:
            del data[at if how == "cut" else 0 :]
        await rig.store.put(key, [data])
    return content


async def skip(rig: Rig, start: int, end: int, index: int = 0) -> None:
    handle = rig.replica.state.topics["t"].partitions[index].handle
    done = await rig.replica.propose(SkipDamaged(partition=handle, start=[start], end=[end], by="me"))
    assert isinstance(done, Done)


async def merged(rig: Rig, times: int = 2, index: int = 0) -> None:
    """The oldest rows of a partition, merged into segments of their own."""
    handle = rig.replica.state.topics["t"].partitions[index].handle
    worker = Worker(Inline(Session()))
    ranges = MergedRanges(rig.store)
    clock = SystemClock()
    decisions = Decisions(Grace(0, clock.now_ms, clock.monotonic))
    parts = Parts(rig.replica, rig.store, ranges, worker, clock, bytes(16), EAGER, decisions)
    for _ in range(times):
        works = await plan(parts, [Due(handle, 1, 1)], rig.replica.incarnation)
        outcome = await merge(parts, works, rig.replica.incarnation)
        assert outcome.swapped == [handle]


async def values(rig: Rig) -> list[bytes | None]:
    rows = await rig.rows()
    return sorted((value_of(row) for row in rows), key=str)


async def next_offsets(rig: Rig) -> list[int]:
    head = await rig.head()
    return ledger.next_offsets(head.metadata, rig.replica.state.topics["t"].topic_id)


async def commit_all(rig: Rig, committer: Committer) -> str:
    """What it ends with: an error's text, or nothing."""
    try:
        await rig.drain(committer)
    except CommitError as error:
        return str(error)
    return ""


def expected(*left_out: tuple[int, int]) -> list[bytes]:
    return [b"%d-%d" % (p, o) for p in (0, 1) for o in range(6) if (p, o) not in left_out]


@pytest.mark.parametrize("how", BAD)
async def test_a_partition_stops_at_its_damage_and_others_go_on(rig: Rig, how: str) -> None:
    await filled(rig)
    chunk = chunk_at(rig, 0, 2)
    before = await spoil(rig, chunk, how)
    committer = rig.committer()
    error = await commit_all(rig, committer)
    assert "partition 0 from offset 2 on" in error
    assert chunk_key(chunk) in error
    assert await values(rig) == expected((0, 2), (0, 3), (0, 4), (0, 5))
    await rig.produce([b"1-6"], 1)
    assert "partition 0 from offset 2 on" in await commit_all(rig, committer)
    assert await next_offsets(rig) == [2, 7], "also what comes later"
    await rig.store.put(chunk_key(chunk), [before])
    assert await commit_all(rig, committer) == "", "and all of it once the object is there again"
    assert await values(rig) == sorted([*expected(), b"1-6"])


@pytest.mark.parametrize("how", BAD)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_skipped_damage_gives_no_rows_and_stops_nothing(rig: Rig, how: str, when: str) -> None:
    await filled(rig)
    await spoil(rig, chunk_at(rig, 0, 2), how)
    committer = rig.committer()
    if when == "after":
        assert await commit_all(rig, committer)
    await skip(rig, 0, 6)
    assert await commit_all(rig, committer) == ""
    assert await values(rig) == expected((0, 2), (0, 3))
    assert await next_offsets(rig) == [6, 6]


async def test_sound_batches_beside_skipped_damage_give_rows(rig: Rig) -> None:
    """Three batches in one slice of a chunk, of which the second is damaged."""
    await rig.create_topic(partitions=1)
    stamp = 1_700_000_000_000
    sent = [build([NewRecord(stamp, b"k", b"%d-%d" % (n, m), ()) for m in range(2)]) for n in range(3)]
    await rig.store_batch(b"".join(sent))
    key = chunk_key(chunk_at(rig, 0, 0))
    await spoil_key(rig, key, "flipped", (await rig.store.get(key)).index(b"1-0"))
    await skip(rig, 2, 4)
    assert await commit_all(rig, rig.committer()) == ""
    assert await values(rig) == [b"0-0", b"0-1", b"2-0", b"2-1"]
    assert await next_offsets(rig) == [6]


async def test_a_commit_before_damage_says_that_something_is_left(rig: Rig) -> None:
    """Whoever commits goes on at once then, and hears of the damage; else the topic would seem to be done."""
    await filled(rig)
    await spoil(rig, chunk_at(rig, 0, 4), "gone")
    committer = rig.committer()
    done = await committer.run_once()
    assert done is not None
    assert (done.rows, done.more) == (10, True)
    with pytest.raises(CommitError, match="partition 0 from offset 4 on"):
        await committer.run_once()
    await skip(rig, 4, 6)
    done = await committer.run_once()
    assert done is not None
    assert (done.rows, done.more) == (0, False)


async def test_only_what_was_asked_for_is_passed_over(rig: Rig) -> None:
    await filled(rig)
    for offset in (0, 4):
        await spoil(rig, chunk_at(rig, 0, offset), "gone")
    await skip(rig, 0, 4)
    assert "partition 0 from offset 4 on" in await commit_all(rig, rig.committer())
    assert await next_offsets(rig) == [4, 6]
    assert await values(rig) == expected((0, 0), (0, 1), (0, 4), (0, 5))


async def test_damage_at_the_very_end_is_gone_behind(rig: Rig) -> None:
    """A table that never reached the end would be behind for ever."""
    await filled(rig, partitions=1)
    for offset in (0, 2, 4):
        await spoil(rig, chunk_at(rig, 0, offset), "gone")
    await skip(rig, 0, 6)
    assert await commit_all(rig, rig.committer()) == ""
    assert await next_offsets(rig) == [6]
    assert await rig.rows() == []


async def test_a_store_out_of_reach_passes_over_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(rig)
    await skip(rig, 0, 6)

    async def away(key: str, start: int, length: int) -> bytes:
        raise TimeoutError

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "get_range", away)
        with pytest.raises(TimeoutError):
            await rig.drain(rig.committer())
    assert await commit_all(rig, rig.committer()) == ""
    assert await values(rig) == expected()


@pytest.mark.parametrize("how", BAD)
@pytest.mark.parametrize("what", ["manifest", "index", "block"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_damage_of_merged_records(rig: Rig, how: str, what: str, when: str) -> None:
    """A manifest takes all that is merged along, a segment or its index what is in it."""
    await filled(rig)
    await merged(rig)
    pointer = rig.replica.state.topics["t"].partitions[0].merged
    assert pointer is not None
    manifest = await MergedRanges(rig.store).manifest(pointer.manifest)
    lost = 0 if what == "manifest" else 2
    key = manifest_key(pointer.manifest) if what == "manifest" else segment_key(manifest[1].segment)
    await spoil_key(rig, key, how, 100 if what == "block" else -1)
    committer = rig.committer()
    if when == "after":
        assert f"partition 0 from offset {lost} on" in await commit_all(rig, committer)
        assert await next_offsets(rig) == [lost, 6]
    await skip(rig, lost, 4)
    assert await commit_all(rig, committer) == ""
    assert await values(rig) == expected(*((0, offset) for offset in range(lost, 4)))
    assert await next_offsets(rig) == [6, 6]


@pytest.mark.parametrize("how", BAD)
@pytest.mark.parametrize("hurt", [0, 2, 4])
async def test_a_hole_that_merging_left_is_gone_behind(rig: Rig, how: str, hurt: int) -> None:
    """Where a chunk was, the segment has no records any more; the table reads it as it read the chunk."""
    await filled(rig)
    await spoil(rig, chunk_at(rig, 0, hurt), how)
    await skip(rig, hurt, hurt + 2)
    await merged(rig, 3)
    assert len(rig.replica.state.topics["t"].partitions[0].slices) == 0
    assert await commit_all(rig, rig.committer()) == ""
    assert await values(rig) == expected((0, hurt), (0, hurt + 1))
    assert await next_offsets(rig) == [6, 6]


@pytest.mark.parametrize("how", BAD)
async def test_many_damaged_partitions_are_found_in_one_go(rig: Rig, how: str) -> None:
    """Not one for each plan: what lies before the damage is written once."""
    await filled(rig, MANY)
    for index in range(MANY):
        await spoil(rig, chunk_at(rig, index, 2), how)
    steps = KillAt()
    committer = rig.committer(steps=steps)
    error = await commit_all(rig, committer)
    assert f"and {MANY - REASONS_MAX} more" in error
    assert await next_offsets(rig) == [2] * MANY
    assert steps.seen.count("store-file") == MANY, "each file once"
    looks = 3 if how == "gone" else 2  # what is gone may have moved: it is planned once more
    assert steps.seen.count("read-records") == looks * MANY


async def test_many_damaged_manifests_are_found_in_one_go(rig: Rig) -> None:
    await filled(rig, MANY)
    for index in range(MANY):
        await merged(rig, 1, index)
        pointer = rig.replica.state.topics["t"].partitions[index].merged
        assert pointer is not None
        await spoil_key(rig, manifest_key(pointer.manifest), "flipped", -1)
    parts = rig.parts
    looked: list[int] = []

    class Counting(MergedRanges):
        async def slices(self, partition: Any, start: int, bytes_max: int) -> SlicePlan:
            looked.append(partition.index)
            return await super().slices(partition, start, bytes_max)

    committer = Committer(replace(parts, merged=Counting(rig.store)), "t")
    assert f"and {MANY - REASONS_MAX} more" in await commit_all(rig, committer)
    assert looked == list(range(MANY)), "each once, not once for each that is damaged"


async def test_of_a_partition_s_damage_the_first_stops_it(rig: Rig) -> None:
    """A large transaction's plan has several files of a partition, and all of them are looked at."""
    await filled(rig, 1)
    for offset in (0, 4):
        await spoil(rig, chunk_at(rig, 0, offset), "flipped")
    obstacles = Obstacles(rig.reader, MergedRanges(rig.store))
    (partition,) = rig.replica.state.topics["t"].partitions
    for start in (0, 4):
        file = FilePlan(Range(0, start, start + 2), tuple(partition.slices.plan(start, 1)))
        with pytest.raises(Replan):
            await obstacles.records(partition, file)
    assert obstacles.limits([partition]) == {0: 0}


async def test_what_is_gone_is_in_nobodys_way_until_a_newer_state_names_it_still(rig: Rig) -> None:
    """Between the plan and the read it may have been merged: that is noticed by planning again."""
    await filled(rig, partitions=1)
    partition = rig.replica.state.topics["t"].partitions[0]
    file = FilePlan(ledger.Range(0, 2, 4), tuple(partition.slices.plan(2, 1)[:1]))
    await spoil(rig, chunk_at(rig, 0, 2), "gone")
    obstacles = Obstacles(rig.reader, MergedRanges(rig.store))
    for stops in ({}, {0: 2}):
        with pytest.raises(Replan):
            await obstacles.records(partition, file)
        assert obstacles.limits([partition]) == stops
    await obstacles.begin([partition])
    assert obstacles.limits([partition]) == {0: 2}, "nobody was told of it so far"
