"""A poll that found nothing, asked again, waits without a task, and nobody can tell by what is answered.

Over real sockets: the server, the dispatcher and the fetch path of an agent on a log and a store in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent.kafka import repeats
from agent.kafka.fetch.driver import FetchRequest
from agent.kafka.fetch.sessions import LOOK_S, after
from agent.net.connection import Limits
from agent.net.listening import Listener
from agent.net.server import Server
from agent.net.wire.api import BY_NAME
from agent.net.wire.frame import encode_request_header, frame_request, parse_response_header
from agent.net.wire.generated import alter_client_quotas as acq
from agent.net.wire.generated import fetch as f
from agent.net.wire.generated import metadata as m
from coordination.commands import DeleteTopic, MoveLogStart
from coordination.kafka_codes import Code
from coordination.state.acl_types import ResourceType
from objectstore.batch import records
from tests.equipment.fetch_session import FetchSession
from tests.unit.agent.kafka.guards_rig import READ, guarded
from tests.unit.agent.kafka.test_fetch_sessions import of
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, produce
from tests.unit.agent.rig import Agent, batch
from tests.unit.coordination.conftest import until

VERSION = 12
LONG_MS, SHORT_MS = 600_000, 5


class Door:
    """An agent's sockets, and how many of its polls wait without a task."""

    def __init__(self, agent: Agent, server: Server, port: int) -> None:
        self.agent, self.server, self.port = agent, server, port
        self.waited = 0
        """How many polls have waited without a task so far."""
        self.wires: list[Wire] = []
        again = agent.dispatcher.repeats.again

        def counted(*given: Any) -> Any:
            found = again(*given)
            self.waited += found is not None
            return found

        agent.dispatcher.repeats.again = counted  # type: ignore[method-assign]  # watched

    @property
    def parked(self) -> int:
        return len(self.agent.dispatcher.repeats.deadlines)

    @property
    def tasks(self) -> int:
        return len(self.server._shared.tasks)

    async def connect(self) -> Wire:
        self.wires.append(Wire(*await asyncio.open_connection("127.0.0.1", self.port)))
        return self.wires[-1]

    async def forgets(self, wire: Wire) -> None:
        """The connection is closed, and nothing of it is left."""
        wire.writer.close()
        waiters = self.agent.services.fetch.waiters
        await until(lambda: not self.server.connections and not waiters.count and not self.tasks)
        assert (self.parked, waiters._by_handle, waiters._parked) == (0, {}, {})
        assert self.server.request_bytes == 0


class Wire:
    """One connection; each request has another correlation id."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.sent = self.got = 0

    def send(self, request: Any, name: str = "Fetch", version: int = VERSION) -> None:
        self.sent += 1
        api = BY_NAME[name]
        header = encode_request_header(api, version, self.sent, "idler")
        self.writer.write(frame_request(header, api.codec().encode_request(request, version)))

    async def take(self, name: str = "Fetch", version: int = VERSION) -> Any:
        """The next answer, in its place."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        payload = await self.reader.readexactly(size)
        self.got += 1
        number, start = parse_response_header(BY_NAME[name], version, payload)
        assert number == self.got
        return BY_NAME[name].codec().decode_response(memoryview(payload)[start:], version)

    async def ask(self, request: Any, name: str = "Fetch", version: int = VERSION) -> Any:
        self.send(request, name, version)
        return await self.take(name, version)


@asynccontextmanager
async def door(agent: Agent) -> AsyncIterator[Door]:
    server = Server(agent.dispatcher, Limits())
    (port,) = await server.start([Listener("PLAINTEXT", "127.0.0.1", 0)])
    opened = Door(agent, server, port)
    try:
        yield opened
    finally:
        for wire in opened.wires:
            wire.writer.close()
        await server.drain(5)


def poll(*offsets: int, wait_ms: int = SHORT_MS, **more: Any) -> f.FetchRequest:
    """Of the partitions of `t`, from these offsets, without a session."""
    wanted = [f.FetchPartition(index, -1, at, -1, -1, 1 << 20) for index, at in enumerate(offsets)]
    asked = {"max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, **more}
    return f.FetchRequest(topics=[f.FetchTopic("t", partitions=wanted)], **asked)


def values(answer: f.FetchResponse) -> list[bytes | None]:
    return [
        record.value
        for topic in answer.responses
        for part in topic.partitions
        for record in (records(part.records) if part.records else ())
    ]


def code(answer: f.FetchResponse) -> int:
    return answer.responses[0].partitions[0].error_code


async def parked(opened: Door, wire: Wire, request: f.FetchRequest) -> None:
    """The request waits, without a task."""
    wire.send(request)
    await until(lambda: opened.parked == 1)
    assert (opened.tasks, opened.agent.services.fetch.waiters.count) == (0, 1)
    (told,) = opened.agent.services.metrics.fetch_parked.collect()
    assert [sample.value for sample in told.samples] == [1], "it is counted among those that wait"


async def idle(wire: Wire, *offsets: int, **more: Any) -> f.FetchRequest:
    """A poll that found nothing once."""
    assert values(await wire.ask(poll(*offsets, **more))) == []
    return poll(*offsets, wait_ms=more.get("wait_ms", SHORT_MS))


async def test_it_waits_without_a_task_and_gets_the_same_answer(agent: Agent) -> None:
    await create(agent, partitions=2)
    await produce(agent, batch(b"a", b"b"))
    async with door(agent) as opened:
        wire = await opened.connect()
        first = await wire.ask(poll(2, 0))
        assert await wire.ask(poll(2, 0)) == first
        assert opened.waited == 1
        assert [part.high_watermark for part in first.responses[0].partitions] == [2, 0]
        assert (opened.parked, agent.services.fetch.waiters.count) == (0, 0)
        assert opened.server._shared.metrics.request("Fetch").count._value.get() == 2
        await opened.forgets(wire)


@pytest.mark.parametrize("version", [4, 6, 11, 12, 15, 18])
async def test_in_every_form_of_the_request(agent: Agent, version: int) -> None:
    await create(agent)
    by_id = agent.services.replica.state.topics["t"].topic_id if version >= 13 else bytes(16)
    async with door(agent) as opened:
        wire, request = await opened.connect(), poll(0)
        request.topics[0].topic_id = by_id
        first = await wire.ask(request, version=version)
        assert await wire.ask(request, version=version) == first
        assert opened.waited == 1
        session = FetchSession({(by_id if version >= 13 else "t", 0): 0}, by_id=version >= 13)
        for turn in range(4 if version >= 7 else 0):
            session.take(await wire.ask(session.request(wait_ms=SHORT_MS), version=version))
            assert (session.epoch, opened.waited) == (turn + 1, 1 + max(0, turn - 1))


def wire_client(opened: Door, number: int = 0) -> Any:
    """The dispatcher's own state of a connection, the first one."""
    protocol = list(opened.server._shared.live.values())[number]
    return protocol._info.session  # type: ignore[attr-defined]  # private


def over(opened: Door) -> None:
    """The time of what waits is over."""
    wire_client(opened).repeat.due()


def stretch(opened: Door) -> None:
    """What the only connection asks again waits for long."""
    known = wire_client(opened).repeat
    known._asked = known._asked._replace(wait_s=LONG_MS / 1000)


async def long(opened: Door, wire: Wire, *offsets: int, **more: Any) -> None:
    """A poll that found nothing is asked again and waits for long."""
    await idle(wire, *offsets, **more)
    stretch(opened)
    await parked(opened, wire, poll(*offsets, **more))


async def long_in_session(opened: Door, wire: Wire, *indexes: int) -> FetchSession:
    """The same of a session."""
    session = FetchSession(of(*indexes))
    for _ in range(2):
        session.take(await wire.ask(session.request(wait_ms=SHORT_MS)))
    stretch(opened)
    await parked(opened, wire, session.request(wait_ms=SHORT_MS))
    return session


class Standing:
    """The loop, by a clock that stands still."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now, self.call_soon = loop.time(), loop.call_soon

    def time(self) -> float:
        return self.now


@pytest.mark.parametrize("in_session", [False, True])
async def test_its_time_is_what_it_asked_for(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, in_session: bool
) -> None:
    """Not less, or clients would ask all the time; nor more, or they would give up."""
    await create(agent)
    known = agent.dispatcher.repeats
    clock, add, given = Standing(known.loop), known.deadlines.add, list[float]()

    def noted(one: Any, at: float) -> int:
        given.append(at)
        return add(one, clock.now)

    monkeypatch.setattr(known, "loop", clock)
    monkeypatch.setattr(known.deadlines, "add", noted)
    async with door(agent) as opened:
        wire, session = await opened.connect(), FetchSession(of(0))
        for wait_ms in (SHORT_MS, 8):  # another time is another request: it is dispatched once
            for _ in range(3):
                request = session.request(wait_ms=wait_ms) if in_session else poll(0, wait_ms=wait_ms)
                answer = await wire.ask(request)
                assert values(answer) == []
                if in_session:
                    session.take(answer)
    first = [clock.now + SHORT_MS / 1000] * (1 if in_session else 2)  # a session's first makes it
    assert given == [*first, *[clock.now + 8 / 1000] * 2]


async def test_it_wakes_for_records(agent: Agent) -> None:
    await create(agent, partitions=2)
    async with door(agent) as opened:
        wire = await opened.connect()
        await long(opened, wire, 0, 0)
        await produce(agent, batch(b"a"), index=1)
        assert values(await wire.take()) == [b"a"]
        await opened.forgets(wire)


async def test_a_session_wakes_for_records_and_goes_on(agent: Agent) -> None:
    await create(agent, partitions=2)
    async with door(agent) as opened:
        wire = await opened.connect()
        session = await long_in_session(opened, wire, 0, 1)
        await produce(agent, batch(b"a"), index=1)
        answer = await wire.take()
        assert values(answer) == [b"a"]
        assert session.take(answer).keys() == {("t", 1)}
        session.wanted["t", 1] = 1
        for _ in range(3):
            assert session.take(await wire.ask(session.request(wait_ms=SHORT_MS))) == {}
        assert session.epoch == 6, "no answer was an error"
        await opened.forgets(wire)


async def test_too_little_leaves_it_the_rest_of_its_time(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(agent)
    asked: list[FetchRequest] = []
    fetch = agent.services.fetch.fetch

    async def told(request: FetchRequest) -> Any:
        asked.append(request)
        return await fetch(request)

    async with door(agent) as opened:
        wire = await opened.connect()
        await long(opened, wire, 0, min_bytes=1 << 19)
        monkeypatch.setattr(agent.services.fetch, "fetch", told)
        await asyncio.sleep(2 * SHORT_MS / 1000)
        await produce(agent, batch(b"a"))
        assert values(await wire.take()) == [b"a"], "its own time, which is short, is over"
        assert asked[0].waited_s >= SHORT_MS / 1000 == asked[0].wait_s


async def test_what_comes_behind_it_waits_for_it(agent: Agent) -> None:
    await create(agent)
    async with door(agent) as opened:
        wire = await opened.connect()
        await long(opened, wire, 0)
        wire.send(m.MetadataRequest(topics=[]), "Metadata", 9)
        await until(lambda: wire_client(opened).turns.waiting == 1)
        await produce(agent, batch(b"a"))
        assert values(await wire.take()) == [b"a"]
        assert (await wire.take("Metadata", 9)).brokers
        for _ in range(2):  # answered by its own end, the turn goes on too
            wire.send(poll(1))
            wire.send(m.MetadataRequest(topics=[]), "Metadata", 9)
            assert values(await wire.take()) == []
            await wire.take("Metadata", 9)
        await opened.forgets(wire)


@pytest.mark.parametrize("in_session", [False, True])
async def test_a_connection_that_ends_leaves_nothing(agent: Agent, in_session: bool) -> None:
    await create(agent)
    async with door(agent) as opened:
        wire = await opened.connect()
        await (long_in_session if in_session else long)(opened, wire, 0)
        await opened.forgets(wire)


async def test_what_is_changed_before_its_end_is_told(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them touches another part of what an answer depends on; nobody wakes the poll."""
    await create(agent)
    await produce(agent, batch(b"a", b"b"))
    handle = agent.services.replica.state.topics["t"].partitions[0].handle
    monkeypatch.setattr(agent.services.fetch.waiters, "touched", lambda handles: None)
    async with door(agent) as opened:
        wire = await opened.connect()
        await long(opened, wire, 2)
        await agent.services.replica.propose(MoveLogStart(partition=[handle], offset=[1]))
        over(opened)
        assert (await wire.take()).responses[0].partitions[0].log_start_offset == 1
        await long(opened, wire, 2)
        await produce(agent, batch(b"c"))
        over(opened)
        assert values(await wire.take()) == [b"c"]
        await long(opened, wire, 3)
        await agent.services.replica.propose(DeleteTopic(name="t"))
        over(opened)
        assert code(await wire.take()) == Code.UNKNOWN_TOPIC_OR_PARTITION


async def test_quotas_are_held_against_every_poll(agent: Agent) -> None:
    await create(agent)
    async with door(agent) as opened:
        wire, other = await opened.connect(), await opened.connect()
        await long(opened, wire, 0)
        limited = acq.EntryData(
            [acq.EntityData("client-id", "idler")], [acq.OpData("consumer_byte_rate", 1e9)]
        )
        told = await other.ask(acq.AlterClientQuotasRequest([limited]), "AlterClientQuotas", 1)
        assert told.entries[0].error_code == 0
        over(opened)
        assert code(await wire.take()) == 0
        for _ in range(2):
            assert code(await wire.ask(poll(0))) == 0
        assert opened.waited == 1, "each was counted since"


async def test_a_right_that_is_revoked_meanwhile_is_asked_for_again() -> None:
    async with guarded() as rig, door(rig.agent) as opened:
        await rig.allow(READ, ResourceType.TOPIC, "seen", who="User:ANONYMOUS")
        wire, request = await opened.connect(), poll(0)
        request.topics[0].topic = "seen"
        assert code(await wire.ask(request)) == 0
        stretch(opened)
        await parked(opened, wire, request)
        assert await rig.revoke("seen") == 1
        over(opened)
        assert code(await wire.take()) == Code.TOPIC_AUTHORIZATION_FAILED
        assert code(await wire.ask(request)) == Code.TOPIC_AUTHORIZATION_FAILED


async def test_a_session_s_next_request_by_another_connection_ends_it(agent: Agent) -> None:
    await create(agent)
    async with door(agent) as opened:
        wire = await opened.connect()
        session = await long_in_session(opened, wire, 0)
        other = await opened.connect()
        request = f.FetchRequest(max_wait_ms=0, session_id=session.id, session_epoch=after(session.epoch))
        assert (await other.ask(request)).error_code == 0
        over(opened)
        assert (await wire.take()).error_code == Code.INVALID_FETCH_SESSION_EPOCH


async def test_a_session_that_is_evicted_is_not_gone_on_with(agent: Agent) -> None:
    await create(agent)
    async with door(agent) as opened:
        wire, session = await opened.connect(), FetchSession(of(0))
        for _ in range(2):
            session.take(await wire.ask(session.request(wait_ms=SHORT_MS)))
        sessions = agent.services.sessions
        kept = sessions.get(session.id, "ANONYMOUS")
        assert kept is not None
        sessions.remove(kept)
        answer = await wire.ask(session.request(wait_ms=SHORT_MS))
        assert answer.error_code == Code.FETCH_SESSION_ID_NOT_FOUND


async def test_a_touch_that_was_missed_is_found_by_the_look(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(agent)
    monkeypatch.setattr(agent.services.fetch.waiters, "note", lambda handles: None)
    monkeypatch.setattr(agent.services.fetch.waiters, "touched", lambda handles: None)
    async with door(agent) as opened:
        wire, session = await opened.connect(), FetchSession(of(0))
        for _ in range(3):
            session.take(await wire.ask(session.request(wait_ms=SHORT_MS)))
        await produce(agent, batch(b"a"))
        kept = agent.services.sessions.get(session.id, "ANONYMOUS")
        assert kept is not None
        kept.looked -= LOOK_S
        assert values(await wire.ask(session.request(wait_ms=SHORT_MS))) == [b"a"]


async def test_an_agent_that_leaves_answers_at_once(agent: Agent) -> None:
    await create(agent)
    async with door(agent) as opened:
        wire = await opened.connect()
        await long(opened, wire, 0)
        agent.services.fetch.leave()
        assert code(await wire.take()) == Code.NONE
        assert code(await wire.ask(poll(0))) == Code.NONE
        assert opened.waited == 1, "none waits any more"


async def test_what_is_remembered_is_bounded(agent: Agent) -> None:
    await create(agent, partitions=repeats.ROWS_MAX + 1)
    async with door(agent) as opened:
        wire = await opened.connect()
        await wire.ask(poll(*[0] * repeats.ROWS_MAX))
        assert wire_client(opened).repeat is not None
        await wire.ask(poll(*[0] * (repeats.ROWS_MAX + 1)))
        assert wire_client(opened).repeat is None
        await wire.ask(poll(0))
        assert wire_client(opened).repeat is not None
        await wire.ask(poll(0, rack_id="r" * repeats.REQUEST_BYTES_MAX))
        assert wire_client(opened).repeat is None


@pytest.mark.parametrize(
    "request_",
    [poll(0, wait_ms=0), poll(0, min_bytes=0), poll(5), poll(0, 0)],
    ids=["no wait", "no minimum", "out of range", "a partition that is not there"],
)
async def test_no_other_answer_is_remembered(agent: Agent, request_: f.FetchRequest) -> None:
    await create(agent, partitions=1)
    async with door(agent) as opened:
        wire = await opened.connect()
        await wire.ask(request_)
        assert wire_client(opened).repeat is None
