"""One swap lets go of a bounded number of segments: who has more to let go of does it in several."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent.background.rewriting.compaction import partition as compacting
from agent.background.rewriting.merging import planner
from agent.background.rewriting.merging.planner import Step, Take, absorbed_from
from coordination.commands import Command, MoveLogStart, SwapSegments
from coordination.kafka_codes import Code
from coordination.state import segments
from coordination.state.segments import RELEASED_MAX
from coordination.state.types import Done, Partition, Refused
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import NewRecord, build
from objectstore.manifest import Manifest
from objectstore.naming import SEGMENTS, ChunkId, SegmentId, segment_key
from objectstore.segment import HEADER_BYTES, SegmentInfo
from tests.unit.agent.background import compaction_rig as compactions
from tests.unit.agent.background.compaction_rig import NOW, At, compact, compaction, read
from tests.unit.agent.background.merging_rig import job_of, merge_rows, partition_of
from tests.unit.agent.background.test_merging import expected, fill, keys
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka import admin_calls
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, fetch, values
from tests.unit.agent.kafka.test_handlers_retention import send
from tests.unit.agent.rig import Agent

FEW = 5


def manifest_of(count: int) -> Manifest:
    """So many segments of one record and 100 bytes, one behind the other."""
    added = [
        SegmentInfo(SegmentId(1, 0, n), n, n + 1, HEADER_BYTES + 150, HEADER_BYTES + 100, 1, 0, 0)
        for n in range(count)
    ]
    return Manifest.empty(0, 0).appended(added, count)


def written(base: int) -> SegmentInfo:
    return SegmentInfo(SegmentId(2, 0, base), base, base + 1, HEADER_BYTES + 150, HEADER_BYTES + 100, 1, 0, 0)


@pytest.mark.parametrize("taken_along", [0, 7])
def test_a_merge_lets_go_of_as_many_segments_as_a_swap_may(taken_along: int) -> None:
    """All of them at once were refused, for ever: the tail grew without end."""
    count = 2 * RELEASED_MAX + 100
    manifest, named = manifest_of(count), frozenset[SegmentId]()
    for look in range(3):
        end = manifest.end_offset
        step = Step(manifest, len(manifest) - taken_along, Take([], end + 1, ChunkId(1, 1), 100))
        new = written(end - taken_along)
        after, released = step.after(new._replace(end_offset=end + 1), end - taken_along)
        assert len(released) == min(RELEASED_MAX, len(manifest))
        names = after.segments(0, len(after))
        assert sorted([*released, *names[:-1]]) == sorted(manifest.segments(0, len(manifest)))
        assert names[-1] == new.segment
        assert after.start_offset <= end - taken_along
        assert named.isdisjoint(released), look
        manifest, named = after, named | frozenset(released)
    assert len(manifest) == 1


def test_a_merge_takes_no_more_segments_along_than_a_swap_may_let_go_of() -> None:
    manifest = manifest_of(3 * RELEASED_MAX)
    first = absorbed_from(manifest, 100, 1 << 30, -1, 0)
    assert len(manifest) - first == RELEASED_MAX


def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a swap might let go of FEW."""
    for module in (segments, planner, compacting):
        monkeypatch.setattr(module, "RELEASED_MAX", FEW)


async def delete_below(agent: Agent, offset: int, name: str = "t") -> None:
    handle = partition_of(agent, name).handle
    moved = await agent.services.replica.propose(MoveLogStart(partition=[handle], offset=[offset]))
    assert isinstance(moved, Done)


async def test_many_segments_below_the_log_start_go_merge_by_merge(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    few(monkeypatch)
    await create(agent)
    for n in range(13):
        await fill(agent, 1, first=n)
        assert (await merge_rows(agent, memory_store, 1)).swapped
    assert len(await keys(memory_store, SEGMENTS)) == 13
    await delete_below(agent, 25)
    for n, left in ((13, 9), (14, 5), (15, 4)):
        await fill(agent, 1, first=n)
        done = await merge_rows(agent, memory_store, 1)
        assert (done.swapped, done.refused, done.failed) == ([0], [], {})
        merged = partition_of(agent).merged
        assert merged is not None
        assert merged.segments == left
        assert values(await fetch(agent, 25)) == expected(24, 2 * n + 2), "the batch that has it, whole"
    garbage = {segment_key(name) for name in agent.services.replica.state.segment_garbage}
    assert len(garbage) == 12
    assert len(await keys(memory_store, SEGMENTS)) == 16


async def test_a_merge_that_the_log_will_not_take_is_told(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for success, and done again at every look."""
    await create(agent)
    await fill(agent, 8)
    monkeypatch.setattr(segments, "RELEASED_MAX", -1)
    job = job_of(agent, memory_store)
    await job._look()
    (failure,) = job.failures.values()
    assert list(job.failures) == ["partition 0"]
    assert failure.error == "SwapRefused: INVALID_REQUEST: 0 segments released: at most -1"
    assert [each.name for each in job.failing_items(0)] == ["merging: partition 0"]
    assert partition_of(agent).merged is None
    assert await keys(memory_store, SEGMENTS) == [], "what was written for it is deleted"
    await job._look()
    assert failure.count == 1, "it is put off"
    job._put_off.clear()
    job._resting.clear()
    await job._look()
    assert failure.count == 2
    monkeypatch.setattr(segments, "RELEASED_MAX", RELEASED_MAX)
    job._put_off.clear()
    job._resting.clear()
    await job._look()
    assert partition_of(agent).merged is not None
    assert job.failures == {}


async def test_one_merge_that_is_refused_does_not_count_against_the_others(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(agent, partitions=2)
    for index in (0, 1):
        await fill(agent, 8, index=index)
    malformed = segments._malformed

    def of_the_first(partition: Partition, message: SwapSegments) -> Refused | None:
        return malformed(partition, message) if partition.index else Refused(Code.INVALID_REQUEST, "no")

    monkeypatch.setattr(segments, "_malformed", of_the_first)
    job = job_of(agent, memory_store)
    await job._look()
    assert list(job.failures) == ["partition 0"]
    assert partition_of(agent, index=1).merged is not None
    assert job._resting == {}, "the range is not left to another agent"
    await job._look()
    assert job.failures["partition 0"].count == 1, "it is put off"


async def test_a_merge_that_another_came_before_is_nobodys_failure(
    start: StartAgent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await start("a")
    await create(agent)
    await fill(agent, 8)
    job, submit = job_of(agent, memory_store), agent.services.replica.submit

    async def late(commands: Sequence[Command], **more: int) -> object:
        if not commands[0].HasField("swap_segments"):
            return await submit(commands, **more)
        monkeypatch.setattr(agent.services.replica, "submit", submit)
        assert (await merge_rows(agent, memory_store, 2)).swapped
        return await submit(commands, **more)

    monkeypatch.setattr(agent.services.replica, "submit", late)
    await job._look()
    assert job.failures == {}
    assert job._metrics.merge_refused._value.get() == 1
    assert len(partition_of(agent).slices) == 6


async def small_segments(agent: Agent, store: MemoryStore, count: int, names: int = 3) -> None:
    """A compacted topic of so many keys whose records lie in `count` segments."""
    await admin_calls.create(agent, admin_calls.topic("c", cleanup_policy="compact"))
    for n in range(count):
        record = NewRecord(NOW - 1_000 + n, b"k%d" % (n % names), b"%d" % n)
        assert (await send(agent, "c", build([record]))).error_code == 0
        assert (await merge_rows(agent, store, 1, name="c")).swapped


def merged_segments(agent: Agent) -> int:
    merged = compactions.partition_of(agent, "c").merged
    assert merged is not None
    return merged.segments


async def test_a_compaction_ends_before_it_lets_go_of_more_than_a_swap_may(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did all of its work, was refused and began anew."""
    few(monkeypatch)
    await small_segments(agent, memory_store, 12)
    record = NewRecord(NOW, b"k0", b"of the tail")
    assert (await send(agent, "c", build([record]))).error_code == 0
    seen = []
    while (done := await compact(agent, memory_store, "c")) is not None:
        assert done.swapped
        seen.append((done.cleaned_to, merged_segments(agent)))
        found = {row.key: row.value for row in await read(agent, "c")}
        assert found == {b"k0": b"of the tail", b"k1": b"10", b"k2": b"11"}
    assert seen == [(5, 7), (10, 2), (13, 2)]
    assert [row.offset for row in await read(agent, "c")] == [10, 11, 12]


async def test_a_border_that_is_behind_the_end_of_a_compaction_stays_and_is_reached(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small segments that are clean are joined before the dirty ones: each compaction gets further."""
    few(monkeypatch)
    await small_segments(agent, memory_store, 12, names=12)
    assert (await compact(agent, memory_store, "c", segment_bytes=100)) is not None
    assert merged_segments(agent) == 12, "of a compaction with smaller segments"
    record = NewRecord(NOW, b"k0", b"new")
    assert (await send(agent, "c", build([record]))).error_code == 0
    assert (await merge_rows(agent, memory_store, 1, name="c")).swapped
    seen = []
    while (done := await compact(agent, memory_store, "c")) is not None:
        assert done.swapped
        partition = compactions.partition_of(agent, "c")
        assert partition.merged is not None
        seen.append((done.cleaned_to, partition.merged.first_dirty_offset, partition.merged.segments))
        assert len(seen) < 10, "it gets no further"
    assert seen == [(5, 12, 9), (9, 12, 5), (13, 13, 1)]
    assert [row.offset for row in await read(agent, "c")] == list(range(1, 13))


async def test_a_compaction_that_the_log_will_not_take_is_told(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await small_segments(agent, memory_store, 4)
    before = await keys(memory_store, "")
    monkeypatch.setattr(segments, "RELEASED_MAX", 1)
    job = compaction(agent, memory_store, At(NOW))
    handle = compactions.partition_of(agent, "c").handle
    assert await job.compact(handle) is None
    (failure,) = job.failures.values()
    assert failure.error == "SwapRefused: INVALID_REQUEST: 4 segments released: at most 1"
    assert await keys(memory_store, "") == before, "what was written for it is deleted"
    monkeypatch.setattr(segments, "RELEASED_MAX", RELEASED_MAX)
    assert await job.compact(handle) is not None
    assert job.failures == {}
