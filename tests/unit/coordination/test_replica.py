"""The replica over a log in memory, with faults: exactly once, definite or unknown, no lie (rules 2-6)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from coordination.chain import AttemptFailed, KeyState
from coordination.commands import Claim, CreateTopic, Heartbeat, RegisterAgent, SetFeatureLevel, command
from coordination.log import Chain, Entries, EntryName, LogEntry, LogRegressed, Unavailable
from coordination.memory_log import MemoryChain, MemoryLog
from coordination.replica import (
    OutcomeUnknown,
    RegistrationRefused,
    Replica,
    StaleIncarnation,
    Superseded,
)
from coordination.state import ChunkCommitted, Done, Refused
from coordination.state.data import FEATURE_LEVEL_MAX
from tests.unit.coordination.conftest import Agents, registration, until
from tests.unit.coordination.kit import chunk


def topic(name: str, partitions: int = 1) -> CreateTopic:
    return CreateTopic(name=name, topic_id=name.encode().ljust(16, b".")[:16], partitions=partitions)


async def test_agents_agree(agents: Agents) -> None:
    a, b = await agents.start("a"), await agents.start("b")
    assert (a.node_id, b.node_id) == (1, 2)
    assert isinstance(await a.propose(topic("t")), Done)
    assert isinstance(await b.propose(topic("t")), Refused), "the order of the log decides"
    await a.barrier()
    await b.barrier()
    assert a.state.hash_at(b.state.revision) == b.state.hash
    assert [broker.name for broker in b.state.brokers.values()] == ["a", "b"]
    assert a.status()["ready"] is True


async def test_one_append_carries_all_that_is_ready_in_order(agents: Agents) -> None:
    a = await agents.start("a", heartbeat_s=60)
    await a.propose(topic("t"))
    before = a.state.incarnations[a.incarnation].sequence
    futures = [a.submit([command(chunk(n, (0, 1)))]) for n in range(1, 101)]
    results = [(await future)[0] for future in futures]
    assert [r.base_offsets[0] for r in results if isinstance(r, ChunkCommitted)] == list(range(100))
    assert a.state.incarnations[a.incarnation].sequence == before + 1


async def test_what_is_ready_is_split_at_the_size_of_an_entry(agents: Agents) -> None:
    a = await agents.start("a", heartbeat_s=60)
    before = a.state.incarnations[a.incarnation].sequence
    names = [letter * 400_000 for letter in "abcde"]
    futures = [a.submit([command(Claim(name=name))]) for name in names]
    results = [(await future)[0] for future in futures]
    assert all(isinstance(result, Refused) for result in results), "names of that length are refused"
    assert a.state.incarnations[a.incarnation].sequence == before + 3


async def test_commands_above_an_entry_travel_in_parts(agents: Agents) -> None:
    a = await agents.start("a")
    size = agents.logs["a"].entry_bytes_max
    many = [command(topic(f"t{n:05}" + "x" * 200, 1)) for n in range(2 * size // 250)]
    seen: set[int] = set()
    a.add_listener(lambda applied: seen.add(len(a.state.topics)))
    results = await a.submit(many)
    assert len(results) == len(many)
    assert all(isinstance(result, Done) for result in results)
    assert seen <= {0, len(many)}, "never visible in part"


async def test_a_lost_answer_is_no_second_append(agents: Agents) -> None:
    a = await agents.start("a")
    await a.propose(topic("t"))
    agents.logs["a"].faults.lose_answers = 3
    assert await a.propose(chunk(1, (0, 5))) == ChunkCommitted([0], [0])
    assert a.state.partitions[0].high_watermark == 5


async def test_landed_and_fenced_before_the_answer_still_succeeds(agents: Agents) -> None:
    """The append took effect, its answer was lost, then the lease went: success, told by the log."""
    a = await agents.start("a", heartbeat_s=60)
    await a.propose(topic("t"))
    old = a.incarnation
    agents.logs["a"].faults.lose_answers = 1
    future = a.submit([command(chunk(1, (0, 5)))], incarnation=old)
    await until(lambda: agents.logs["a"].faults.lose_answers == 0)
    agents.server.expire(old)
    assert await future == [ChunkCommitted([0], [0])]
    await until(lambda: a.incarnation not in (0, old))
    assert not a.state.is_live(old)


async def test_never_landed_and_fenced_is_a_definite_failure(agents: Agents) -> None:
    a = await agents.start("a", heartbeat_s=60)
    await a.propose(topic("t"))
    old = a.incarnation
    agents.logs["a"].faults.lose_requests = 1
    future = a.submit([command(chunk(1, (0, 5)))], incarnation=old)
    await until(lambda: agents.logs["a"].faults.lose_requests == 0)
    agents.server.expire(old)
    with pytest.raises(Unavailable):
        await future
    assert a.state.partitions[0].high_watermark == 0
    with pytest.raises(StaleIncarnation):
        await a.submit([command(chunk(2, (0, 5)))], incarnation=old)
    assert isinstance(await a.propose(chunk(1, (0, 5))), ChunkCommitted)


async def test_an_incarnation_that_never_counted_leaves_nothing_behind(agents: Agents) -> None:
    """Nobody fences what the state never had: the answer to its first append is lost, then its lease.

    An entry that stays parked for it kept the agent from saying what it has applied, and the log from
    being trimmed.
    """
    a, b = agents.make("a"), await agents.start("b")
    lost = lose_first_append(agents.logs["a"])
    await a.start(registration("a"))
    assert lost, "it has happened"
    assert a.status()["parked_entries"] == 0
    await b.propose(topic("t"))
    revision = b.state.revision
    await until(lambda: b.state.incarnations[a.incarnation].applied_revision >= revision)


def lose_first_append(log: MemoryLog) -> list[int]:
    """The first append is not answered and never lands, and the lease ends; its incarnation when it did."""
    register, lost = log.register, []

    async def register_and_lose(incarnation: int, info: bytes, ttl_s: float) -> MemoryChain:
        chain = await register(incarnation, info, ttl_s)
        if not lost:
            lost.append(incarnation)
            attempt = chain._attempt

            async def unanswered(sequence: int, payload: bytes, expected: int) -> int | KeyState | None:
                chain._attempt = attempt
                await log.fence(incarnation)
                raise AttemptFailed("no answer", ambiguous=True)

            chain._attempt = unanswered
        return chain

    log.register = register_and_lose
    return lost


async def test_an_agent_whose_entry_is_not_applied_yet_says_what_it_has_applied(agents: Agents) -> None:
    """However long its own entry is under way to itself: the log would not be trimmed for so long."""
    a = await agents.start("a", heartbeat_s=0.05, gap_s=60, silent_s=60)
    agents.server.silence_watches()
    sent = a.submit([command(topic("t"))])
    await until(lambda: len(appended(agents, a)) >= 4)
    assert not sent.done()
    agents.server.cancel_watches()
    await sent


def appended(agents: Agents, a: Replica) -> list[LogEntry]:
    """What an agent has put into the log."""
    entries, _ = agents.server.read(0, 1 << 20)
    return [entry for entry in entries if entry.incarnation == a.incarnation]


async def test_an_outcome_that_stays_unknown_is_said_to_be_unknown(agents: Agents) -> None:
    a = await agents.start("a", outcome_wait_s=0.3, queue_wait_s=60, heartbeat_s=60)
    agents.logs["a"].faults.partitioned = True
    with pytest.raises(OutcomeUnknown):
        await a.propose(topic("t"))
    agents.logs["a"].faults.partitioned = False
    await until(lambda: "t" in a.state.topics or a.incarnation == 0)


async def test_with_the_log_gone_proposals_fail_and_then_work_again(agents: Agents) -> None:
    """Rule 10: the agent outlives its dependencies; what never left the queue fails for sure."""
    a = await agents.start("a", heartbeat_s=60, members_s=60)
    agents.logs["a"].faults.refused = True
    stuck = a.submit([command(topic("sent"))])
    await until(lambda: a.status()["parked_entries"])
    queued = a.submit([command(topic("queued"))])
    with pytest.raises(Unavailable):
        await queued
    with pytest.raises(Unavailable):
        await a.barrier()
    agents.logs["a"].faults.refused = False
    await stuck
    assert isinstance(await a.propose(topic("t")), Done)
    assert "queued" not in a.state.topics


async def test_the_queue_is_bounded(agents: Agents) -> None:
    a = await agents.start("a", queue_proposals_max=10, queue_wait_s=60)
    futures = [a.submit([command(Heartbeat())]) for _ in range(11)]
    with pytest.raises(Unavailable, match="10 proposals"):
        await futures[-1]
    await asyncio.gather(*futures[:-1])


async def test_a_dead_agent_is_fenced_by_the_others(agents: Agents) -> None:
    a, b = await agents.start("a"), await agents.start("b")
    await b.propose(Claim(name="job"))
    old = b.incarnation
    await crash(b)
    agents.server.expire(old)
    await until(lambda: not a.state.is_live(old))
    assert list(a.state.brokers) == [1]
    assert not a.state.claims


async def test_a_silent_watch_does_not_hide_an_entry(agents: Agents) -> None:
    """Rule 6: the adapter here would wait a minute; the replica reads the gap by itself."""
    a = await agents.start("a", silent_s=60)
    agents.server.silence_watches()
    assert isinstance(await a.propose(topic("t")), Done)
    agents.server.silence_watches()
    await a.barrier()


async def test_a_log_that_is_slower_than_the_gap_is_followed_all_the_same(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent far behind on a busy machine: its first entries take longer than it waits for one overdue."""
    a = await agents.start("a")
    assert isinstance(await a.propose(topic("t")), Done)
    b = agents.make("b", gap_s=0.05)
    promptly = agents.logs["b"].follow

    async def slowly(after: int, last: EntryName | None = None) -> AsyncGenerator[Entries, None]:
        await asyncio.sleep(0.5)
        async with aclosing(promptly(after, last)) as batches:
            async for batch in batches:
                yield batch

    monkeypatch.setattr(agents.logs["b"], "follow", slowly)
    await b.start(registration("b"))
    assert "t" in b.state.topics


async def test_a_cancelled_watch_is_opened_again(agents: Agents) -> None:
    a, b = await agents.start("a"), await agents.start("b")
    for number in range(5):
        agents.server.cancel_watches()
        await a.propose(topic(f"t{number}"))
    await b.barrier()
    assert len(b.state.topics) == 5


async def test_a_log_from_an_older_backup_stops_the_agent(agents: Agents) -> None:
    a = await agents.start("a", heartbeat_s=0.05)
    backup = agents.server.backup()
    for number in range(5):
        await a.propose(topic(f"t{number}"))
    agents.server.restore(backup)
    await until(a.failed.done)
    assert isinstance(a.failed.exception(), LogRegressed)
    assert not a.ready


async def test_listeners_hear_which_partitions_an_entry_touched(agents: Agents) -> None:
    a = await agents.start("a")
    await a.propose(topic("t", 3))
    heard: list[list[int]] = []
    remove = a.add_listener(lambda applied: heard.append(sorted(applied.touched)))
    await a.propose(chunk(1, (1, 1)))
    await a.propose(chunk(2, (0, 1), (2, 1)))
    remove()
    await a.propose(chunk(3, (0, 1)))
    assert [each for each in heard if each] == [[1], [0, 2]]


async def test_a_barrier_sees_what_another_agent_wrote(agents: Agents) -> None:
    a, b = await agents.start("a"), await agents.start("b")
    agents.logs["b"].faults.delivery_delay_s = 0.1
    for number in range(3):
        await a.propose(topic(f"t{number}"))
        await b.barrier()
        assert f"t{number}" in b.state.topics


async def test_an_idle_agent_says_what_it_applied(agents: Agents) -> None:
    a, b = await agents.start("a", heartbeat_s=60), await agents.start("b", heartbeat_s=0.05)
    await a.propose(topic("t"))
    revision = a.state.revision
    await until(lambda: a.state.incarnations[b.incarnation].applied_revision >= revision)


async def test_a_second_process_of_one_name_takes_over(agents: Agents) -> None:
    first = await agents.start("same")
    second = await agents.start("same")
    assert second.node_id == first.node_id
    await until(first.failed.done)
    assert isinstance(first.failed.exception(), Superseded)
    assert isinstance(await second.propose(topic("t")), Done)


async def test_losing_the_lease_again_while_registering_anew_is_no_second_process(agents: Agents) -> None:
    """The older incarnation still counts in the state, as nobody fenced it: it is this process's own."""
    a = await agents.start("a", members_s=60)
    first, log = a.incarnation, agents.logs["a"]
    register, lost = log.register, []

    async def register_and_lose(incarnation: int, info: bytes, ttl_s: float) -> Chain:
        chain = await register(incarnation, info, ttl_s)
        if not lost:
            lost.append(incarnation)
            await log.fence(incarnation)
        return chain

    log.register = register_and_lose
    await log.fence(first)
    await until(lambda: a.failed.done() or a.incarnation not in (0, first))
    assert not a.failed.done()
    assert lost, "the second loss happened"
    assert isinstance(await a.propose(topic("t")), Done)


async def test_an_agent_the_cluster_does_not_take(agents: Agents) -> None:
    a = agents.make("a")
    with pytest.raises(RegistrationRefused, match="feature levels"):
        await a.start(registration("a", level=2))


async def test_a_level_this_code_does_not_know_stops_every_such_agent(agents: Agents) -> None:
    await (await agents.start("first")).stop()
    a = agents.make("a")
    newer = registration("a")
    newer.feature_max = FEATURE_LEVEL_MAX + 1
    await a.start(newer)
    a.submit([command(SetFeatureLevel(level=FEATURE_LEVEL_MAX + 1))])
    await until(a.failed.done)
    assert "run a newer version" in str(a.failed.exception())


async def test_a_cluster_begins_at_the_newest_level(
    agents: Agents,
) -> None:
    """By an entry of the log: whoever reads it knows, and an older version that comes later is not taken."""
    newest = RegisterAgent(name="a", node_id=-1, feature_min=1, feature_max=FEATURE_LEVEL_MAX)
    a = agents.make("a")
    await a.start(newest)
    assert a.state.feature_level == FEATURE_LEVEL_MAX
    assert a.state.incarnations[a.incarnation].sequence == 1, "in one entry with the registration"
    with pytest.raises(RegistrationRefused, match="feature levels 1 to 1"):
        await agents.start("older")


async def test_the_level_of_a_cluster_that_is_there_does_not_rise_by_itself(agents: Agents) -> None:
    await (await agents.start("older")).stop()
    a = agents.make("a")
    await a.start(RegisterAgent(name="a", node_id=-1, feature_min=1, feature_max=FEATURE_LEVEL_MAX))
    assert a.state.feature_level == 1


async def test_a_graceful_stop_leaves_the_cluster(agents: Agents) -> None:
    a, b = await agents.start("a"), await agents.start("b")
    await b.leave()
    await a.barrier()
    assert list(a.state.brokers) == [1]
    assert a.state.is_live(b.incarnation)
    await b.stop()
    await a.barrier()
    assert len(agents.server.members()) == 1
    assert [one.live for one in a.state.incarnations.values()] == [True, False]


async def test_who_leaves_hears_when_the_others_know(agents: Agents) -> None:
    a, b = await agents.start("a"), await agents.start("b")
    async with a.applying:  # it is slow to hear of it
        await b.leave()
        assert not await b.known_to_others(0.05), "a has not applied it"
        hearing = asyncio.ensure_future(b.known_to_others(60))
        await asyncio.sleep(0)
        assert not hearing.done()
    await a.propose(Heartbeat())
    assert await hearing
    await a.stop()
    assert await b.known_to_others(60), "nobody is left who has to know"


async def test_starting_waits_for_the_log(agents: Agents) -> None:
    a = agents.make("a")
    agents.logs["a"].faults.refused = True
    starting = asyncio.ensure_future(a.start(registration("a")))
    await asyncio.sleep(0.1)
    assert not starting.done()
    agents.logs["a"].faults.refused = False
    await starting
    assert a.ready


async def test_waiting_to_be_started_is_no_pause(agents: Agents) -> None:
    """An agent waits for its store and its log while they are away, and then begins with no such word."""
    a, woken = agents.make("a"), list[str]()
    a.on_wake.append(lambda: woken.append("woken"))
    a._last_tick -= 3600
    await a.start(registration("a"))
    assert a.check_awake()
    assert a.ready
    assert woken == []


async def test_a_pause_longer_than_the_lease_is_noticed_before_anything_else(agents: Agents) -> None:
    a = await agents.start("a", ttl_s=0.2)
    woken: list[bool] = []
    a.on_wake.append(lambda: woken.append(a.ready))
    assert a.check_awake()
    time.sleep(0.3)  # noqa: ASYNC251 — what SIGSTOP does to the loop
    assert not a.check_awake()
    assert woken == [False]
    assert a.check_awake()
    await until(lambda: a.ready)


class Panic(BaseException):
    """What native code raises: no Exception."""


@pytest.mark.parametrize("error", [ZeroDivisionError(), Panic()], ids=repr)
async def test_a_defect_stops_the_agent_instead_of_leaving_it_deaf(
    agents: Agents, error: BaseException
) -> None:
    a = await agents.start("a")

    def broken(_: object) -> None:
        raise error

    a.add_listener(broken)
    a.submit([command(Heartbeat())])
    await until(a.failed.done)
    assert type(error).__name__ in repr(a.failed.exception())
    assert not a.ready


async def test_long_batches_are_applied_in_slices(agents: Agents) -> None:
    """Between two slices the loop runs other work: nothing is starved by a long catch-up."""
    a = await agents.start("a", heartbeat_s=60)
    await a.propose(topic("t"))
    for number in range(1, 200):
        await a.propose(chunk(number, (0, 1)))
    b = agents.make("b", apply_slice_s=0.0)
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    turning = asyncio.ensure_future(turn())
    await b.start(registration("b"))
    turning.cancel()
    assert turns > 200
    assert b.state.partitions[0].high_watermark == 199


async def crash(replica: Replica) -> None:
    """Drop an agent's tasks without any cleanup in the log."""
    for task in replica._tasks:
        task.cancel()
    await asyncio.gather(*replica._tasks, return_exceptions=True)
    replica._tasks = []
    replica._proposals.incarnation = 0
    replica._author._chain = None
