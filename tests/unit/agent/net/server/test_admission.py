"""Who is let in: bounds of a listener and of an address, on real sockets, with a clock that is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.config.quotas import QuotasConfig
from agent.net.admission import Admission, ListenerLimits, Verdict
from agent.net.connection import Limits
from agent.net.listening import Listener
from agent.net.principals import namer
from agent.net.server import Server
from agent.net.tls import Tls, TlsFiles
from agent.telemetry.metrics import Metrics
from coordination.clock import ManualClock
from tests.equipment.certificates import Authority
from tests.unit.agent.net.server.harness import Client, echo, until

HOST = "127.0.0.1"


class Door:
    """A server with bounds."""

    def __init__(self, limits: ListenerLimits, rate: float | None = None, **settings: int) -> None:
        self.clock, self.metrics = ManualClock(), Metrics()
        self.admission = Admission(QuotasConfig(**settings), self.metrics, self.clock.monotonic)
        self.admission.limit_addresses(lambda host: rate, lambda: rate is not None)
        self.limits = limits

    @asynccontextmanager
    async def open(self, tls: Tls | None = None) -> AsyncIterator[tuple[Server, int]]:
        async def dispatch(context: Any, header: Any, body: memoryview) -> Any:
            return await echo(context, body)

        server = Server(dispatch, Limits(), self.metrics, admission=self.admission)
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
