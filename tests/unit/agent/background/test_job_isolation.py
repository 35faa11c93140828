"""Rule 16: what is damaged or fails concerns its partition, topic or kind; jobs go on with the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.background import collection
from agent.background.expiry import positions, transactions
from agent.background.expiry.positions import OffsetExpiry
from agent.background.expiry.transactions import TransactionTimeouts
from agent.background.retention.job import LogRetention
from agent.telemetry.metrics import Metrics
from coordination.clock import ManualClock, SystemClock
from coordination.commands import Claim, CommitOffsets, DeleteTopic, PurgeTopics
from coordination.jobs import STORE_FAILURES_MAX
from coordination.snapshot_keeper import SnapshotKeeper, SnapshotOptions
from coordination.state.types import ClaimHolder, Done
from objectstore.adapters.memory import MemoryStore
from objectstore.faulty import Fault, FaultyStore
from objectstore.merged import MergedRanges
from objectstore.naming import SEGMENTS, ChunkId, ManifestId, chunk_key, manifest_key
from objectstore.store import Denied, NotFound, Retryable
from tests.unit.agent.background.compaction_rig import NOW, compaction
from tests.unit.agent.background.compaction_rig import At as ClockAt
from tests.unit.agent.background.merging_rig import job_of, merge_rows, partition_of
from tests.unit.agent.background.test_compaction import put
from tests.unit.agent.background.test_merging import damage_first_chunk, keys
from tests.unit.agent.background.test_merging import fill as fill_slices
from tests.unit.agent.background.test_retention_job import fill, starts
from tests.unit.agent.kafka.admin_calls import create, topic
from tests.unit.agent.kafka.test_handlers_produce_fetch import create as create_simple
from tests.unit.agent.kafka.transactions_rig import Txn
from tests.unit.agent.rig import Agent

TOPICS = ("a", "b", "c")


async def holding(agent: Agent, claim: str) -> ClaimHolder:
    result = await agent.services.replica.propose(Claim(name=claim))
    assert isinstance(result, Done)
    return agent.services.replica.state.claims[claim]


async def flip_manifest(agent: Agent, store: MemoryStore, name: str) -> None:
    pointer = partition_of(agent, name).merged
    assert pointer is not None
    key = manifest_key(pointer.manifest)
    data = bytearray(await store.get(key))
    data[-1] ^= 1
    await store.put(key, [data])


async def test_retention_passes_over_a_partition_whose_manifest_is_damaged(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await create(agent, *(topic(name, 1, retention_ms="50") for name in TOPICS))
    for name in TOPICS:
        await fill(agent, name, NOW - 100, NOW)
        for _ in range(2):
            await merge_rows(agent, memory_store, 1, name=name)
    await flip_manifest(agent, memory_store, "b")
    held = await holding(agent, LogRetention.claim)
    clock = ClockAt(NOW)
    job = LogRetention(agent.services.replica, MergedRanges(memory_store), clock, Metrics())
    await job.run(held)
    assert [starts(agent, name) for name in TOPICS] == [[1], [0], [1]]
    assert list(job.failures) == ["manifest of b-0"]
    clock.at_ms = NOW + 51
    await job.run(held)
    assert [starts(agent, name) for name in TOPICS] == [[2], [2], [2]], "the damaged range goes as a whole"


async def test_retention_passes_over_a_partition_that_cannot_be_looked_at(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(agent, *(topic(name, 1, retention_ms="50") for name in TOPICS))
    for name in TOPICS:
        await fill(agent, name, NOW - 100)
    held = await holding(agent, LogRetention.claim)
    job = LogRetention(agent.services.replica, MergedRanges(memory_store), ClockAt(NOW), Metrics())
    look = job._new_start

    async def sick(partition: Any, rules: Any) -> int:
        if partition.topic.name == "b":
            raise AssertionError("nobody expected this")
        return await look(partition, rules)

    monkeypatch.setattr(job, "_new_start", sick)
    await job.run(held)
    assert [starts(agent, name) for name in TOPICS] == [[1], [0], [1]]
    assert job.failures["b-0"].count == 1
    monkeypatch.undo()
    await job.run(held)
    assert not job.failures, "forgotten once it works"


async def test_merging_goes_on_with_the_others_whatever_goes_wrong_with_one(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await create_simple(agent, partitions=3)
    for index in range(3):
        await fill_slices(agent, 8, index)
    await damage_first_chunk(agent, memory_store, 1)
    job = job_of(agent, memory_store)
    for _ in range(2):
        await job._look()
    assert [partition_of(agent, index=index).merged is not None for index in range(3)] == [True, False, True]
    assert list(job.failures) == [f"partition {partition_of(agent, index=1).handle}"]


async def test_merging_looks_at_every_range(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_simple(agent, partitions=300)
    job = job_of(agent, memory_store)
    seen: list[int] = []

    async def look(number: int) -> None:
        seen.append(number)
        if number == 0:
            raise AssertionError("nobody expected this")

    monkeypatch.setattr(job, "_look_at", look)
    await job._look()
    assert seen == [0, 1, 2]
    assert list(job.failures) == ["range 0"]


async def test_compaction_goes_on_with_other_partitions(agent: Agent, memory_store: MemoryStore) -> None:
    await create(agent, *(topic(name, 1, cleanup_policy="compact") for name in TOPICS))
    for name in TOPICS:
        await put(agent, name, (b"k", b"1"))
        await put(agent, name, (b"k", b"2"))
    (ref,) = partition_of(agent, "b").slices.oldest(1, 1)
    await memory_store.delete([chunk_key(ref.chunk)])  # type: ignore[arg-type]  # a row of a tail
    job = compaction(agent, memory_store, ClockAt(NOW))
    await job._look()
    assert [partition_of(agent, name).merged is not None for name in TOPICS] == [True, False, True]
    assert list(job.failures) == [f"partition {partition_of(agent, 'b').handle}"]


async def test_collection_of_one_kind_does_not_wait_for_another(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_simple(agent)
    for _ in range(2):
        await fill_slices(agent, 1)
        await merge_rows(agent, memory_store, 1)
    replica = agent.services.replica
    clock, ranges = agent.services.clock, MergedRanges(memory_store)
    chunks = collection.make_collector(replica, memory_store, clock, 0)
    merged = collection.make_merged_collector(replica, memory_store, ranges, clock, 0)

    async def sick(*, dry_run: bool = False) -> None:
        raise ValueError("a name that nobody can parse")

    monkeypatch.setattr(chunks, "run", sick)
    job = collection.Collection(replica, chunks, merged, Metrics(), interval_s=1)
    assert replica.state.manifest_garbage
    await job.step(await holding(agent, job.claim))
    assert not replica.state.manifest_garbage
    assert list(job.failures) == ["chunks"]


async def test_nothing_uncommitted_goes_while_nobody_knows_whose_chunks_there_are(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An author that the log never met may have chunks: what this log calls uncommitted is kept then."""
    replica, clock = agent.services.replica, agent.services.clock
    fenced = 0xBEEF
    replica.state.incarnations[fenced] = replace(
        next(iter(replica.state.incarnations.values())), incarnation=fenced, fenced_revision=1
    )
    orphan = manifest_key(ManifestId(fenced, 0, 5))
    await memory_store.put(orphan, [b"half"])
    stranger = chunk_key(ChunkId(0xDEAD, 1))
    await memory_store.put(stranger, [b"acknowledged by a log that is lost"])
    chunks = collection.make_collector(replica, memory_store, clock, 0)
    merged = collection.make_merged_collector(replica, memory_store, MergedRanges(memory_store), clock, 0)
    job = collection.Collection(replica, chunks, merged, Metrics(), interval_s=1)
    held = await holding(agent, job.claim)

    async def away(**_: bool) -> None:
        raise Retryable("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(chunks, "run", away)
        await job.step(held)
    await job.step(held)
    assert [(await memory_store.head(key)).key for key in (orphan, stranger)] == [orphan, stranger]
    await memory_store.delete([stranger])
    await job.step(held)
    with pytest.raises(NotFound):
        await memory_store.head(orphan)


async def test_the_log_is_trimmed_though_no_snapshot_can_be_written(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = SnapshotKeeper(agent.services.replica, agent.log, memory_store, SnapshotOptions(revisions=1))
    trims: list[int] = []

    async def sick() -> int:
        raise ValueError("a number that no field holds")

    async def trim() -> int:
        trims.append(1)
        return 0

    monkeypatch.setattr(keeper, "write", sick)
    monkeypatch.setattr(keeper, "trim", trim)
    await create_simple(agent)
    await keeper.step(await holding(agent, keeper.claim))
    assert trims
    assert list(keeper.failures) == ["snapshot"]


async def test_positions_of_other_groups_expire(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    await create_simple(agent)
    replica = agent.services.replica
    for name in TOPICS:
        commit = CommitOffsets(group=name, generation=-1, partition=[0], offset=[1])
        assert isinstance(await replica.propose(commit), Done)

    def expirable(_state: Any, group: Any, *_more: Any) -> bool:
        if group is replica.state.groups["b"]:
            raise AssertionError("nobody expected this")
        return True

    monkeypatch.setattr(positions, "expirable", expirable)
    named: list[str] = []
    propose = replica.propose

    async def proposed(message: Any, **more: Any) -> Any:
        named.extend(message.group)
        return await propose(message, **more)

    held = await holding(agent, OffsetExpiry.claim)
    monkeypatch.setattr(replica, "propose", proposed)
    job = OffsetExpiry(replica, SystemClock())
    await job.step(held)
    assert named == ["a", "c"]
    assert list(job.failures) == ["group b"]


async def test_groups_with_many_positions_are_looked_at_a_few_at_a_time(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop gets its turn by what is looked at, not by how many groups it is in."""
    await create_simple(agent, partitions=3)
    replica = agent.services.replica
    for group in ("a", "b", "c", "d", "e"):
        await replica.propose(
            CommitOffsets(group=group, generation=-1, partition=[0, 1, 2], offset=[1, 1, 1])
        )
    monkeypatch.setattr(positions, "POSITIONS_PER_STEP", 4)
    monkeypatch.setattr(positions, "GROUPS_PER_STEP", 4)
    job, names = OffsetExpiry(replica, SystemClock()), iter(list(replica.state.groups))
    assert [job._few(names) for _ in range(4)] == [["a", "b"], ["c", "d"], ["e"], []]


async def test_other_transactions_end_though_one_cannot_be_looked_at(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those past their time, and the ids that nobody uses any more."""
    await create_simple(agent)
    replica, clock = agent.services.replica, ManualClock(start_ms=agent.services.clock.now_ms())
    for name in TOPICS:
        producer = Txn(agent, name)
        await producer.init(timeout_ms=60_000)
        await producer.send(b"x")
    job = TransactionTimeouts(replica, clock)
    held = ClaimHolder(replica.incarnation, 0)
    await job.step(held)
    over, sick = job._over, replica.state.transactions["b"]

    def looked(each: Any, *more: Any) -> Any:
        if each is sick:
            raise AssertionError("nobody expected this")
        return over(each, *more)

    def expirable(each: Any, _since_ms: int) -> bool:
        if each is sick:
            raise AssertionError("nobody expected this")
        return not each.ongoing

    monkeypatch.setattr(job, "_over", looked)
    monkeypatch.setattr(transactions, "expirable", expirable)
    named: list[str] = []
    submit = replica.submit

    async def submitted(commands: Any, **more: Any) -> Any:
        named.extend(each for one in commands for each in one.expire_transactions.transactional_id)
        return await submit(commands, **more)

    monkeypatch.setattr(replica, "submit", submitted)
    clock.advance(3_601)
    await job.step(held)
    assert [replica.state.transactions[name].ongoing for name in TOPICS] == [False, True, False]
    assert named == ["a", "c"]
    assert list(job.failures) == ["transaction b", "id b"]


async def test_a_manifest_that_cannot_be_read_keeps_no_other_from_being_dropped(
    agent: Agent, memory_store: MemoryStore
) -> None:
    """Those of deleted topics go with their segments, whose names only they have."""
    store = FaultyStore(memory_store)
    await create(agent, *(topic(name, 1) for name in TOPICS))
    for name in TOPICS:
        await fill(agent, name, NOW)
        await merge_rows(agent, memory_store, 1, name=name)
        await agent.services.replica.propose(DeleteTopic(name=name))
    state = agent.services.replica.state
    await agent.services.replica.propose(PurgeTopics(topic_id=list(state.deleted)))
    assert len(state.manifest_garbage) == len(TOPICS)
    replica, clock = agent.services.replica, agent.services.clock
    merged = collection.make_merged_collector(replica, store, MergedRanges(store), clock, 0)
    store.order("get", Fault.SLOW, Fault.REFUSED, Fault.SLOW)
    report = await collection.make_collector(replica, memory_store, clock, 0).run()
    await merged.run(report)
    (left,) = state.manifest_garbage
    assert [manifest_key(left) in line for line in report.failed] == [True]
    assert len(await keys(memory_store, SEGMENTS)) == 1, "and its segment waits with it"
    report = await collection.make_collector(replica, memory_store, clock, 0).run()
    await merged.run(report)
    assert (report.failed, state.manifest_garbage) == ([], {})
    assert await keys(memory_store, SEGMENTS) == []


async def test_a_store_that_is_away_ends_the_pass(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One object that cannot be read is passed over; many in a row are not worth a wait each."""
    names = [f"t{number}" for number in range(STORE_FAILURES_MAX + 2)]
    await create(agent, *(topic(name, 1, retention_ms="50") for name in names))
    held = await holding(agent, LogRetention.claim)
    job = LogRetention(agent.services.replica, MergedRanges(memory_store), ClockAt(NOW), Metrics())
    looked: list[str] = []

    async def away(partition: Any, rules: Any) -> int:
        looked.append(partition.topic.name)
        raise Retryable("no answer")

    monkeypatch.setattr(job, "_new_start", away)
    with pytest.raises(Retryable):
        await job.run(held)
    assert looked == names[:STORE_FAILURES_MAX]


async def test_failures_with_successes_between_them_do_not_say_that_the_store_is_away(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{what}{number}" for number in range(STORE_FAILURES_MAX + 1) for what in ("sick", "well")]
    await create(agent, *(topic(name, 1, retention_ms="50") for name in names))
    held = await holding(agent, LogRetention.claim)
    job = LogRetention(agent.services.replica, MergedRanges(memory_store), ClockAt(NOW), Metrics())
    looked: list[str] = []

    async def half_refused(partition: Any, rules: Any) -> int:
        looked.append(partition.topic.name)
        if partition.topic.name.startswith("sick"):
            raise Denied("the key that it was encrypted with is gone")
        return 0

    monkeypatch.setattr(job, "_new_start", half_refused)
    await job.run(held)
    assert looked == names
    assert list(job.failures) == [f"{name}-0" for name in names if name.startswith("sick")]


async def test_objects_that_never_can_be_read_keep_no_pass_from_what_stands_around_them(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store refuses as many side by side as say that it is away: it is not, for the others."""
    sick = [f"sick{number}" for number in range(STORE_FAILURES_MAX)]
    names = ["before", *sick, "behind"]
    await create(agent, *(topic(name, 1, retention_ms="50") for name in names))
    for name in names:
        await fill(agent, name, NOW - 100)
    held = await holding(agent, LogRetention.claim)
    job = LogRetention(agent.services.replica, MergedRanges(memory_store), ClockAt(NOW), Metrics())
    look = job._new_start

    async def refused(partition: Any, rules: Any) -> int:
        if partition.topic.name in sick:
            raise Denied("the key that it was encrypted with is gone")
        return await look(partition, rules)

    monkeypatch.setattr(job, "_new_start", refused)
    with pytest.raises(Denied):
        await job.run(held)
    assert starts(agent, "before") == [1], "what was found until then is not lost"
    await job.run(held)
    assert [starts(agent, name) for name in names] == [[1], *[[0] for _ in sick], [1]]
    assert list(job.failures) == [f"{name}-0" for name in sick]
