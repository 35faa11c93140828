"""Snapshots: the same state again, whatever it holds; corruption found; trimming only where it is safe."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from coordination.commands import (
    AlterClusterConfigs,
    AlterGroupConfigs,
    AlterTopicConfigs,
    Begin,
    BindSchema,
    Claim,
    CommitTable,
    CreateTopic,
    DeleteTopic,
    FenceIncarnation,
    LeaveMetadata,
    MoveLogStart,
    Part,
    PutNamespace,
    RecordSnapshot,
    UpdateFeatures,
    command,
    config_entries,
)
from coordination.log import LogRegressed
from coordination.replica import Replica, ReplicaFailed
from coordination.snapshot import (
    CorruptSnapshot,
    canonical_digest,
    decode,
    decode_steps,
    encode,
    encode_steps,
)
from coordination.snapshot_keeper import SnapshotKeeper, SnapshotOptions, early_after
from coordination.state import ChunkCommitted, ClaimHolder
from coordination.state.freeze import freeze, freeze_now
from objectstore.naming import parse_snapshot_key
from tests.unit.coordination.conftest import Agents, registration, until
from tests.unit.coordination.kit import Script, chunk, tiles
from tests.unit.coordination.reflect import plain
from tests.unit.coordination.test_replica import crash, topic

A, B = 11, 12
SetConfig = AlterTopicConfigs.Change
Finalize = UpdateFeatures.Update


def full() -> Script:
    """A state with something of everything."""
    script = Script()
    script.register(A)
    script.register(B)
    script.register(13)
    for number in range(4):
        script.topic(A, f"t{number}", 3)
    change = AlterTopicConfigs.Change(name="retention.ms", value="5")
    script.apply(A, AlterTopicConfigs(topic="t1", changes=[change]), AlterClusterConfigs(changes=[change]))
    for number in range(20):
        script.commit(A, (0, 3, 7, 0, 3 * number), (1, 2), (4, 1, 8, 0, number), timestamps=[number, 5, 1])
        script.commit(B, (9, 1), (9, 2), (10, 1))
    script.one(A, MoveLogStart(partition=[0], offset=[31]))
    script.one(A, DeleteTopic(name="t3"))
    script.one(A, PutNamespace(name="floe", properties=config_entries({"a": "b"})))
    script.one(
        A, CommitTable(namespace="floe", name="t", metadata_location="m", topic="t1", next_offsets=[1, 2])
    )
    script.one(A, BindSchema(topic="t1", descriptor_set=b"d", message="M", framing=2, tombstones=True))
    script.one(A, AlterClusterConfigs(changes=[SetConfig(name="num.partitions", value="3")]))
    for number in range(300):
        changes = [SetConfig(name="consumer.session.timeout.ms", value=f"{50_000 + number}")]
        script.one(A, AlterGroupConfigs(group=f"g{number}", changes=changes))
    script.one(
        A, UpdateFeatures(updates=[Finalize(name="group.version", level=0, kind=Finalize.SAFE_DOWNGRADE)])
    )
    script.one(B, Claim(name="x"))
    script.one(A, Claim(name="y"))
    script.apply(B, Begin(id=3), Part(id=3, content=b"abc"))
    script.one(A, FenceIncarnation(incarnation=13))
    script.register(14)
    script.one(14, LeaveMetadata())
    script.one(A, RecordSnapshot(revision=9, key="k", size=4))
    return script


DELETED = ("deleted", "deleted_partitions")
SEEN_ELSEWHERE = (
    "partitions",
    "topics",
    "topics_by_id",
    "topics_by_table_name",
    "chunks",
    "subjects",
    *DELETED,
)


def visible(script: Script) -> dict[str, object]:
    """What readers see of the state."""
    state = script.state
    return {
        "partitions": [
            p and (p.handle, p.topic.name, p.index, p.log_start, p.high_watermark, p.slices.plan(0, 1 << 60))
            for p in state.partitions
        ],
        "producers": [
            (p.handle, key, e.epoch, e.last_sequence, e.floor_sequence, e.last_timestamp, e.recent.tolist())
            for p in state.partitions
            if p is not None
            for key, e in p.producers.items()
        ],
        "topics": [(t.name, t.topic_id, t.configs, t.value_schema_id) for t in state.topics.values()],
        "garbage": list(state.chunks.garbage.items()),
        "rest": [
            list(value.items()) if isinstance(value, dict) else value
            for key, value in vars(state).items()
            if key not in {*SEEN_ELSEWHERE, "_hashes", "freezes"}
        ],
        "names": state.topics_by_table_name,  # made from the topics, and only looked up: in no order
        "chunks": [(s, c.id, c.references) for s, c in state.chunks.by_serial.items()],
        "serial": state.chunks.next_serial,
        "subjects": plain(state.subjects),
        "deleted": [plain(getattr(state, name)) for name in DELETED],
    }


def test_a_snapshot_is_the_same_state_in_the_same_order() -> None:
    script = full()
    before, content = visible(script), encode(script.state)
    digest = canonical_digest(script.state)
    script.through_snapshot()
    assert visible(script) == before
    assert encode(script.state) == content
    assert canonical_digest(script.state) == digest
    tiles(script.state)


def test_after_a_snapshot_the_log_goes_on_alike() -> None:
    script, other = full(), full()
    other.through_snapshot()
    for one in (script, other):
        one.commit(A, (0, 3, 7, 0, 60), (5, 1))
        one.one(A, DeleteTopic(name="t0"))
        one.one(A, FenceIncarnation(incarnation=B))
        one.topic(A, "t9")
    assert other.state.hash == script.state.hash
    assert canonical_digest(other.state) == canonical_digest(script.state)


def test_notes_taken_earlier_do_not_change_with_the_state() -> None:
    """Freezing is quick and encoding is slow: entries are applied while it goes on."""
    script = full()
    expected, frozen = encode(script.state), freeze_now(script.state)
    steps = encode_steps(frozen)
    next(steps)
    for number in range(20, 200):
        script.commit(A, (0, 3, 7, 0, 3 * number), (0, 1), (4, 1))
    script.one(A, MoveLogStart(partition=[0], offset=[-1]))
    script.one(A, DeleteTopic(name="t1"))
    script.one(A, FenceIncarnation(incarnation=B))
    *_, parts = steps
    assert b"".join(parts) == expected


def test_work_is_done_in_steps() -> None:
    script = Script()
    script.register(A)
    script.topic(A, "big", 2000)
    assert len(list(freeze(script.state))) > 5
    content = encode(script.state)
    assert len(list(encode_steps(freeze_now(script.state)))) > 5
    assert len(list(decode_steps(content))) > 5


@pytest.mark.parametrize("position", [0, 9, 15, 25, 40, 70, 200, -1])
def test_any_changed_byte_is_found(position: int) -> None:
    content = bytearray(encode(full().state))
    content[position] ^= 1
    with pytest.raises(CorruptSnapshot):
        decode(bytes(content))


@pytest.mark.parametrize("length", [0, 10, 60, 61, 300])
def test_a_cut_snapshot_is_found(length: int) -> None:
    with pytest.raises(CorruptSnapshot):
        decode(encode(full().state)[:length])


# The keeper.


async def write(agents: Agents, name: str = "a", count: int = 1) -> SnapshotKeeper:
    """A keeper of the named agent that wrote snapshots, some entries apart. Its loop does not run."""
    replica = next(one for one in agents.made if one.state.brokers[one.node_id].name == name)
    keeper = SnapshotKeeper(replica, agents.logs[name], agents.store)
    for _ in range(count):
        await replica.propose(Claim(name="something"))
        await keeper.write()
    return keeper


async def keys(agents: Agents) -> list[str]:
    return [meta.key async for page in agents.store.list("snapshots/") for meta in page]


async def test_an_agent_starts_from_a_snapshot_and_the_tail(agents: Agents) -> None:
    a = await agents.start("a")
    await a.propose(topic("t"))
    await a.propose(chunk(1, (0, 5, 7, 0, 0)))
    keeper = await write(agents, count=2)
    await a.propose(chunk(2, (0, 5, 7, 0, 5)))
    assert await keeper.trim() > 0
    b = await agents.start("b")
    assert b.state.partitions[0].high_watermark == 10
    await a.barrier()
    assert a.state.hash_at(b.state.revision) == b.state.hash
    assert isinstance(await b.propose(topic("u")), object)


async def test_a_corrupt_snapshot_falls_back_to_the_one_before(agents: Agents) -> None:
    a = await agents.start("a")
    await a.propose(topic("t"))
    keeper = await write(agents, count=2)
    await keeper.trim()
    newest = (await keys(agents))[-1]
    await agents.store.put(newest, [b"FLOESNAP and then nothing of sense" * 9])
    b = await agents.start("b")
    assert list(b.state.topics) == ["t"]


async def test_no_snapshot_that_covers_what_is_trimmed_stops_the_start(agents: Agents) -> None:
    await agents.start("a")
    keeper = await write(agents, count=2)
    await keeper.trim()
    await agents.store.delete(await keys(agents))
    b = agents.make("b")
    with pytest.raises(ReplicaFailed, match="no readable snapshot"):
        await b.start(registration("b"))


async def test_a_log_older_than_the_snapshot_stops_the_start(agents: Agents) -> None:
    """An etcd restored from a backup is refused (rule 11)."""
    a = await agents.start("a", heartbeat_s=60)
    backup = agents.server.backup()
    await write(agents)
    await crash(a)
    agents.server.restore(backup)
    b = agents.make("b")
    with pytest.raises(LogRegressed, match="backup"):
        await b.start(registration("b"))


async def test_a_restored_log_that_was_written_on_past_the_snapshot_stops_the_start(agents: Agents) -> None:
    """Its revision says nothing any more: the snapshot names an entry that this log does not have."""
    a = await agents.start("a", heartbeat_s=60)
    backup = agents.server.backup()
    await write(agents)
    await crash(a)
    known = decode(await agents.store.get((await keys(agents))[-1]))
    assert known.last_entry is not None
    assert known.last_entry.revision == known.revision
    agents.server.restore(backup)
    key = agents.server.register(7, 7, b"", 60.0)
    while agents.server.revision <= known.revision:
        key = agents.server.append(7, 1, b"another", key)
    b = agents.make("b")
    with pytest.raises(LogRegressed, match="backup"):
        await b.start(registration("b"))


async def test_a_follower_behind_the_trim_loads_a_snapshot(agents: Agents) -> None:
    a = await agents.start("a")
    b = await agents.start("b", members_s=60, heartbeat_s=60, gap_s=60, silent_s=0.1)
    await a.propose(topic("t", 2))
    await b.barrier()
    reloads: list[int] = []
    b.add_reload_listener(lambda state: reloads.append(state.revision))
    agents.logs["b"].faults.partitioned = True
    await a.propose(chunk(1, (0, 5)))
    await write(agents, count=2)
    agents.server.trim(a.state.snapshots[-1].revision)
    agents.logs["b"].faults.partitioned = False
    await b.barrier()
    assert reloads
    assert b.state.partitions[0].high_watermark == 5
    await a.barrier()
    assert a.state.hash_at(b.state.revision) == b.state.hash


async def test_an_incarnation_that_the_snapshot_shows_fenced_counts_for_nothing(agents: Agents) -> None:
    """It registered, lost its lease and was fenced by another agent before it heard of its own entry."""
    a = await agents.start("a")
    b = agents.make("b", members_s=60, heartbeat_s=60, gap_s=60, silent_s=0.1)
    link = agents.logs["b"].faults
    link.delivery_delay_s = 0.3
    starting = asyncio.ensure_future(b.start(registration("b")))
    await until(lambda: len(a.state.incarnations) == 2)
    link.partitioned = True
    first = next(number for number in a.state.incarnations if number != a.incarnation)
    agents.server.expire(first)
    await until(lambda: not a.state.is_live(first))
    await write(agents, count=2)
    agents.server.trim(a.state.snapshots[-1].revision)
    link.partitioned, link.delivery_delay_s = False, 0.0
    await starting
    assert b.incarnation != first
    assert b.state.is_live(b.incarnation)


async def test_landed_then_snapshotted_and_trimmed_then_asked_again(agents: Agents) -> None:
    """The story of Bufstream's append: a trimmed entry looks like one that never was (rule 3).

    The author learns that its entry was applied, not what it answered: unknown, never failed. The
    producer's retry through another agent is recognised all the same.
    """
    a = await agents.start("a")
    b = await agents.start("b", members_s=60, heartbeat_s=60, outcome_wait_s=60, silent_s=0.1)
    await a.propose(topic("t"))
    await b.barrier()
    link = agents.logs["b"].faults
    link.lose_answers = 1
    future = b.submit([command(chunk(1, (0, 5, 7, 0, 0)))], incarnation=b.incarnation)
    link.delivery_delay_s = 0.2
    await until(lambda: a.state.partitions[0].high_watermark == 5)
    link.partitioned = True
    await write(agents, count=2)
    agents.server.trim(a.state.snapshots[-1].revision)
    link.partitioned, link.delivery_delay_s = False, 0.0
    (outcome,) = await asyncio.gather(future, return_exceptions=True)
    assert outcome == [ChunkCommitted([0], [0])] or "results went by" in str(outcome)
    retry = await a.propose(chunk(1, (0, 5, 7, 0, 0)))
    assert retry == ChunkCommitted([0], [0], duplicates=[0])
    assert a.state.partitions[0].high_watermark == 5


async def test_the_keeper_writes_when_due_and_keeps_three(agents: Agents) -> None:
    a = await agents.start("a", heartbeat_s=0.02)
    keeper = SnapshotKeeper(a, agents.logs["a"], agents.store, SnapshotOptions(revisions=10, poll_s=0.01))
    keeper.start()
    await until(lambda: a.state.trimmed_through > 30)
    await keeper.stop()
    revisions = [name.revision for name in map(parse_snapshot_key, await keys(agents)) if name]
    assert 3 <= len(revisions) <= 4
    assert [s.revision for s in a.state.snapshots] == revisions[:3]
    assert agents.server.trimmed <= revisions[-1]


async def test_one_keeper_acts_and_another_takes_over(agents: Agents) -> None:
    a, b = await agents.start("a", heartbeat_s=0.02), await agents.start("b")
    options = SnapshotOptions(revisions=5, poll_s=0.01)
    first = SnapshotKeeper(a, agents.logs["a"], agents.store, options)
    second = SnapshotKeeper(b, agents.logs["b"], agents.store, options)
    first.start()
    await until(lambda: a.state.snapshots)
    second.start()
    await first.stop()
    old = a.incarnation
    await a.stop()
    await until(lambda: b.state.claims.get("snapshot") and b.state.claims["snapshot"].incarnation != old)
    seen = len(b.state.snapshots) and b.state.snapshots[-1].revision
    for number in range(20):
        await b.propose(CreateTopic(name=f"t{number}", topic_id=b"%016d" % number, partitions=1))
    await until(lambda: b.state.snapshots[-1].revision > seen)
    await second.stop()


async def test_the_keeper_killed_between_any_two_steps_loses_nothing(agents: Agents) -> None:
    """Write, record, trim, delete: cut after every turn of the loop, until it comes through uncut."""
    turns, uncut = 0, False
    while not uncut:
        a = await agents.start(f"agent-{turns}", heartbeat_s=60, members_s=60)
        await a.propose(topic(f"topic-{turns}"))
        keeper = SnapshotKeeper(a, agents.logs[f"agent-{turns}"], agents.store)
        work = asyncio.ensure_future(write_twice_and_trim(a, keeper))
        for _ in range(turns):
            await asyncio.sleep(0)
        uncut = work.done()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        old = a.incarnation
        await crash(a)
        agents.server.expire(old)
        b = await agents.start(f"witness-{turns}", heartbeat_s=60, members_s=60, confirm_s=0)
        assert list(b.state.topics) == [f"topic-{n}" for n in range(turns + 1)]
        assert agents.server.trimmed <= max((s.revision for s in b.state.snapshots), default=0)
        await b.propose(FenceIncarnation(incarnation=old))
        await b.stop()
        turns += 1
    assert turns > 20
    assert agents.server.trimmed > 0


async def write_twice_and_trim(replica: Replica, keeper: SnapshotKeeper) -> None:
    for _ in range(2):
        await replica.propose(Claim(name="something"))
        await keeper.write()
    await replica.propose(Claim(name="something"))
    await keeper.trim()


async def test_a_small_snapshot_is_written_again_sooner_than_a_large_one(agents: Agents) -> None:
    """Or agents that restart one after another apply a hundred thousand entries, seconds of a core each."""
    options = SnapshotOptions(revisions=100_000)
    sizes = (0, 5_000_000, 30_000_000, 10**9)
    assert [early_after(options, size) for size in sizes] == [5_000, 5_000, 30_000, 1_000_000]
    a = await agents.start("a", heartbeat_s=0.02)
    held = ClaimHolder(a.incarnation, 0)
    await until(lambda: a.state.revision > 12)
    soon = SnapshotKeeper(a, agents.logs["a"], agents.store, replace(options, revisions_min=10))
    await soon.step(held)
    assert not a.state.snapshots, "the log would be trimmed before others have read it"
    now = replace(options, revisions_min=10, seconds_min=0)
    await SnapshotKeeper(a, agents.logs["a"], agents.store, now).step(held)
    assert len(a.state.snapshots) == 1
