"""What merging replaced or never swapped in is collected; what is used stays."""

from __future__ import annotations

from dataclasses import replace

from agent.background.collection import make_collector, make_merged_collector
from coordination.clock import ManualClock
from coordination.commands import DeleteTopic, FenceIncarnation, PurgeTopics
from objectstore.adapters.memory import MemoryStore
from objectstore.collect import TOLD_MAX, Report
from objectstore.faulty import FaultyStore
from objectstore.merged import MergedRanges
from objectstore.naming import CHUNKS, MANIFESTS, SEGMENTS, ManifestId, manifest_key, segment_key
from objectstore.segment import SegmentWriter
from tests.unit.agent.background.merging_rig import merge_rows, partition_of
from tests.unit.agent.background.test_merging import expected, fill, keys
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, fetch, values
from tests.unit.agent.rig import Agent, batch


async def collect(agent: Agent, store: MemoryStore, grace_s: float = 0) -> list[str]:
    """One run of both collectors; what it deleted."""
    replica, clock = agent.services.replica, agent.services.clock
    report = await make_collector(replica, store, clock, grace_s).run()
    collector = make_merged_collector(replica, store, MergedRanges(store), clock, grace_s)
    await collector.run(report)
    assert report.strangers == []
    return [each.key for each in report.deleted]


async def merged_ten_times(agent: Agent, store: MemoryStore) -> None:
    """A segment after the other, which leaves garbage."""
    await create(agent)
    for number in range(10):
        await fill(agent, 1, first=number)
        await merge_rows(agent, store, 1)


async def test_what_merging_replaced_is_collected_and_what_is_used_stays(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await merged_ten_times(agent, memory_store)
    await collect(agent, memory_store)
    merged = partition_of(agent).merged
    assert merged is not None
    assert await keys(memory_store, "chunks/") == []
    assert await keys(memory_store, MANIFESTS) == [manifest_key(merged.manifest)]
    assert len(await keys(memory_store, SEGMENTS)) == merged.segments
    state = agent.services.replica.state
    assert (state.segment_garbage, state.manifest_garbage) == ({}, {})
    assert await collect(agent, memory_store) == []
    assert values(await fetch(agent, 0)) == expected(0, 20)


async def test_what_was_let_go_of_by_a_clock_that_was_years_ahead_goes_after_the_grace(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await merged_ten_times(agent, memory_store)
    replica, ranges = agent.services.replica, MergedRanges(memory_store)
    state, clock = replica.state, ManualClock(start_ms=agent.services.clock.now_ms())
    assert state.segment_garbage
    assert state.manifest_garbage
    for garbage in (state.segment_garbage, state.manifest_garbage):
        assert len(garbage) > 1
    state.segment_garbage.update(dict.fromkeys(state.segment_garbage, 1 << 44))
    state.manifest_garbage.update(
        {each: (1 << 44, whole) for each, (_, whole) in state.manifest_garbage.items()}
    )
    collector = make_merged_collector(replica, memory_store, ranges, clock, 60)
    for seconds, left in ((0, True), (59, True), (2, False)):
        clock.advance(seconds)
        await collector.run(Report(dry_run=False))
        assert [bool(state.segment_garbage), bool(state.manifest_garbage)] == [left, left]
    assert values(await fetch(agent, 0)) == expected(0, 20)


async def test_a_deleted_topic_gives_its_segments_back_after_the_grace(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await create(agent)
    await fill(agent, 4)
    await merge_rows(agent, memory_store, 4)
    await collect(agent, memory_store)
    replica = agent.services.replica
    await replica.propose(DeleteTopic(name="t"))
    assert await collect(agent, memory_store) == [], "it can come back"
    await replica.propose(PurgeTopics(topic_id=list(replica.state.deleted)))
    assert await collect(agent, memory_store, grace_s=3600) == [], "within the grace"
    await collect(agent, memory_store)
    for prefix in ("chunks/", SEGMENTS, MANIFESTS):
        assert await keys(memory_store, prefix) == []
    assert agent.services.replica.state.manifest_garbage == {}


async def test_what_a_fenced_author_never_swapped_in_is_collected(
    start: StartAgent, memory_store: MemoryStore
) -> None:
    dead, alive = await start("a"), await start("b")
    await create(dead)
    await fill(dead, 8)
    await merge_rows(dead, memory_store, 4)
    await collect(alive, memory_store)
    kept = await keys(memory_store, SEGMENTS) + await keys(memory_store, MANIFESTS)
    writer_id = partition_of(dead).merged.manifest._replace(number=99)  # type: ignore[union-attr]  # merged above
    orphan = f"segments/{writer_id.incarnation:016x}/{0:08x}-{99:016x}.seg"
    writer = SegmentWriter(bytes(16), writer_id)  # type: ignore[arg-type]  # the same shape
    writer.add(memoryview(batch(b"lost")))
    await memory_store.put(orphan, writer.finish().parts)
    await memory_store.put(manifest_key(writer_id), [b"half"])
    assert await collect(alive, memory_store) == [], "its author lives"
    await dead.stop()
    await alive.services.replica.propose(FenceIncarnation(incarnation=writer_id.incarnation))
    assert sorted(await collect(alive, memory_store)) == sorted([orphan, manifest_key(writer_id)])
    assert await keys(memory_store, SEGMENTS) + await keys(memory_store, MANIFESTS) == kept
    assert values(await fetch(alive, 0)) == expected(0, 16)


async def test_what_an_author_that_the_log_never_met_wrote_stays_and_all_uncommitted_with_it(
    agent: Agent, memory_store: MemoryStore
) -> None:
    """Was etcd restored from an older backup? What this log calls uncommitted may have been acknowledged."""
    stranger, fenced = 0xDEAD, 0xBEEF
    agent.services.replica.state.incarnations[fenced] = replace(
        next(iter(agent.services.replica.state.incarnations.values())), incarnation=fenced, fenced_revision=1
    )
    orphans = [manifest_key(ManifestId(author, 0, 5)) for author in (stranger, fenced)]
    for key in orphans:
        await memory_store.put(key, [b"half"])
    replica, clock = agent.services.replica, agent.services.clock
    report = await make_collector(replica, memory_store, clock, 0).run()
    await make_merged_collector(replica, memory_store, MergedRanges(memory_store), clock, 0).run(report)
    assert report.deleted == []
    assert report.unknown_authors == {stranger: 1}
    assert "restored from an older backup" in report.warnings[0]
    assert sorted(await keys(memory_store, MANIFESTS)) == sorted(orphans)
    await memory_store.delete(orphans[:1])
    assert await collect(agent, memory_store) == orphans[1:], "it was only kept for the stranger's sake"


async def test_a_segment_that_the_store_keeps_keeps_no_other_one(
    agent: Agent, memory_store: MemoryStore
) -> None:
    """Its mention stays with it, and where only its manifest names it, that one too."""
    store = FaultyStore(memory_store)
    await merged_ten_times(agent, memory_store)
    state, clock = agent.services.replica.state, agent.services.clock
    kept = next(iter(state.segment_garbage))
    store.held = {segment_key(kept)}
    collector = make_merged_collector(agent.services.replica, store, MergedRanges(store), clock, 0)
    for _ in range(2):
        report = Report(dry_run=False)
        await collector.run(report)
        assert list(state.segment_garbage) == [kept]
        assert state.manifest_garbage == {}
        assert [each.split(":")[0] for each in report.failed] == [segment_key(kept)]
    await agent.services.replica.propose(DeleteTopic(name="t"))
    await agent.services.replica.propose(PurgeTopics(topic_id=list(state.deleted)))
    store.held = set(await keys(memory_store, SEGMENTS)) - {segment_key(kept)}
    left = sorted(store.held)
    await collector.run(Report(dry_run=False))
    assert sorted(await keys(memory_store, SEGMENTS)) == left
    assert len(await keys(memory_store, MANIFESTS)) == len(state.manifest_garbage) == 1
    store.held = set()
    await collector.run(Report(dry_run=False))
    assert await keys(memory_store, SEGMENTS) == await keys(memory_store, MANIFESTS) == []
    assert (state.segment_garbage, state.manifest_garbage) == ({}, {})


async def test_what_the_collectors_remember_is_bounded(agent: Agent, memory_store: MemoryStore) -> None:
    """Strangers are counted beyond the first; a folder that is gone is forgotten."""
    await create(agent)
    replica, clock = agent.services.replica, agent.services.clock
    for number in range(TOLD_MAX + 7):
        await memory_store.put(f"{CHUNKS}somebody/{number:04d}", [b"x"])
        await memory_store.put(f"{SEGMENTS}somebody/{number:04d}", [b"x"])
    folders = [
        f"{kind}{number:016x}" for kind in (SEGMENTS, MANIFESTS) for number in range(1 << 40, (1 << 40) + 3)
    ]
    merged = make_merged_collector(replica, memory_store, MergedRanges(memory_store), clock, 0)
    for folder in folders:
        merged._settled.note(folder)
    report = await make_collector(replica, memory_store, clock, 0).run()
    await merged.run(report)
    assert len(report.strangers) == TOLD_MAX
    assert report.untold == TOLD_MAX + 14
    assert f"{report.untold} more objects like these stay" in report.warnings
    assert len(report.warnings) == TOLD_MAX + 1
    assert all(map(merged._settled.is_due, folders))
    assert report.deleted == [], "and all of them stay"


async def test_segments_and_manifests_wait_for_the_archive(agent: Agent, memory_store: MemoryStore) -> None:
    await merged_ten_times(agent, memory_store)
    problem = ["the archive ends at 5"]

    async def backed() -> str:
        return problem[0]

    replica, clock = agent.services.replica, agent.services.clock
    collector = make_merged_collector(replica, memory_store, MergedRanges(memory_store), clock, 0, backed)
    before = await keys(memory_store, SEGMENTS) + await keys(memory_store, MANIFESTS)
    report = Report(dry_run=False)
    await collector.run(report)
    assert await keys(memory_store, SEGMENTS) + await keys(memory_store, MANIFESTS) == before
    (told,) = report.failed
    assert told.endswith("that the log let go of: the archive ends at 5"), told
    problem[0] = ""
    await collector.run(Report(dry_run=False))
    assert len(await keys(memory_store, MANIFESTS)) == 1
