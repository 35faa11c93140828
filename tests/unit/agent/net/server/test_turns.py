"""Strangers who all come at once take turns: a few of their steps in each round of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.net.encrypted import Encrypted
from agent.net.listening import ConnectionInfo, Listener, RequestContext
from agent.net.principals import namer
from agent.net.server import Server
from agent.net.strangers import STEPS_MAX, Strangers
from agent.net.tls import Tls, TlsFiles
from agent.net.wire.frame import RequestHeader
from agent.net.wire.primitives import Buffer
from tests.equipment.certificates import Authority
from tests.unit.agent.net.server.harness import Client

MANY = 40


class Taking:
    """A connection whose client has so many bytes of an answer before it, and takes them as the test says."""

    def __init__(self, among: Strangers, left: int = 0) -> None:
        self.left, self.cut = left, ""
        among.enter(self, 0.0, self._end, lambda: self.left)

    def _end(self, reason: str) -> None:
        self.cut = reason


def test_with_one_too_many_the_oldest_goes_that_takes_nothing() -> None:
    strangers = Strangers(4, 10.0)
    slow, stuck, idle = Taking(strangers, 9), Taking(strangers, 9), Taking(strangers)
    slow.left = 8
    Taking(strangers)
    for goes in (stuck, idle):
        assert not goes.cut
        came = Taking(strangers)
        assert goes.cut, "the oldest but the one that takes its answer"
        assert [slow.cut, came.cut] == ["", ""]


def test_who_takes_a_little_keeps_nobody_else_out() -> None:
    strangers = Strangers(4, 10.0)
    slow = [Taking(strangers, 9) for _ in range(4)]
    for each in slow:
        each.left = 8
    came = Taking(strangers)
    assert slow[0].cut
    assert not came.cut


def test_time_counts_from_what_was_taken_last() -> None:
    strangers = Strangers(4, 10.0)
    slow, idle = Taking(strangers, 9), Taking(strangers)
    slow.left = 1
    strangers.sweep(11.0)
    assert (bool(slow.cut), bool(idle.cut)) == (False, True)
    strangers.sweep(21.0)
    assert not slow.cut
    strangers.sweep(22.0)
    assert slow.cut


class Rounds:
    """`now` is the number of the loop's round. `async with Rounds() as rounds`."""

    def __init__(self) -> None:
        self.now, self._counting = 0, True

    async def __aenter__(self) -> Rounds:
        self._count()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._counting = False

    def _count(self) -> None:
        self.now += 1
        if self._counting:
            asyncio.get_running_loop().call_soon(self._count)


async def test_some_at_once_the_others_in_their_order() -> None:
    strangers, done = Strangers(MANY, 10.0), list[int]()
    for number in range(MANY):
        strangers.step(partial(done.append, number))
    assert done == list(range(STEPS_MAX)), "nobody waits who is among the first"
    async with Rounds() as rounds:
        while len(done) < MANY:
            before, round_before = len(done), rounds.now
            await asyncio.sleep(0)
            assert len(done) - before <= STEPS_MAX * (rounds.now - round_before)
    assert done == list(range(MANY))
    await asyncio.sleep(0)
    strangers.step(partial(done.append, MANY))
    assert done[-1] == MANY, "who comes later does not wait either"


async def test_a_step_that_raises_takes_nobody_elses_turn() -> None:
    strangers, done = Strangers(MANY, 10.0), list[int]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    for number in range(STEPS_MAX):
        strangers.step(partial(done.append, number))
    strangers.step(partial(done.remove, -1))
    strangers.step(partial(done.append, STEPS_MAX))
    for _ in range(4):
        await asyncio.sleep(0)
    assert done[-1] == STEPS_MAX


async def test_handshakes_of_many_are_spread_over_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    pair, trusting = authority.pair("server"), authority.client()
    per_round: Counter[int] = Counter()

    async def echo(context: RequestContext, header: RequestHeader, body: memoryview) -> list[Buffer]:
        return [body]

    async with Rounds() as rounds:
        shake = Encrypted._shake_hands

        def counted(self: Encrypted) -> None:
            per_round[rounds.now] += 1
            shake(self)

        monkeypatch.setattr(Encrypted, "_shake_hands", counted)
        server = Server(echo)
        tls = Tls(TlsFiles("L", str(pair.cert), str(pair.key)), namer("DEFAULT", "subject", "L"))
        (port,) = await server.start([Listener("L", "127.0.0.1", 0, tls)])

        async def come(number: int) -> None:
            opened = asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname="localhost")
            client = Client(*await opened)
            client.send(number, size=70_000)  # at once behind the handshake, more than its wait may hold
            assert await client.correlation_id() == number
            await client.close()

        await asyncio.gather(*(come(number) for number in range(MANY)))
        await server.drain(1.0)
    assert sum(per_round.values()) >= MANY
    assert max(per_round.values()) <= STEPS_MAX


async def test_requests_before_the_login_take_turns_and_none_passes_another() -> None:
    begun: list[tuple[int, int]] = []
    per_round: Counter[int] = Counter()

    async with Rounds() as rounds:

        async def handler(context: RequestContext, header: RequestHeader, body: memoryview) -> Any:
            per_round[rounds.now] += context.connection.stranger
            begun.append((context.connection.id, context.correlation_id))
            if context.correlation_id == 1:
                context.connection.welcome("alice")
            return [body]

        server = Server(handler)
        (port,) = await server.start([Listener("L", "127.0.0.1", 0, login=True)])
        clients = [await Client.connect(port) for _ in range(MANY)]
        for client in clients:
            for number in range(5):
                client.send(number)
        for client in clients:
            for number in range(5):
                assert await client.correlation_id() == number
            await client.close()
        await server.drain(1.0)
    assert max(per_round.values()) <= 2 * STEPS_MAX, "those of one round, and some that wake up a round later"
    for connection in {each for each, _ in begun}:
        assert [number for each, number in begun if each == connection] == list(range(5))


async def test_what_comes_after_the_login_does_not_pass_what_waits_since_before() -> None:
    strangers, begun = Strangers(MANY, 10.0), list[int]()
    info = ConnectionInfo(1, "L", "", stranger=True)

    async def handler(context: RequestContext, header: RequestHeader, body: memoryview) -> list[Buffer]:
        begun.append(context.correlation_id)
        return []

    turned = strangers.in_turn(handler)

    def ask(number: int) -> asyncio.Task[Any]:
        header = RequestHeader(3, 8, number, None, 0)
        return asyncio.ensure_future(
            turned(RequestContext(info, 3, 8, number, None), header, memoryview(b""))
        )

    for _ in range(2 * STEPS_MAX):
        strangers.step(lambda: None)
    first = ask(1)
    await asyncio.sleep(0)
    assert begun == []
    info.stranger = False
    await asyncio.gather(first, ask(2))
    assert begun == [1, 2]
    assert info.queued == 0
