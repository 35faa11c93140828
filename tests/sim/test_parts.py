"""Parts of the simulation that decide something by themselves: plans, shrinking, copies, the witness."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.subscription_state import SubscriptionState

from agent.kafka.handlers import k09_offset_fetch
from agent.net.wire.generated.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from agent.net.wire.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from agent.net.wire.generated.delete_topics import DeleteTopicsRequest
from agent.net.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from agent.net.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from agent.net.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from coordination.commands import ENTRY_FORMAT, Command, CommitOffsets, Entry
from coordination.kafka_codes import Code
from coordination.log import LogEntry
from coordination.memory_log import MemoryLog
from coordination.memory_server import MemoryServer
from coordination.state import transactions
from coordination.state.group_types import CommittedOffset, Group
from coordination.state.state import HANDLERS as COMMANDS
from coordination.state.state import State
from coordination.state.transaction_types import Transaction
from coordination.state.types import At
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import NewRecord, build
from objectstore.naming import ChunkId, chunk_key
from objectstore.store import CREATE, NotFound
from tests.checker.findings import Finding, Judgement
from tests.checker.operations import Operation, Poll
from tests.sim.clock import SimClock
from tests.sim.controls import Control
from tests.sim.controls_table import EVERY
from tests.sim.coverage import COMMANDS_OUT, RULES, Coverage
from tests.sim.distant_store import HANGING_S, DistantStore, Hanging
from tests.sim.final import passed_over
from tests.sim.keys import Keys
from tests.sim.loop import VirtualLoop
from tests.sim.mortal import MORTAL, Arrivals, Mortal
from tests.sim.node import Node
from tests.sim.operator import Operator
from tests.sim.outcome import Outcome
from tests.sim.plan import Plan, plan_of
from tests.sim.positions import Positions
from tests.sim.relay import relayed
from tests.sim.shrink import anomalies, candidates, shrunk
from tests.sim.timeline import page
from tests.sim.witness import Witness
from tests.sim.world import World


def test_a_plan_survives_being_kept() -> None:
    for seed in range(50):
        assert Plan.load(plan_of(seed).dump()) == plan_of(seed)


def _fails(plan: Plan) -> Outcome:
    """A run that goes wrong when a second kill meets a transaction of v1."""
    kills = [each for each in plan.faults if each[2] == "kill"]
    wrong = len(kills) >= 2 and "v1" in plan.transactors
    findings = [Finding("duplicate", "", "", ())] if wrong else []
    return Outcome(plan, Judgement(findings), [], "", 1.0)


def test_a_failing_run_is_made_small() -> None:
    faults = tuple((float(n), 2.0, "kill" if n in (3, 9) else "pause", (0,)) for n in range(2, 19))
    plan = replace(plan_of(1), faults=faults, transactors=("v2", "v1", "v2"), relay="v1", writers=2)
    small = shrunk(_fails(plan), lambda text: None, _fails)
    assert anomalies(small) == {"duplicate"}
    assert [each[2] for each in small.plan.faults] == ["kill", "kill"]
    assert (small.plan.transactors, small.plan.writers, small.plan.relay) == (("v1",), 0, "")
    assert not any(anomalies(_fails(each)) for each in candidates(replace(small.plan, faults=())))


@pytest.mark.parametrize(
    ("read", "position", "copies", "anomaly"),
    [
        ([0, 1, 4], 5, ["x-0.0", "x-0.1", "x-0.4"], None),
        ([0, 1, 4], 2, ["x-0.0", "x-0.1"], None),
        ([0, 1, 4], 5, ["x-0.0", "x-0.4"], "copy-lost"),
        ([0, 1, 4], 2, ["x-0.0", "x-0.1", "x-0.4"], "copy-without-position"),
        ([0, 1, 4], 5, ["x-0.0", "x-0.1", "x-0.1", "x-0.4"], "copied-twice"),
        ([0, 1], 0, ["y-3.0"], "copy-without-position"),
    ],
)
def test_copies_are_what_lies_below_the_position(
    read: list[int], position: int, copies: list[str], anomaly: str | None
) -> None:
    found = {each.anomaly for each in relayed("copies", {"x-0": read}, {"x-0": position}, copies)}
    assert found == ({anomaly} if anomaly else set())


def test_what_a_client_skipped_by_itself_is_not_lost() -> None:
    read, at = {"x-0": [0, 1, 2]}, {"x-0": 3}
    assert not list(relayed("copies", read, at, ["x-0.0", "x-0.1"], {"x-0.1", "x-0.2"}))
    lost = [each.anomaly for each in relayed("copies", read, at, ["x-0.0"], {"x-0.1"})]
    assert lost == ["copy-lost"]


def _polls(*offsets: int) -> list[Operation]:
    records = {"x-0": tuple((offset, f"v{offset}") for offset in offsets)}
    return [Operation(0, 1, "poll", "ok", (Poll(records),))]


def test_what_a_group_passes_over_is_seen() -> None:
    read = {"x-0": {0, 1, 4}}
    assert not passed_over("g", _polls(0, 1, 4), read, {"x-0": 5})
    assert not passed_over("g", _polls(0), read, {"x-0": 1})
    assert [each.anomaly for each in passed_over("g", _polls(0, 4), read, {"x-0": 5})] == ["group-skip"]


def test_a_key_is_retired_after_so_many_writes() -> None:
    first, more = [TopicPartition("x", n) for n in range(2)], [TopicPartition("x1", n) for n in range(3)]
    keys, dice = Keys(first, 2, 5), Random(1)
    while keys.wanted < 2:
        assert keys.written(dice) in first
    keys.add(more[:1])
    assert (keys.retired, keys.wanted, len(keys.live)) == (1, 1, 2)
    keys.add(more[1:])
    assert (keys.retired, keys.wanted, keys.live[2:], keys.every) == (2, 0, more[2:], first + more)
    assert set(keys.live) == set(more)


def test_keys_grow_to_as_many_as_live_at_a_time() -> None:
    keys = Keys([TopicPartition("x", 0)], 4, 0)
    assert keys.wanted == 3
    keys.add(TopicPartition("x1", n) for n in range(3))
    assert (keys.wanted, len(keys.live), keys.retired) == (0, 4, 0)
    dice = Random(1)
    found = Counter(keys.written(dice) for _ in range(1000))
    assert found[keys.live[0]] > found[keys.live[1]] > found[keys.live[3]] > 0


def _state(**positions: int) -> Any:
    """A state whose groups stand there, each at one partition."""
    groups = []
    for name, offset in positions.items():
        group = Group(name)
        group.offsets.put(0, CommittedOffset(offset, -1, "", 1, None))
        groups.append(group)
    return SimpleNamespace(revision=9, groups={each.group_id: each for each in groups})


def _committed(group: str, offset: int) -> Command:
    return Command(commit_offsets=CommitOffsets(group=group, partition=[0], offset=[offset]))


def test_a_position_that_goes_back_in_a_transaction_is_seen_in_every_group() -> None:
    wrong: list[str] = []
    positions = Positions(lambda anomaly, detail: wrong.append(anomaly))
    for each in ({"a": 5, "b": 7}, {"a": 6, "b": 7}, {"a": 6}, {"a": 6, "b": 1}):
        positions.applied(_state(**each), ["end_transaction"], [Command()])
        assert not wrong
    positions.applied(_state(a=5, b=1), ["heartbeat"], [Command()])
    assert not wrong, "entries that change no position are not looked at"
    positions.applied(_state(a=5, b=1), ["end_transaction"], [Command()])
    assert wrong == ["position-back"]


@pytest.mark.parametrize(("order", "anomaly"), [((8, 5), []), ((5, 8), ["position-back"])])
def test_a_position_may_go_back_only_when_the_older_one_was_asked_for_later(
    order: tuple[int, int], anomaly: list[str]
) -> None:
    wrong: list[str] = []
    positions = Positions(lambda anomaly, detail: wrong.append(anomaly))
    partition = SimpleNamespace(handle=0)
    topics = {"t": SimpleNamespace(partitions=[partition])}
    ctx: Any = SimpleNamespace(state=SimpleNamespace(topics=topics))
    for offset in order:
        row = OffsetCommitRequestPartition(0, offset)
        positions._take(
            ctx, OffsetCommitRequest("a", topics=[OffsetCommitRequestTopic("t", partitions=[row])])
        )
    for offset in (8, 5):
        positions.applied(_state(a=offset), ["commit_offsets"], [_committed("a", offset)])
    assert wrong == anomaly


@pytest.mark.parametrize(("told", "anomaly"), [(4, ["stale-position"]), (5, []), (6, [])])
def test_a_position_that_was_over_when_it_was_asked_for_is_seen(told: int, anomaly: list[str]) -> None:
    wrong: list[str] = []
    positions = Positions(lambda anomaly, detail: wrong.append(anomaly))
    for offset in (4, 5):
        positions.applied(_state(a=offset), ["end_transaction"], [Command()])
    since = positions._changes
    positions.applied(_state(a=6), ["end_transaction"], [Command()])
    row = OffsetFetchResponsePartition(0, told)
    topics = {"t": SimpleNamespace(partitions=[SimpleNamespace(handle=0)])}
    answer = OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", [row])])
    ctx: Any = SimpleNamespace(state=SimpleNamespace(topics=topics))
    positions._told(ctx, "a", answer, since)
    assert wrong == anomaly


def test_it_is_counted_when_positions_are_asked_for_behind_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of this file is at revision 9; only the read barrier helps whoever has applied less."""

    async def handle(ctx: Any, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        return OffsetFetchResponse()

    monkeypatch.setattr(k09_offset_fetch, "handle", handle)
    positions, counts = Positions(lambda anomaly, detail: None), []
    positions.applied(_state(a=5), ["end_transaction"], [Command()])
    with positions.watches():
        for group, revision in (("a", 9), ("b", 8), ("a", 8)):
            ctx: Any = SimpleNamespace(state=SimpleNamespace(revision=revision))
            asyncio.run(k09_offset_fetch.handle(ctx, OffsetFetchRequest(group), 5))
            counts.append(positions.behind)
    assert counts == [0, 0, 1]


def test_an_object_is_there_in_the_middle_of_its_put() -> None:
    async def story() -> None:
        objects = MemoryStore()
        store = DistantStore(objects, lambda: 1.0)
        put = asyncio.create_task(store.put("a/b", [b"x"]))
        seen = []
        for _ in range(3):
            await asyncio.sleep(0.8)
            seen.append((await objects.list_folders(""), put.done()))
        assert seen == [([], False), (["a"], False), (["a"], True)]
        assert await store.get("a/b") == b"x"
        with pytest.raises(NotFound):
            await store.get("a/c")

    _virtually(story())


def test_a_put_that_hangs_lands_though_nobody_waits_for_it() -> None:
    async def story() -> None:
        objects, hanging, key = MemoryStore(), Hanging(Random(1), on=True), chunk_key(ChunkId(1, 1))
        store = DistantStore(objects, lambda: 0.0, hanging)
        for _ in range(100):  # those that do not hang land at once
            put = asyncio.create_task(store.put(key, [b"x"], CREATE))
            await asyncio.sleep(0.1)
            if not put.done():
                put.cancel()
                break
            await objects.delete([key])
        assert (hanging.landed, await objects.list_folders("")) == (0, [])
        await asyncio.sleep(HANGING_S[1])
        assert hanging.landed == 1
        assert await objects.get(key) == b"x"

    _virtually(story())


def test_a_log_that_is_some_way_off_answers_and_tells_its_followers_late() -> None:
    async def story() -> None:
        loop, server = asyncio.get_running_loop(), MemoryServer()
        log = MemoryLog(server, SimClock(loop, 1), latency_s=lambda: 0.1)  # type: ignore[arg-type]  # it is ours
        followed = log.follow(0)
        chain = await log.register(7, b"", 3.0)
        assert loop.time() == pytest.approx(0.2, abs=0.01)
        revision = await chain.append(b"x")
        assert loop.time() == pytest.approx(0.4, abs=0.01)
        while (await anext(followed)).through < revision:
            pass
        assert loop.time() == pytest.approx(0.7, abs=0.01), "a look at the server, then the way back"
        await followed.aclose()
        await chain.close()

    _virtually(story())


def _virtually(story: Any) -> None:
    loop = VirtualLoop(1)
    try:
        loop.run_until_complete(story)
    finally:
        loop.put_away()


def _produced(value: bytes) -> ProduceRequest:
    raw = memoryview(build([NewRecord(0, None, value)]))
    return ProduceRequest(
        None, -1, 1000, [TopicProduceData(MORTAL, partition_data=[PartitionProduceData(0, raw)])]
    )


def _trimmed(before: int) -> DeleteRecordsRequest:
    rows = [DeleteRecordsPartition(0, before)]
    return DeleteRecordsRequest([DeleteRecordsTopic(MORTAL, rows)], 1000)


@pytest.mark.parametrize(
    ("came", "known", "found", "wrong"),
    [
        ([], [0, 1], {0: b"x.1", 1: b"x.2"}, ""),
        ([], [0, 1], {0: b"x.1", 1: b"x.2", 2: b"x.0"}, "of a life before"),
        ([_produced(b"x.0")], [0, 1], {0: b"x.1", 1: b"x.2", 2: b"x.0"}, ""),
        ([], [0, 1], {1: b"x.2"}, "is gone"),
        ([_trimmed(1)], [0, 1], {1: b"x.2"}, ""),
        ([_trimmed(1)], [0, 1], {0: b"x.1"}, "is gone"),
        ([DeleteTopicsRequest(topic_names=[MORTAL])], [0, 1], {}, ""),
        ([DeleteTopicsRequest(topic_names=[MORTAL])], [0, 1], {0: b"x.0"}, "of a life before"),
        ([DeleteTopicsRequest(topic_names=["another"])], [0, 1], {}, "is gone"),
    ],
)
def test_a_topic_made_again_is_judged_by_what_arrived_in_its_present_life(
    came: list[Any], known: list[int], found: dict[int, bytes], wrong: str
) -> None:
    """What was sent to the life before and held up by the network means the topic that is there now."""

    async def story() -> None:
        async def nothing(ctx: Any, request: Any, version: int) -> None:
            """What the agent does with it is not the question."""

        arrivals, around = Arrivals(), SimpleNamespace(findings=[])
        mortal = Mortal(around, arrivals)  # type: ignore[arg-type]  # findings are all that is told
        await arrivals.asked(nothing, None, _produced(b"x.0"), 7)
        arrivals.begin()
        for each in (_produced(b"x.1"), _produced(b"x.2"), *came):
            await arrivals.asked(nothing, None, each, 7)
        mortal._acked = {0: b"x.1", 1: b"x.2"}
        mortal._judge(known, list(found.items()))
        assert all(wrong and wrong in each.detail for each in around.findings)
        assert bool(around.findings) == bool(wrong)

    asyncio.run(story())


def test_what_is_under_way_when_a_topic_is_made_again_may_come_to_either_life() -> None:
    async def story() -> None:
        async def slow(ctx: Any, request: Any, version: int) -> None:
            await done.wait()

        done, arrivals = asyncio.Event(), Arrivals()
        asking = asyncio.create_task(arrivals.asked(slow, None, _produced(b"x.0"), 7))
        await asyncio.sleep(0)
        arrivals.begin()
        assert arrivals.values == {b"x.0"}
        done.set()
        await asking
        assert arrivals.values == {b"x.0"}
        arrivals.begin()
        assert not arrivals.values

    asyncio.run(story())


@pytest.mark.parametrize(
    ("code", "told", "wrong"),
    [
        (0, -1, 0),
        (0, 7, 1),
        (Code.REQUEST_TIMED_OUT, -1, 0),
        (Code.REQUEST_TIMED_OUT, 7, 0),
        (Code.REQUEST_TIMED_OUT, 6, 1),
    ],
)
def test_a_deletion_that_failed_may_come_true_still(code: int, told: int, wrong: int) -> None:
    class Answered(Operator):
        async def _asked(self, api: str, request: Any, version: int) -> Any:
            if api == "OffsetFetch":
                rows = [OffsetFetchResponseTopic("t", [OffsetFetchResponsePartition(0, told)])]
                return OffsetFetchResponse(topics=rows)
            return DeleteGroupsResponse(results=[DeletableGroupResult("g", code if "Delete" in api else 0)])

    keys = SimpleNamespace(every=[TopicPartition("t", 0)])
    around = SimpleNamespace(loop=SimpleNamespace(random=Random(1)), keys=keys, names=6, findings=[])
    asyncio.run(Answered(around)._positions())  # type: ignore[arg-type]  # what it needs
    assert len(around.findings) == wrong


def test_a_transaction_that_ends_twice_is_seen() -> None:
    witness, known = Witness(), Transaction("x", 7, 0, 1000, 0, number=1)
    witness.ended(known, True, 5)
    witness.ended(known, True, 5)  # another agent applies the same entry
    assert not witness.findings
    witness.ended(known, False, 6)
    assert [each.anomaly for each in witness.findings] == ["ended-twice"]
    again = Transaction("x", 8, 0, 1000, 0, number=1)
    witness.ended(again, False, 9)  # the id had expired: its numbers begin anew
    assert len(witness.findings) == 1


def test_an_entry_that_is_applied_in_two_ways_is_seen() -> None:
    witness, states = Witness(), (State(), State())
    states[1].digest = bytes(32)
    with witness.watches():
        for state in states:
            state.apply(LogEntry(1, 7, 1, _entry()))
    assert [each.anomaly for each in witness.findings] == ["state-differs"]


def test_what_a_state_does_that_went_astray_is_no_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 595: a transaction ended later there."""
    monkeypatch.setattr(transactions, "finish", lambda *_: None)
    witness, known, states = Witness(), Transaction("x", 7, 0, 1000, 0, number=1), (State(), State())
    author: Any = SimpleNamespace(incarnation=7)
    states[1].digest = bytes(32)
    witness.altered = {(2, 1): _entry(proposed_ms=2)}
    with witness.watches():
        for state, entry in zip(states, (_entry(), _entry(proposed_ms=2)), strict=True):
            state.apply(LogEntry(1, 7, 1, entry))
        for revision, state in enumerate(states, 5):
            transactions.finish(state, known, True, 0, At(revision, author, 0))
    assert witness.findings == []


def _entry(proposed_ms: int = 0) -> bytes:
    return Entry(format=ENTRY_FORMAT, incarnation=7, sequence=1, proposed_ms=proposed_ms).SerializeToString()


def test_rules_that_nothing_tested_are_named() -> None:
    coverage = Coverage()
    assert coverage.untested() == list(RULES)
    needs = RULES["5 read barrier"]
    coverage.note(replace(_fails(plan_of(1)), coverage=Counter(needs)))
    assert "5 read barrier" not in coverage.untested()
    assert "rules never put to the test: 1 ack means durable" in coverage.report()


def test_what_is_never_played_is_named_unless_there_is_a_reason() -> None:
    coverage = Coverage()
    counts = Counter(f"command {each}" for each in COMMANDS if each not in (*COMMANDS_OUT, "heartbeat"))
    coverage.note(replace(_fails(plan_of(1)), coverage=counts))
    report = coverage.report()
    assert "commands neither played nor excused: heartbeat\n" in report
    assert f"commands played: {len(COMMANDS) - len(COMMANDS_OUT) - 1} of {len(COMMANDS)}" in report
    assert all(f"  not {each}: {why}" in report for each, why in COMMANDS_OUT.items())
    assert set(COMMANDS_OUT) <= set(COMMANDS), "an excuse for what is no command"


def test_the_timeline_stands_alone() -> None:
    trace = ["0.1 start a0/1", "2.0 begin kill ['a0']", "2.5 crash a0/1"]
    plan = replace(plan_of(1), faults=((2.0, 1.0, "kill", (0,)),))
    shown = page(Outcome(plan, Judgement([Finding("duplicate", "<k>", "", ())]), trace, "", 3.0))
    assert "crash a0/1" in shown
    assert "&lt;k&gt;" in shown
    assert "://" not in shown
    assert "src=" not in shown


def test_a_client_that_an_error_ends_begins_again_or_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(plan_of(1))
    client, again = Node(world.loop, world.network, "w0"), []
    monkeypatch.setattr(world, "_begin_again", lambda client, life: again.append((client.name, life)))

    async def of_aiokafka() -> None:
        SubscriptionState(world.loop)._assigned_state(TopicPartition("t", 0))

    async def of_ours() -> None:
        raise KeyError("a mistake")

    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def to_its_end() -> None:
        return

    async def live() -> None:
        for number, work in enumerate((of_aiokafka, of_ours, cancelled, to_its_end)):
            task = asyncio.create_task(work())
            await asyncio.wait([task])
            world._ended(client, number, task)
        await asyncio.sleep(1)

    world.loop.run_until_complete(live())
    world.loop.close()
    assert again == [("w0", 0), ("w0", 2)]
    assert world.seen.counts["broke w AssertionError"] == world.seen.counts["broke w CancelledError"] == 1
    (finding,) = world.broken
    assert (finding.anomaly, finding.key, finding.weight) == ("client-broke", "w0", "fail")
    assert "a mistake" in finding.detail


@pytest.mark.parametrize(
    "control",
    EVERY,
    ids=lambda each: str(each.name),
)
def test_what_a_control_breaks_is_there(control: Control) -> None:
    """Product code moves: a control that no longer breaks anything would only be seen when all are run."""
    with control.broken():
        pass
