"""Rule 16: a segment or a row that cannot be read stays where it is; merging of its partition goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from agent.background.rewriting.decisions import NOWHERE
from agent.background.rewriting.merging import spared
from agent.background.rewriting.merging.job import Merging
from agent.background.rewriting.merging.spared import Spared, Unreadable
from agent.background.rewriting.patience import PUT_OFF_S, PUT_OFF_S_MAX, is_told, patience_s
from agent.net.wire.generated import produce as p
from coordination.commands import MoveLogStart
from coordination.jobs import STORE_FAILURES_MAX
from coordination.kafka_codes import Code
from coordination.state.types import Done
from objectstore.adapters.memory import MemoryStore
from objectstore.merged import MergedRanges
from objectstore.naming import ChunkId, SegmentId, SliceRef, chunk_key, manifest_key, segment_key
from objectstore.store import Denied, ObjectMeta
from tests.unit.agent.background.compaction_rig import NOW, compaction
from tests.unit.agent.background.compaction_rig import At as ClockAt
from tests.unit.agent.background.merging_rig import EAGER, job_of, parts_of
from tests.unit.agent.background.test_compaction import put
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.admin_calls import create as create_topic
from tests.unit.agent.kafka.admin_calls import topic
from tests.unit.agent.kafka.damage_rig import (
    BAD,
    chunk_at,
    fetch,
    filled,
    merged,
    partition,
    skip,
    spoil,
    values,
)
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, produce
from tests.unit.agent.rig import Agent, batch

AT_ONCE = replace(EAGER, segment_bytes=280, age_s=0.0)  # whatever there is, with the segments


def job(agent: Agent, store: MemoryStore, segment_bytes: int = AT_ONCE.segment_bytes) -> Merging:
    """A job that knows nothing yet, and an agent that remembers no manifest or index."""
    agent.services.merged = agent.services.fetch._merged = MergedRanges(store)
    return job_of(agent, store, replace(AT_ONCE, segment_bytes=segment_bytes))


async def segments(agent: Agent, store: MemoryStore) -> list[tuple[int, int, str]]:
    pointer = partition(agent, 0).merged
    assert pointer is not None
    manifest = await MergedRanges(store).manifest(pointer.manifest)
    found = (manifest[number] for number in range(len(manifest)))
    return [(each.base_offset, each.end_offset, segment_key(each.segment)) for each in found]


def warnings(lines: list[dict[str, object]]) -> list[dict[str, object]]:
    return [each for each in lines if each["log_level"] == "warning"]


@pytest.mark.parametrize("what", ["index", "block"])
@pytest.mark.parametrize("how", BAD)
@pytest.mark.parametrize("hurt", [0, 1])
async def test_a_segment_that_cannot_be_read_is_not_taken_along(
    agent: Agent, memory_store: MemoryStore, how: str, hurt: int, what: str
) -> None:
    """It stays as it is, those behind it and the tail become one, and nothing fails any more."""
    await merged(agent, memory_store)
    before = await segments(agent, memory_store)
    key = before[hurt][2]
    merging = job(agent, memory_store)
    if what == "block":  # its index is known: the records are met by the read
        pointer = partition(agent, 0).merged
        assert pointer is not None
        manifest = await agent.services.merged.manifest(pointer.manifest)
        await agent.services.merged.index(manifest[hurt])
    await spoil(memory_store, key, how, at=-1 if what == "index" else 100)
    handle = partition(agent, 0).handle
    with capture_logs() as lines:
        await merging._look()
        assert list(merging.failures) == [f"partition {handle}"]
        for _ in range(3):
            await merging._look()
    after = await segments(agent, memory_store)
    assert after[: hurt + 1] == before[: hurt + 1]
    assert [(start, end) for start, end, _ in after[hurt + 1 :]] == [(hurt + 1, 3)]
    assert (len(partition(agent, 0).slices), len(partition(agent, 1).slices)) == (0, 0)
    assert merging.failures == {}
    assert merging._metrics.merges_failed._value.get() == 1
    told = [each for each in lines if each["event"] == "records cannot be read, and stay as they are"]
    assert [(each["topic"], each["partition"], each["from_offset"]) for each in told] == [("t", 0, hurt)]
    assert key in str(told[0]["reason"])
    agent.services.merged = agent.services.fetch._merged = MergedRanges(memory_store)
    assert (await fetch(agent, hurt))[0].error_code == Code.CORRUPT_MESSAGE
    assert values((await fetch(agent, hurt + 1))[0])[0] == b"0-%d" % (hurt + 1)
    await produce(agent, batch(b"0-3"), index=0)
    await merging._look()
    later = await segments(agent, memory_store)
    assert (later[: hurt + 1], later[-1][1]) == (before[: hurt + 1], 4)


async def test_a_segment_that_comes_back_is_taken_along(agent: Agent, memory_store: MemoryStore) -> None:
    await merged(agent, memory_store)
    key = (await segments(agent, memory_store))[0][2]
    content = await memory_store.get(key)
    await memory_store.delete([key])
    merging = job(agent, memory_store, 300)
    for _ in range(2):
        await merging._look()
    await memory_store.put(key, [content])
    await produce(agent, batch(b"0-3"), index=0)
    for each in merging._spared._pieces.values():
        each.until_s = 0.0
    await merging._look()
    assert [(start, end) for start, end, _ in await segments(agent, memory_store)] == [(0, 4)]
    assert merging._spared._pieces == {}


@pytest.mark.parametrize("how", BAD)
async def test_rows_before_one_that_cannot_be_read_are_merged_and_the_rest_waits(
    agent: Agent, memory_store: MemoryStore, how: str
) -> None:
    await filled(agent)
    key = chunk_key(chunk_at(agent, 0, 1))
    content = await memory_store.get(key)
    await spoil(memory_store, key, how, at=-70)
    merging, handle = job(agent, memory_store), partition(agent, 0).handle
    for _ in range(4):
        await merging._look()
    assert [(start, end) for start, end, _ in await segments(agent, memory_store)] == [(0, 1)]
    assert partition(agent, 0).slices.first_offset == 1
    assert len(partition(agent, 1).slices) == 0
    assert merging._metrics.merges_failed._value.get() == 1, "and it is not tried again at each look"
    assert list(merging.failures) == [f"partition {handle}"], "seen in the status for as long as it waits"
    assert merging.due(0, asyncio.get_running_loop().time()) == []
    await memory_store.put(key, [content])
    merging._spared._pieces[handle, 1].until_s = 0.0
    await merging._look()
    assert [(start, end) for start, end, _ in await segments(agent, memory_store)] == [(0, 3)]
    assert merging.failures == {}


@pytest.mark.parametrize("begin", [2, 3])
async def test_damage_that_is_deleted_holds_up_nothing(
    agent: Agent, memory_store: MemoryStore, begin: int
) -> None:
    """With a row behind it, or none."""
    await filled(agent)
    await memory_store.delete([chunk_key(chunk_at(agent, 0, 1))])
    merging, handle = job(agent, memory_store), partition(agent, 0).handle
    for _ in range(2):
        await merging._look()
    assert merging.failures
    moved = MoveLogStart(partition=[handle], offset=[begin])
    assert isinstance(await agent.services.replica.propose(moved), Done)
    await merging._look()
    assert merging.failures == {}
    assert len(partition(agent, 0).slices) == 0
    assert values((await fetch(agent, begin))[0]) == [b"0-2"][begin - 2 :]


async def test_damage_that_is_passed_over_is_tried_again_at_once(
    agent: Agent, memory_store: MemoryStore
) -> None:
    """Not only when the patience with what failed before is over."""
    await filled(agent)
    await memory_store.delete([chunk_key(chunk_at(agent, 0, 1))])
    merging = job(agent, memory_store)
    for _ in range(3):
        await merging._look()
    assert partition(agent, 0).slices.first_offset == 1
    await skip(agent, (1, 2))
    await merging._look()
    assert (len(partition(agent, 0).slices), merging.failures) == (0, {})
    assert values((await fetch(agent, 0))[0]) == [b"0-0", b"0-2"]


async def test_the_helper_says_which_pieces_are_not_what_was_committed(
    agent: Agent, memory_store: MemoryStore
) -> None:
    """A span has pieces of several partitions: those of the others are not spared."""
    await filled(agent)
    refs = partition(agent, 0).slices.oldest(3, 1 << 20)
    parts = []
    for ref in refs:
        assert isinstance(ref.chunk, ChunkId)
        parts.append(await memory_store.get_range(chunk_key(ref.chunk), ref.position, ref.length))
    parts[1] = parts[1][:-1] + bytes([parts[1][-1] ^ 1])
    worker = parts_of(agent, memory_store).worker
    with pytest.raises(Unreadable, match="CRC") as caught:
        await worker.add(list(zip((7, 8, 9), refs, strict=True)), [memoryview(part) for part in parts])
    assert caught.value.pieces == [(8, refs[1])]
    assert chunk_key(refs[1].chunk) in str(caught.value)  # type: ignore[arg-type]  # as above


async def test_a_lost_manifest_is_told_less_and_less(
    agent: Agent, memory_store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing can be done without it; each failure is counted, and few are told."""
    await merged(agent, memory_store)
    pointer = partition(agent, 0).merged
    assert pointer is not None
    await spoil(memory_store, manifest_key(pointer.manifest), "flipped", at=-1)
    merging, handle = job(agent, memory_store), partition(agent, 0).handle
    await merging._look()  # among others
    with caplog.at_level("WARNING"):
        for count in range(1, 11):
            merging._put_off.clear()
            merging._resting.clear()
            await merging._look()
            assert merging.failures[f"partition {handle}"].count == count
    told = [line.fields for line in caplog.records if line.message == "an item is passed over"]
    assert [line["times"] for line in told if line["partition"] == 0] == [1, 2, 4, 8]
    assert told[0]["job"] == merging.claim
    assert told[0]["topic"] == "t"
    wait_s = merging._put_off[handle] - asyncio.get_running_loop().time()
    assert wait_s > PUT_OFF_S_MAX - 60


async def test_a_compaction_that_fails_is_told_less_and_less(
    agent: Agent, memory_store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    await create_topic(agent, topic("c", cleanup_policy="compact"))
    await put(agent, "c", (b"a", b"1"))
    await put(agent, "c", (b"a", b"2"))
    one = agent.services.replica.state.topics["c"].partitions[0]
    (ref,) = one.slices.oldest(1, 1)
    assert isinstance(ref.chunk, ChunkId)
    await spoil(memory_store, chunk_key(ref.chunk), "flipped", at=100)
    compacting = compaction(agent, memory_store, ClockAt(NOW))
    with caplog.at_level("WARNING"):
        for _ in range(5):
            assert await compacting.compact(one.handle) is None
    assert compacting.failures[f"partition {one.handle}"].count == 5
    told = [line.fields for line in caplog.records if line.message == "an item is passed over"]
    assert [(line["topic"], line["partition"], line["times"]) for line in told] == [
        ("c", 0, times) for times in (1, 2, 4)
    ]
    assert compacting._put_off[one.handle] - asyncio.get_running_loop().time() > 10 * PUT_OFF_S


def test_patience_grows_to_an_end() -> None:
    assert [patience_s(count) for count in (0, 1, 2, 3, 5, 6, 1_000_000)] == [30, 30, 60, 120, 480, 600, 600]
    assert [count for count in range(1, 40) if is_told(count)] == [1, 2, 4, 8, 16, 32]


def ref_of(start: int, named: ChunkId | SegmentId) -> SliceRef:
    return SliceRef(start, start + 10, named, 0, 100, 0, 0)


def test_what_is_spared_is_spared_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spared, "SPARED_MAX", 4)
    known, chunk, segment = Spared(), ChunkId(1, 1), SegmentId(1, 7, 2)
    assert [known.note(7, ref_of(20, chunk), at) for at in (0.0, 0.0)] == [1, 2]
    assert known.note(7, ref_of(0, segment), 0.0) == 1
    assert known.note(7, ref_of(40, chunk), 0.0) == 1
    assert (known.segments(7, 29.9), known.tail_until(7, 59.9)) == ({segment}, 20)
    assert (known.segments(7, 30.0), known.tail_until(7, 60.0)) == (set(), NOWHERE)
    assert known.tail_until(8, 0.0) == NOWHERE
    assert known.holds_up(7), "also while it is tried again"
    known.read(7, 20, 40)
    assert known.tail_until(7, 0.0) == 40
    assert not known.keep(7, 9, 41), "the segment is still there"
    assert not known.holds_up(7)
    assert known.keep(7, 10, 41)
    assert not known.keep(7, 10, 41), "there was nothing"
    for start in range(0, 60, 10):
        known.note(9, ref_of(start, chunk), 0.0)
    assert known.tail_until(9, 0.0) == 20, "the oldest are forgotten"


async def in_one_chunk(agent: Agent, count: int) -> str:
    """A record in each of the first partitions, side by side in one chunk; its key."""
    data = [p.PartitionProduceData(index, memoryview(batch(b"together"))) for index in range(count)]
    topic = p.TopicProduceData("t", partition_data=data)
    await agent.call("Produce", p.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]), 9)
    (chunk,) = {chunk_at(agent, index, 0) for index in range(count)}
    return chunk_key(chunk)


def refuses(store: MemoryStore, monkeypatch: pytest.MonkeyPatch, *keys: str, all_of_it: bool) -> None:
    """Answer 403 for these objects' bytes, or for their metadata too."""
    read, head = store.get_range, store.head

    async def get_range(key: str, start: int, length: int) -> bytes:
        if key in keys:
            raise Denied(f"{key}: InvalidObjectState")
        return await read(key, start, length)

    async def told(key: str) -> ObjectMeta:
        if all_of_it and key in keys:
            raise Denied(f"{key}: AccessDenied")
        return await head(key)

    monkeypatch.setattr(store, "get_range", get_range)
    monkeypatch.setattr(store, "head", told)


@pytest.mark.parametrize("how", [*BAD, "refused"])
async def test_a_chunk_of_many_partitions_that_cannot_be_read_holds_up_no_other(
    start: StartAgent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Nor the partitions whose part of it lies before the cut."""
    sick, all_of_them = 2 * STORE_FAILURES_MAX, 2 * STORE_FAILURES_MAX + 2
    agent = await start("a", produce={"linger_ms": 200, "quiet_ms": 100})
    await create(agent, partitions=all_of_them)
    key = await in_one_chunk(agent, sick)
    (second,) = partition(agent, 1).slices.oldest(1, 1)
    for index in range(sick, all_of_them):
        await produce(agent, batch(b"elsewhere"), index=index)
    if how == "refused":
        refuses(memory_store, monkeypatch, key, all_of_it=False)
    else:
        await spoil(memory_store, key, how, at=second.position + 70)
    merging = job(agent, memory_store, 1 << 20)
    for _ in range(3):
        await merging._look()
    hurt = {"flipped": [1], "cut": list(range(1, sick))}.get(how, list(range(sick)))
    assert [len(partition(agent, index).slices) for index in range(all_of_them)] == [
        int(index in hurt) for index in range(all_of_them)
    ]
    assert merging.failures.keys() == {f"partition {partition(agent, index).handle}" for index in hurt}


async def test_partitions_that_the_store_failed_for_before_keep_no_others_waiting(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three are a sign that it is away; the same three, the next time, are none."""
    count = STORE_FAILURES_MAX + 2
    await create(agent, partitions=count)
    for index in range(count):
        await produce(agent, batch(b"one"), index=index)
    sick = [chunk_key(chunk_at(agent, index, 0)) for index in range(STORE_FAILURES_MAX)]
    refuses(memory_store, monkeypatch, *sick, all_of_it=True)
    merging = job(agent, memory_store, 1 << 20)
    for _ in range(2):  # all together, then one by one
        await merging._look()
    assert not any(partition(agent, index).merged for index in range(count))
    merging._put_off.clear()
    merging._resting.clear()
    await merging._look()
    merged_now = [partition(agent, index).merged is not None for index in range(count)]
    assert merged_now == [False] * STORE_FAILURES_MAX + [True, True]
