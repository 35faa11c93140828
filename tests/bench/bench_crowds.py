"""Many clients of one agent: idle long polls, and producers of a record a second (readers: bench_readers).

CPU time of the agent's process and counts; raw frames from this process. A poll is answered when its
`max_wait_ms` are over, and sent again at once: 500 ms are the Java consumer's default, 5 s one may ask for.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack

from agent.net.wire.generated import fetch as f
from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from tests.bench.agents import on_services, patient
from tests.bench.bench_idle_connections import resident_kib
from tests.bench.bench_produce import embedded
from tests.bench.figure import Figure
from tests.bench.load import (
    FETCH_VERSION,
    Wire,
    batch_of,
    check,
    cpu_seconds,
    create_topic,
    frame_of,
    produce_frame,
)
from tests.bench.scrape import metric

TOPIC = "crowd"
CONNECTIONS, POLLS, WAITS_MS = 10_000, 5_000, (5_000, 500)
POLLED_S = 20.0
COMING_AT_ONCE = 200
CONNECTION_GOAL_KIB, POLLS_GOAL = 40.0, 10.0
PRODUCERS, PRODUCED_S, PRODUCED_TO = 1_000, 20, 50
"""PRODUCED_TO: partitions."""


class Poller(asyncio.Protocol):
    """One connection; sends its frame again with each answer, while it has one."""

    def __init__(self) -> None:
        self.frame = b""
        self.answers = 0
        self._got = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        while len(self._got) >= 4 and len(self._got) >= (size := 4 + int.from_bytes(self._got[:4], "big")):
            del self._got[:size]
            self.answers += 1
            self.send()

    def send(self) -> None:
        """Ask again."""
        if self.frame:
            assert self._transport is not None
            self._transport.write(self.frame)

    def close(self) -> None:
        """Hang up."""
        assert self._transport is not None
        self._transport.abort()


def poll_frame(partition: int, wait_ms: int) -> bytes:
    """A Fetch of one partition that has nothing."""
    wanted = f.FetchPartition(partition, fetch_offset=0, partition_max_bytes=1 << 20)
    request = f.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=[f.FetchTopic(TOPIC, partitions=[wanted])],
    )
    return frame_of("Fetch", request, FETCH_VERSION)


async def come(bootstrap: str, count: int) -> list[Poller]:
    """So many connections."""
    host, port = bootstrap.rsplit(":", 1)
    loop, pollers = asyncio.get_running_loop(), list[Poller]()
    for first in range(0, count, COMING_AT_ONCE):
        some = range(first, min(first + COMING_AT_ONCE, count))
        made = await asyncio.gather(*(loop.create_connection(Poller, host, int(port)) for _ in some))
        pollers += [poller for _, poller in made]
    return pollers


async def idle(agent: FloeAgent) -> Iterable[Figure]:
    """CONNECTIONS, of which POLLS wait for records of which there are none."""
    await create_topic(agent.bootstrap, TOPIC, PRODUCED_TO)
    before = resident_kib(agent.pid)
    pollers = await come(agent.bootstrap, CONNECTIONS)
    found, title = list[Figure](), f"{CONNECTIONS:,} connections, {POLLS:,} idle polls"
    for wait_ms in WAITS_MS:
        for number, poller in enumerate(pollers[:POLLS]):
            asked, poller.frame = poller.frame, poll_frame(number % PRODUCED_TO, wait_ms)
            if not asked:
                poller.send()
            if number % COMING_AT_ONCE == 0:
                await asyncio.sleep(wait_ms / 1000 * COMING_AT_ONCE / POLLS)  # they come at any time
        await asyncio.sleep(wait_ms / 1000 + 1)
        answers = sum(poller.answers for poller in pollers)
        cpu, begun = cpu_seconds(agent.pid), time.perf_counter()
        await asyncio.sleep(POLLED_S)
        cpu = cpu_seconds(agent.pid) - cpu
        seconds = time.perf_counter() - begun
        answers = sum(poller.answers for poller in pollers) - answers
        of = f"{title} of {wait_ms / 1000:g} s"
        goal = POLLS_GOAL if wait_ms == max(WAITS_MS) else None
        found.append(Figure(f"{of}: agent CPU", cpu / seconds * 100, "% of a core", goal=goal, better="less"))
        found.append(Figure(f"{of}: agent CPU of a poll", cpu / answers * 1e6, "µs", better="less"))
    each = (resident_kib(agent.pid) - before) / CONNECTIONS
    found.append(Figure(f"{title}: agent memory", each, "KiB each", goal=CONNECTION_GOAL_KIB, better="less"))
    for poller in pollers:
        poller.close()
    return found


async def _trickle(bootstrap: str, number: int) -> None:
    """A record a second of one producer."""
    loop = asyncio.get_running_loop()
    frame = produce_frame(TOPIC, batch_of(1), [number % PRODUCED_TO])
    wire = await Wire.open(bootstrap)
    first = loop.time() + 1 + number / PRODUCERS
    for second in range(PRODUCED_S):
        await asyncio.sleep(max(0.0, first + second - loop.time()))
        await wire.send(frame)
        check(await wire.receive())
    await wire.close()


async def trickling(agent: FloeAgent) -> Iterable[Figure]:
    """PRODUCERS of a record a second."""
    await create_topic(agent.bootstrap, TOPIC, PRODUCED_TO)
    puts, cpu = metric(agent.http, "floe_put_seconds_count"), cpu_seconds(agent.pid)
    await asyncio.gather(*(_trickle(agent.bootstrap, number) for number in range(PRODUCERS)))
    cpu, puts = cpu_seconds(agent.pid) - cpu, metric(agent.http, "floe_put_seconds_count") - puts
    title = f"{PRODUCERS:,} producers of a record a second"
    return [
        Figure(f"{title}: agent CPU", cpu / PRODUCED_S * 100, "% of a core", better="less"),
        Figure(f"{title}: agent CPU of a record", cpu / (PRODUCERS * PRODUCED_S) * 1e6, "µs", better="less"),
        Figure(f"{title}: chunks", puts / PRODUCED_S, "PUTs/s", better="less"),
    ]


def waiting() -> Iterable[Figure]:
    """Who asks for records that do not come."""
    with tempfile.TemporaryDirectory() as folder:
        settings = patient(embedded(folder)) | {"limits": {"connections_max": CONNECTIONS + 100}}
        with FloeAgent("agent", settings) as agent:
            yield from asyncio.run(idle(agent))


def working() -> Iterable[Figure]:
    """Who writes a little."""
    with ExitStack() as stack:
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        settings = patient(on_services(etcd, minio, minio.make_bucket("bench")))
        agent = stack.enter_context(FloeAgent("agent", settings))
        yield from asyncio.run(trickling(agent))


def figures() -> Iterable[Figure]:
    """Each with an agent of its own."""
    yield from waiting()
    yield from working()


if __name__ == "__main__":
    for figure in figures():
        print(figure.line(), flush=True)
