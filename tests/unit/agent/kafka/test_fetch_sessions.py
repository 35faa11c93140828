"""Fetch sessions over the wire (KIP-227): epochs, what an answer leaves out, and whose a session is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from agent.kafka.fetch.sessions import EPOCH_MAX, LOOK_S, Sessions, after
from agent.net.wire.generated import fetch as f
from coordination.commands import CreateTopic, DeleteTopic, MoveLogStart
from coordination.kafka_codes import Code
from coordination.state.acl_types import ResourceType
from coordination.state.types import Done
from objectstore.batch import records
from tests.equipment.fetch_session import FetchSession, Key, Known
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.guards_rig import guarded
from tests.unit.agent.kafka.test_guards_rows import READ, topic_id
from tests.unit.agent.kafka.test_handlers_produce_fetch import TOPIC, create, produce
from tests.unit.agent.rig import Agent, batch
from tests.unit.coordination.conftest import until

NAMED, BY_ID = 12, 13
SMALL: dict[str, Any] = {"fetch": {"sessions_max": 2, "session_partitions_max": 6}}


async def ask(agent: Agent, session: FetchSession, **more: Any) -> dict[Key, f.PartitionData]:
    """The session's next request, and what its answer tells of."""
    version = BY_ID if session.by_id else NAMED
    return session.take(await agent.call("Fetch", session.request(**more), version))


async def raw(agent: Agent, number: int, epoch: int, version: int = NAMED, **more: Any) -> f.FetchResponse:
    """A request of a session that names nothing else."""
    request = f.FetchRequest(session_id=number, session_epoch=epoch, **more)
    answer: f.FetchResponse = await agent.call("Fetch", request, version)
    return answer


def of(*indexes: int, name: str = "t") -> dict[Key, int]:
    """These partitions from their starts."""
    return {(name, index): 0 for index in indexes}


async def begun(agent: Agent, *indexes: int) -> FetchSession:
    """A session of these partitions of `t`."""
    session = FetchSession(of(*indexes))
    assert (await ask(agent, session)).keys() == session.wanted.keys()
    assert session.id
    return session


async def test_an_answer_has_what_is_new_and_nothing_else(agent: Agent) -> None:
    await create(agent, partitions=3)
    session = await begun(agent, 0, 1, 2)
    assert await ask(agent, session) == {}, "nothing has changed"
    await produce(agent, batch(b"a"), index=1)
    told = await ask(agent, session)
    assert [record.value for record in records(told["t", 1].records)] == [b"a"]
    assert told.keys() == {("t", 1)}
    assert (await ask(agent, session)).keys() == {("t", 1)}, "its offset has not moved: it is read again"
    session.wanted["t", 1] = 1
    assert await ask(agent, session) == {}, "at its end, which is known"
    session.wanted["t", 1] = 0
    assert (await ask(agent, session)).keys() == {("t", 1)}, "back to the start"


async def test_a_long_poll_of_a_session_wakes_for_a_partition_that_it_does_not_name(agent: Agent) -> None:
    await create(agent)
    session = await begun(agent, 0, 1)
    await ask(agent, session)
    for wait in range(2):
        session.wanted["t", 1] = wait
        poll = asyncio.create_task(ask(agent, session, wait_ms=60_000))
        await until(lambda: agent.services.fetch.waiters.count == 1)
        await produce(agent, batch(b"a"), index=1)
        async with asyncio.timeout(5):
            assert (await poll).keys() == {("t", 1)}


@pytest.mark.parametrize("by_id", [False, True])
async def test_partitions_come_and_go_in_a_session(agent: Agent, by_id: bool) -> None:
    await create(agent)
    keys: list[Key] = [(TOPIC, 0), (TOPIC, 1)] if by_id else [("t", 0), ("t", 1)]
    session = FetchSession({keys[0]: 0}, by_id)
    await ask(agent, session)
    session.wanted[keys[1]] = 0
    assert (await ask(agent, session)).keys() == {keys[1]}, "a new one is told of"
    del session.wanted[keys[0]]
    await produce(agent, batch(b"a"))
    assert await ask(agent, session) == {}, "the other one was forgotten"
    session.wanted[keys[0]] = 0
    assert (await ask(agent, session))[keys[0]].high_watermark == 1
    assert agent.services.sessions.partitions == 2


async def test_epochs_are_checked_as_kafka_does(agent: Agent) -> None:
    await create(agent)
    session = await begun(agent, 0)
    number = session.id
    refused = [(number + 1, 1), (0, 1), (number, 2), (number, 7), (number, -5)]
    codes = [(await raw(agent, *each)).error_code for each in refused]
    unknown, wrong = Code.FETCH_SESSION_ID_NOT_FOUND, Code.INVALID_FETCH_SESSION_EPOCH
    assert codes == [unknown, unknown, wrong, wrong, wrong]
    assert (await raw(agent, number, 1, BY_ID)).error_code == Code.FETCH_SESSION_TOPIC_ID_ERROR
    answer = await raw(agent, number, 1)
    assert (answer.error_code, answer.session_id, answer.responses) == (0, number, [])
    assert (await raw(agent, number, 1)).error_code == wrong, "that was the last one"


async def test_a_whole_fetch_ends_the_session_that_it_names(agent: Agent) -> None:
    await create(agent)
    first = await begun(agent, 0)
    number, first.epoch = first.id, 0
    await ask(agent, first)
    assert first.id not in (0, number)
    assert agent.services.sessions.count == 1
    assert (await raw(agent, number, 1)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    last = await raw(agent, first.id, -1)
    assert (last.error_code, last.session_id, agent.services.sessions.count) == (0, 0, 0)


async def test_a_session_without_partitions_is_over(agent: Agent) -> None:
    await create(agent)
    session = await begun(agent, 0)
    session.wanted.clear()
    answer = await agent.call("Fetch", session.request(), NAMED)
    assert (answer.error_code, answer.session_id, answer.responses) == (0, 0, [])
    assert agent.services.sessions.count == agent.services.sessions.partitions == 0


def test_epochs_go_round() -> None:
    assert [after(each) for each in (0, 1, EPOCH_MAX, -1)] == [1, 2, 1, -1]


async def test_of_two_requests_at_once_the_first_is_refused(agent: Agent) -> None:
    await create(agent)
    session = await begun(agent, 0)
    request = session.request(wait_ms=60_000)
    poll = asyncio.create_task(agent.call("Fetch", request, NAMED))
    await until(lambda: agent.services.fetch.waiters.count == 1)
    other = agent.connect()
    second = asyncio.create_task(agent.call("Fetch", replace(request, session_epoch=2), NAMED, other))
    await until(lambda: agent.services.fetch.waiters.count == 2)
    await produce(agent, batch(b"a"))
    async with asyncio.timeout(5):
        answer, later = await poll, await second
    assert (answer.error_code, answer.responses) == (Code.INVALID_FETCH_SESSION_EPOCH, [])
    assert (later.error_code, len(later.responses)) == (0, 1), "the records are not lost with the first"


async def test_a_session_is_its_principal_s(agent: Agent) -> None:
    await create(agent)
    session = await begun(agent, 0)
    stranger = agent.connect()
    stranger.principal = "mallory"
    for epoch in (1, 0, -1):
        request = f.FetchRequest(session_id=session.id, session_epoch=epoch)
        answer = await agent.call("Fetch", request, NAMED, stranger)
        assert answer.error_code == (Code.FETCH_SESSION_ID_NOT_FOUND if epoch == 1 else 0)
    elsewhere = agent.connect()
    answer = await agent.call("Fetch", session.request(), NAMED, elsewhere)
    assert (answer.error_code, answer.session_id) == (0, session.id), "not its connection's"


@pytest.mark.parametrize("by_id", [False, True])
async def test_a_topic_that_is_deleted_and_made_anew_within_a_session(agent: Agent, by_id: bool) -> None:
    await create(agent)
    await produce(agent, batch(b"old"))
    key: Key = (TOPIC, 0) if by_id else ("t", 0)
    session = FetchSession({key: 1}, by_id)
    await ask(agent, session)
    assert await ask(agent, session) == {}
    propose = agent.services.replica.propose
    assert isinstance(await propose(DeleteTopic(name="t")), Done)
    gone = Code.UNKNOWN_TOPIC_ID if by_id else Code.UNKNOWN_TOPIC_OR_PARTITION
    for _ in range(2):
        assert (await ask(agent, session))[key].error_code == gone, "errors are told every time"
    await propose(CreateTopic(name="t", topic_id=b"N" * 16, partitions=1))
    told = (await ask(agent, session))[key]
    assert told.error_code == (gone if by_id else Code.OFFSET_OUT_OF_RANGE)
    if not by_id:
        session.wanted[key] = 0
        assert (await ask(agent, session))[key].error_code == 0, "an error that went away is told"
        await produce(agent, batch(b"new"), index=0)
        told = (await ask(agent, session))[key]
        assert [record.value for record in records(told.records)] == [b"new"]


async def test_a_log_start_that_moves_is_told(agent: Agent) -> None:
    await create(agent)
    await produce(agent, batch(b"a"))
    session = FetchSession({("t", 0): 1, ("t", 1): 0})
    await ask(agent, session)
    handle = agent.services.replica.state.topics["t"].partitions[0].handle
    await agent.services.replica.propose(MoveLogStart(partition=[handle], offset=[1]))
    told = await ask(agent, session)
    assert {key: part.log_start_offset for key, part in told.items()} == {("t", 0): 1}
    assert await ask(agent, session) == {}


async def test_who_got_records_is_served_last(agent: Agent) -> None:
    """max_bytes has room for one partition: each gets its turn."""
    await create(agent, partitions=3)
    for index in range(3):
        for _ in range(3):
            await produce(agent, batch(b"x" * 100), index=index)
    size = len(batch(b"x" * 100))
    session = FetchSession(of(0, 1, 2))
    served: list[int] = []
    for _ in range(9):
        told = await ask(agent, session, bytes_max=size)
        ((key, _),) = [(key, part) for key, part in told.items() if part.records]
        served.append(key[1])
        session.wanted[key] += 1
    assert served == [0, 0, 1, 2, 0, 1, 2, 1, 2], "a whole answer moves nobody, as in Kafka"


async def test_acls_are_asked_for_every_partition_of_a_session() -> None:
    async with guarded() as there:
        for version in (NAMED, BY_ID):
            await there.allow(READ, ResourceType.TOPIC, "seen")
            key: Key = (topic_id(there, "seen"), 0) if version == BY_ID else ("seen", 0)
            hidden: Key = (topic_id(there, "hidden"), 0) if version == BY_ID else ("hidden", 0)
            session = FetchSession({key: 0, hidden: 0}, version == BY_ID)
            codes = [
                {each: part.error_code for each, part in told.items()}
                for told in [session.take(await there.ask("Fetch", session.request(), version)) for _ in "ab"]
            ]
            denied = Code.TOPIC_AUTHORIZATION_FAILED
            assert codes == [{key: 0, hidden: denied}, {hidden: denied}]
            await there.revoke("seen")
            told = session.take(await there.ask("Fetch", session.request(), version))
            assert {part.error_code for part in told.values()} == {denied}
            assert told.keys() == {key, hidden}
            await there.allow(READ, ResourceType.TOPIC, "seen")
            told = session.take(await there.ask("Fetch", session.request(), version))
            assert {each: part.error_code for each, part in told.items()} == {key: 0, hidden: denied}
            await there.revoke("seen")


async def test_sessions_and_their_partitions_are_bounded(start: StartAgent) -> None:
    agent = await start(**SMALL)
    await create(agent, partitions=8)
    sessions = agent.services.sessions
    first, second = await begun(agent, 0, 1), await begun(agent, 2)
    third = FetchSession(of(3, 4, 5))
    assert len(await ask(agent, third)) == 3
    assert not third.id, "there is no room, and it is served all the same"
    assert agent.services.metrics.fetch_sessions_refused._value.get() == 1
    first.wanted |= of(2, 3, 4, 5, 6)
    answer = await agent.call("Fetch", first.request(), NAMED)
    assert answer.error_code == Code.FETCH_SESSION_ID_NOT_FOUND, "it has grown beyond what there is"
    assert (sessions.count, sessions.partitions) == (1, 1)
    assert await ask(agent, second) == {}
    assert not (await raw(agent, 0, 0, topics=FetchSession(of(*range(7))).request().topics)).session_id


async def test_who_makes_room_for_whom(agent: Agent) -> None:
    """As in Kafka's FetchSessionCache: the stale, then a smaller one that is not new any more."""
    await create(agent, partitions=8)
    now = [0.0]
    limits = replace(agent.services.sessions.limits, sessions_max=2, stale_s=100)
    waiters, clock = agent.services.fetch.waiters, agent.services.clock
    sessions = Sessions(limits, waiters, lambda: now[0], clock.random_bits)
    agent.services.sessions = sessions
    small, large = await begun(agent, 0), await begun(agent, 1, 2, 3)
    now[0] = 100.0
    await ask(agent, small)
    await ask(agent, large)
    assert not await whether_begun(agent, 1, 2), "nobody is stale, and nobody is old"
    now[0] = 101.5
    assert not await whether_begun(agent, 0), "it has not more partitions"
    assert await whether_begun(agent, 4, 5)
    assert (await raw(agent, small.id, 2)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    now[0] = 200.2
    assert await whether_begun(agent, 0), "the large one was not heard of for too long"
    assert (await raw(agent, large.id, 2)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND


async def whether_begun(agent: Agent, *indexes: int) -> bool:
    session = FetchSession(of(*indexes))
    await ask(agent, session)
    return session.id != 0


async def test_none_are_kept_where_none_are_wanted(start: StartAgent) -> None:
    agent = await start(fetch={"sessions_max": 0})
    await create(agent)
    assert not await whether_begun(agent, 0)


async def test_a_touch_that_was_missed_is_found(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch is not trusted (rule 6): all rows are compared with the state now and then."""
    await create(agent)
    session = await begun(agent, 0, 1)
    await ask(agent, session)
    monkeypatch.setattr(agent.services.fetch.waiters, "note", lambda handles: None)
    await produce(agent, batch(b"a"))
    kept = agent.services.sessions.get(session.id, agent.client.principal)
    assert kept is not None
    kept.looked -= LOOK_S
    assert (await ask(agent, session)).keys() == {("t", 0)}


async def test_a_state_that_is_replaced_is_looked_through(agent: Agent) -> None:
    await create(agent)
    session = await begun(agent, 0, 1)
    await ask(agent, session)
    agent.services.sessions.reloaded()
    kept = agent.services.sessions.get(session.id, agent.client.principal)
    assert kept is not None
    assert not kept.quiet
    assert await ask(agent, session) == {}, "and has nothing new"
    await produce(agent, batch(b"a"))
    assert (await ask(agent, session)).keys() == {("t", 0)}


async def test_nothing_is_watched_for_sessions_that_are_over(agent: Agent) -> None:
    await create(agent)
    session = await begun(agent, 0, 1)
    assert agent.services.fetch.waiters._standing
    await raw(agent, session.id, -1)
    assert not agent.services.fetch.waiters._standing


async def test_an_agent_that_leaves_says_so_of_every_partition(agent: Agent) -> None:
    await create(agent)
    session = await begun(agent, 0, 1)
    await ask(agent, session)
    agent.services.standing.away = lambda: True  # type: ignore[method-assign]  # others serve
    told = await ask(agent, session)
    assert {key: part.error_code for key, part in told.items()} == dict.fromkeys(
        session.wanted, Code.NOT_LEADER_OR_FOLLOWER
    )
    assert session.known["t", 0] == Known(Code.NOT_LEADER_OR_FOLLOWER)
    assert not await whether_begun(agent, 0), "no session begins there any more"
