"""Who is let in: bounds of a listener and of an address, on real sockets, with a clock that is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.config.quotas import QuotasConfig
from agent.net import server as serving
from agent.net.admission import Admission, Gate, ListenerLimits, Verdict
from agent.net.connection import SCRATCH_BYTES_POOR, Limits
from agent.net.listening import Listener
from agent.net.principals import namer
from agent.net.server import Server
from agent.net.tls import Tls, TlsFiles
from agent.net.wire.frame import encode_request_header, frame_request
from agent.telemetry.metrics import Metrics
from coordination.clock import ManualClock
from tests.equipment.certificates import Authority
from tests.unit.agent.net.server.harness import METADATA, MIB, Client, echo, until

HOST = "127.0.0.1"


class Door:
    """A server with bounds."""

    def __init__(self, limits: ListenerLimits, rate: float | None = None, **settings: int) -> None:
        self.clock, self.metrics = ManualClock(), Metrics()
        self.admission = Admission(QuotasConfig(**settings), self.metrics, self.clock.monotonic)
        self.admission.limit_addresses(lambda host: rate, lambda: rate is not None)
        self.limits = limits

    @asynccontextmanager
    async def open(self, tls: Tls | None = None, **limits: int) -> AsyncIterator[tuple[Server, int]]:
        async def dispatch(context: Any, header: Any, body: memoryview) -> Any:
            return await echo(context, body)

        server = Server(dispatch, Limits(**limits), self.metrics, admission=self.admission)
        (port,) = await server.start([Listener("L", HOST, 0, tls, limits=self.limits)])
        try:
            yield server, port
        finally:
            await server.drain(0.5)

    def figure(self, why: str) -> float:
        labels = {"listener": "L", "why": why}
        return self.metrics.registry.get_sample_value("floe_connections_held_total", labels) or 0.0


async def served(port: int) -> Client:
    client = await Client.connect(port)
    client.send(1)
    assert await client.correlation_id() == 1
    return client


@pytest.mark.parametrize(
    "limits",
    [
        ListenerLimits(connections_max=2),
        ListenerLimits(per_ip_max=2),
        ListenerLimits(per_ip_max=1, per_ip={HOST: 2}),
    ],
    ids=str,
)
async def test_one_too_many_is_closed_until_another_goes(limits: ListenerLimits) -> None:
    door = Door(limits)
    async with door.open() as (server, port):
        first, second = await served(port), await served(port)
        third = await Client.connect(port)
        assert await third.closed()
        assert door.figure("closed") == 1
        await first.close()
        await until(lambda: server.connections == 1)
        fourth = await served(port)
        for client in (second, third, fourth):
            await client.close()


async def test_an_address_that_is_too_fast_waits_and_is_closed() -> None:
    """Ten at once are all windows of one per second; the eleventh has to wait, and does not count itself."""
    door = Door(ListenerLimits(), rate=1, throttle_ms_max=100)
    async with door.open() as (server, port):
        clients = [await served(port) for _ in range(10)]
        late = await Client.connect(port)
        late.send(1)
        assert await late.closed()
        assert door.figure("closed") == 1
        assert server.connections == 10
        door.clock.advance(11)
        clients.append(await served(port))
        for client in (late, *clients):
            await client.close()


async def test_a_listener_that_fills_too_fast_lets_them_wait() -> None:
    door = Door(ListenerLimits(connections_per_s=1), throttle_ms_max=100)
    async with door.open() as (_, port):
        clients = [await served(port) for _ in range(10)]
        assert door.figure("waited") == 0
        async with asyncio.timeout(30):
            clients.append(await served(port))
        assert door.figure("waited") == 1
        assert door.admission.held == 0
        for client in clients:
            await client.close()


async def test_so_many_wait_at_once_and_no_more() -> None:
    door = Door(ListenerLimits(connections_per_s=1), throttle_ms_max=3_600_000, held_connections_max=1)
    async with door.open() as (_, port):
        clients = [await served(port) for _ in range(10)]
        waiting = await Client.connect(port)
        await until(lambda: door.admission.held == 1)
        beyond = await Client.connect(port)
        assert await beyond.closed()
        await waiting.close()
        await until(lambda: door.admission.held == 0)
        for client in (beyond, *clients):
            await client.close()


def test_addresses_are_remembered_as_many_as_configured() -> None:
    door = Door(ListenerLimits(), rate=1, entities_max=2)
    for number in range(5):
        assert door.admission.enter("L", door.limits, f"10.0.0.{number}") == Verdict()
    assert list(door.admission._address_rates) == ["10.0.0.3", "10.0.0.4"]


def test_whoever_is_gone_is_not_counted() -> None:
    door = Door(ListenerLimits(per_ip_max=1))
    for _ in range(3):
        assert door.admission.enter("L", door.limits, HOST) == Verdict()
        assert door.admission.enter("L", door.limits, HOST).refusal
        door.admission.leave("L", HOST)
    assert not door.admission._of_address


async def test_one_that_waits_may_have_begun_its_handshake(tmp_path: Path) -> None:
    """What it sent meanwhile is kept, and it is let go of when it ends."""
    authority = Authority(tmp_path)
    pair = authority.pair("server")
    tls = Tls(TlsFiles("L", str(pair.cert), str(pair.key)), namer("DEFAULT", "subject", "L"))
    door = Door(ListenerLimits(connections_per_s=1, per_ip_max=20), throttle_ms_max=100)
    async with door.open(tls) as (server, port):
        clients = [await shaken(port, authority) for _ in range(11)]
        assert door.figure("waited") == 1
        for client in clients:
            await client.close()
        await until(lambda: server.connections == 0 and not door.admission._of_address)


async def shaken(port: int, authority: Authority) -> Client:
    opened = asyncio.open_connection(HOST, port, ssl=authority.client(), server_hostname="localhost")
    client = Client(*await opened)
    client.send(1)
    assert await client.correlation_id() == 1
    return client


async def let_in(door: Door, monkeypatch: pytest.MonkeyPatch, port: int, said: bytes) -> Client:
    """A client that waits at the door until it has said so much, and is let in then."""
    enter, made = door.admission.enter, list[Gate]()

    def make(*args: Any) -> Gate:
        made.append(Gate(*args))
        return made[-1]

    with monkeypatch.context() as patched:
        patched.setattr(serving, "Gate", make)
        patched.setattr(door.admission, "enter", lambda *one: enter(*one)._replace(wait_s=3600))
        client = await Client.connect(port)
        client.writer.write(said)
        await until(lambda: bool(made) and len(made[0]._early) == len(said))
    made[0]._let_in()
    return client


def asked(correlation_id: int, size: int) -> bytes:
    return frame_request(encode_request_header(METADATA, 8, correlation_id, "tester"), [bytes(size)])


@pytest.mark.parametrize("early", [9_000, 20_000, 30_000, 60_060], ids=str)
async def test_what_was_said_at_the_door_is_read_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch, early: int
) -> None:
    """It may end in the middle of a request. Another one has more than the agent may hold meanwhile."""
    door, said = Door(ListenerLimits(connections_max=9)), b"".join(asked(each, 20_000) for each in (1, 2, 3))
    async with door.open(process_bytes_max=2 * MIB) as (server, port):
        large = await Client.connect(port)
        large.writer.write((8 * MIB).to_bytes(4, "big") + bytes(6 * MIB))
        await until(lambda: server.request_bytes > 6 * MIB)
        before = server.request_bytes
        client = await let_in(door, monkeypatch, port, said[:early])
        assert server.request_bytes <= before + SCRATCH_BYTES_POOR
        client.writer.write(said[early:])
        await large.close()
        async with asyncio.timeout(30):
            assert [await client.correlation_id() for _ in range(3)] == [1, 2, 3]
        await until(lambda: server.request_bytes == 0)
        await client.close()


async def test_what_was_said_at_the_door_by_one_that_is_not_let_in_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    door = Door(ListenerLimits(connections_max=9))
    async with door.open(connections_max=1) as (server, port):
        first = await served(port)
        late = await let_in(door, monkeypatch, port, asked(1, 100))
        assert await late.closed()
        assert server.connections == 1
        await first.close()
        await late.close()
        await until(lambda: not door.admission._of_address)
