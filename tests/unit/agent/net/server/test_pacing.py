"""Requests that come in a flood begin by turns: a few in a round of the loop, of each connection one."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from agent.net import pacing
from agent.net.connection import Slot
from agent.net.listening import RequestContext
from agent.net.pacing import BEGUN_MAX, Line, Pacing
from agent.net.server import Server
from agent.net.wire.api import APIS
from agent.net.wire.primitives import Buffer
from tests.unit.agent.net.server.harness import METADATA, PRODUCE, Client, serving, until

FLOOD = 500
"""Requests of one client: more than a connection may have under way, or a round may begin."""
UNDER_WAY_MAX = 1_000


class Begun:
    """What began, by name, with the round of the loop in which it did."""

    def __init__(self, pacing: Pacing) -> None:
        self.pacing = pacing
        self.order: list[tuple[str, int]] = []
        self.rounds: Counter[int] = Counter()
        self._round = 0

    def line(self, name: str, *, fails: bool = False) -> Line:
        def begin(frame: memoryview, slot: Slot) -> None:
            self.order.append((name, frame[0]))
            self.rounds[self._round] += 1
            self.pacing.begins(line)
            if fails:
                raise ValueError(name)

        line = Line(begin)
        return line

    def come(self, line: Line, count: int) -> None:
        for number in range(count):
            self.pacing.come(line, memoryview(bytes([number % 256])), Slot())

    async def rest(self) -> None:
        """Rounds of the loop until nothing is lined up any more."""
        for self._round in range(1, 100):
            await asyncio.sleep(0)

    def of(self, name: str) -> list[int]:
        return [number for each, number in self.order if each == name]


async def test_a_round_begins_so_many_and_the_rest_takes_turns() -> None:
    begun = Begun(Pacing(UNDER_WAY_MAX))
    much, little = begun.line("much"), begun.line("little")
    begun.come(much, 3 * BEGUN_MAX)
    begun.come(little, 2)
    assert begun.of("much") == list(range(BEGUN_MAX)), "what fits into this round begins at once"
    assert begun.pacing.waiting == 2 * BEGUN_MAX + 2
    await begun.rest()
    assert begun.of("much") == list(range(3 * BEGUN_MAX)), "all, in their order"
    assert begun.of("little") == [0, 1]
    assert begun.order.index(("little", 1)) < BEGUN_MAX + 4, "who came late with little does not wait for all"
    assert max(begun.rounds.values()) == BEGUN_MAX
    assert begun.pacing.waiting == 0
    begun.come(little, 1)
    assert len(begun.of("little")) == 3, "and at once again"


async def test_a_connection_has_so_many_under_way() -> None:
    begun = Begun(Pacing(4))
    one, other = begun.line("one"), begun.line("other")
    begun.come(one, 6)
    assert begun.of("one") == [0, 1, 2, 3]
    await begun.rest()
    assert begun.of("one") == [0, 1, 2, 3], "nothing more before one of them ends"
    begun.come(other, 1)
    assert begun.of("other") == [0], "others are not held up by it"
    begun.pacing.ended(one)
    await begun.rest()
    assert begun.of("one") == [0, 1, 2, 3, 4]
    for _ in range(5):
        begun.pacing.ended(one)
    await begun.rest()
    assert begun.of("one") == [0, 1, 2, 3, 4, 5]
    assert begun.pacing.waiting == 0


async def test_one_that_cannot_begin_does_not_hold_up_the_others() -> None:
    begun = Begun(Pacing(UNDER_WAY_MAX))
    odd, well = begun.line("odd", fails=True), begun.line("well")
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    begun.come(well, BEGUN_MAX)
    begun.come(odd, 2)
    begun.come(well, 2)
    await begun.rest()
    assert len(begun.of("well")) == BEGUN_MAX + 2
    assert begun.of("odd") == [0, 1]
    assert [type(each["exception"]) for each in told] == [ValueError, ValueError]


class Flooded:
    """A handler that counts what runs, and how many it let begin since it last looked."""

    def __init__(self) -> None:
        self.running, self.most = 0, 0
        self.begun: list[int] = []
        self.goes_on = asyncio.Event()

    async def __call__(self, context: RequestContext, body: memoryview) -> list[Buffer] | None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.begun.append(context.correlation_id)
        await self.goes_on.wait()
        self.running -= 1
        return [b""]


async def test_of_a_flood_in_one_read_no_more_run_than_a_connection_may_have() -> None:
    flooded = Flooded()
    async with serving(flooded, requests_in_flight_max=16) as (server, port):
        client, other = await Client.connect(port), await Client.connect(port)
        for number in range(FLOOD):
            client.send(number, api=PRODUCE)
        await until(lambda: flooded.running == 16)
        other.send(FLOOD)
        await until(lambda: FLOOD in flooded.begun)
        flooded.goes_on.set()
        assert [await client.correlation_id() for _ in range(FLOOD)] == list(range(FLOOD)), "all, in order"
        assert await other.correlation_id() == FLOOD
        assert flooded.most == 17
        assert server.request_bytes == 0
        await client.close()
        await other.close()


async def lost(server: Server) -> int:
    """The one connection ends. While it is not read its client's hanging up would not be seen.

    How many of its requests had come.
    """
    protocol: Any
    (protocol,) = server._shared.live.values()
    came = int(protocol._machine.in_flight)
    protocol._transport.abort()
    await until(lambda: server.connections == 0)
    return came


@pytest.mark.parametrize("api", [PRODUCE, METADATA], ids=["Produce", "Metadata"])
async def test_what_came_whole_goes_on_when_its_client_has_gone(api: Any) -> None:
    flooded = Flooded()
    async with serving(flooded, requests_in_flight_max=8) as (server, port):
        client = await Client.connect(port)
        for number in range(40):
            client.send(number, api=api)
        await until(lambda: flooded.running == 8)
        came = await lost(server)
        assert came > 8
        flooded.goes_on.set()
        await until(lambda: server.request_bytes == 0)
        assert flooded.begun == list(range(came))
        await client.close()


async def test_reads_that_have_not_begun_end_with_their_connection() -> None:
    flooded = Flooded()
    async with serving(flooded, requests_in_flight_max=8) as (server, port):
        client = await Client.connect(port)
        for number in range(40):
            client.send(number, api=APIS[1], version=12)
        await until(lambda: flooded.running == 8)
        assert await lost(server) > 8
        flooded.goes_on.set()
        await until(lambda: server.request_bytes == 0)
        assert flooded.begun == list(range(8)), "nobody is left to read"
        await client.close()


async def test_a_write_goes_on_behind_a_read_that_ended_with_the_connection() -> None:
    flooded = Flooded()
    async with serving(flooded, requests_in_flight_max=1) as (server, port):
        client = await Client.connect(port)
        client.send(0, api=APIS[1], version=12)
        client.send(1, api=PRODUCE)
        await until(lambda: flooded.begun == [0])
        await lost(server)
        await until(lambda: flooded.begun == [0, 1])
        flooded.goes_on.set()
        await until(lambda: server.request_bytes == 0)
        await client.close()


async def test_what_waits_is_dropped_where_the_agent_cuts_the_connection() -> None:
    flooded = Flooded()
    async with serving(flooded, requests_in_flight_max=8) as (server, port):
        client = await Client.connect(port)
        for number in range(40):
            client.send(number, api=PRODUCE)
        await until(lambda: flooded.running == 8)
        server.drop_all()
        flooded.goes_on.set()
        assert await client.closed()
        await until(lambda: server.request_bytes == 0)
        assert flooded.begun == list(range(8)), "it was sent before the pause for which all were cut"
        await client.close()


async def test_behind_a_request_that_closes_the_connection_nothing_begins() -> None:
    flooded = Flooded()
    async with serving(flooded, requests_in_flight_max=8) as (server, port):
        client = await Client.connect(port)
        for number in range(12):
            client.send(number, api=PRODUCE)
        client.send(12, api=PRODUCE, version=99)
        for number in range(13, 40):
            client.send(number, api=PRODUCE)
        await until(lambda: flooded.running == 8)
        flooded.goes_on.set()
        assert [await client.correlation_id() for _ in range(12)] == list(range(12))
        assert await client.closed()
        await until(lambda: server.request_bytes == 0)
        assert flooded.begun == list(range(12))
        await client.close()


async def test_a_connection_is_not_read_while_requests_of_it_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else more would come than a client's quota allows before what was counted has begun."""
    monkeypatch.setattr(pacing, "BEGUN_MAX", 1)
    flooded = Flooded()
    async with serving(flooded) as (server, port):
        client = await Client.connect(port)
        for number in range(20):
            client.send(number, api=PRODUCE)
        await until(lambda: server.connections == 1)
        protocol: Any
        (protocol,) = server._shared.live.values()
        waited = 0
        while flooded.running < 20:
            await asyncio.sleep(0)
            waited += bool(protocol._line.waiting)
            assert not (protocol._reading and protocol._line.waiting)
        assert waited
        await until(lambda: protocol._reading)
        flooded.goes_on.set()
        assert [await client.correlation_id() for _ in range(20)] == list(range(20))
        await client.close()
