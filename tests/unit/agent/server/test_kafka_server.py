"""The server over real sockets: order, back-pressure, bad input, limits, and a graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from agent.connection import Limits
from agent.server import Listener, RequestContext, Server
from agent.wire.api import APIS
from agent.wire.errors import WireError
from agent.wire.frame import RequestHeader, encode_request_header, frame_request, parse_response_header
from agent.wire.generated import api_versions, produce
from agent.wire.primitives import Buffer
from tests import fuzz_wire

MIB = 1024 * 1024
METADATA, PRODUCE, API_VERSIONS = APIS[3], APIS[0], APIS[18]

Handler = Callable[[RequestContext, memoryview], Awaitable[list[Buffer] | None]]


@pytest.fixture(autouse=True)
def _fresh_loggers() -> None:
    structlog.reset_defaults()


@asynccontextmanager
async def serving(handler: Handler, **limits: Any) -> AsyncIterator[tuple[Server, int]]:
    async def dispatch(
        context: RequestContext, header: RequestHeader, body: memoryview
    ) -> list[Buffer] | None:
        return await handler(context, body)

    server = Server(dispatch, Limits(**limits))
    (port,) = await server.start([Listener("PLAINTEXT", "127.0.0.1", 0)])
    try:
        yield server, port
    finally:
        await server.drain(0.5)


class Client:
    """A raw socket that speaks frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, correlation_id: int, size: int = 0, api: Any = METADATA, version: int = 8) -> None:
        header = encode_request_header(api, version, correlation_id, "tester")
        self.writer.write(frame_request(header, [bytes(size)]))

    async def frame(self) -> bytes:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)

    async def correlation_id(self) -> int:
        return int.from_bytes((await self.frame())[:4], "big")

    async def closed(self) -> bool:
        with contextlib.suppress(ConnectionError):
            return await self.reader.read(1) == b""
        return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


async def until(reached: Callable[[], bool]) -> None:
    """Wait for something that happens soon, without saying how soon."""
    for _ in range(3000):
        if reached():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


async def echo(context: RequestContext, body: memoryview) -> list[Buffer] | None:
    return [body]


async def test_pipelined_answers_come_in_the_order_of_requests() -> None:
    release = {n: asyncio.Event() for n in range(5)}

    async def handler(context: RequestContext, body: memoryview) -> list[Buffer]:
        await release[context.correlation_id].wait()
        return [b"x"]

    async with serving(handler) as (_, port):
        client = await Client.connect(port)
        for n in range(5):
            client.send(n)
        for n in (3, 1, 4, 2):
            release[n].set()
            await asyncio.sleep(0)
        read = asyncio.create_task(client.correlation_id())
        await asyncio.sleep(0.02)
        assert not read.done()  # everything waits for request 0
        release[0].set()
        assert [await read, *[await client.correlation_id() for _ in range(4)]] == [0, 1, 2, 3, 4]
        await client.close()


async def test_a_slow_connection_does_not_hold_up_another() -> None:
    never = asyncio.Event()

    async def handler(context: RequestContext, body: memoryview) -> list[Buffer]:
        if context.correlation_id == 1:
            await never.wait()
        return [b""]

    async with serving(handler) as (_, port):
        slow, quick = await Client.connect(port), await Client.connect(port)
        slow.send(1)
        quick.send(2)
        assert await quick.correlation_id() == 2
        never.set()
        assert await slow.correlation_id() == 1
        await slow.close()
        await quick.close()


async def test_handlers_of_a_connection_start_in_the_order_of_requests() -> None:
    started = []

    async def handler(context: RequestContext, body: memoryview) -> list[Buffer]:
        started.append(context.correlation_id)
        return [b""]

    async with serving(handler, requests_in_flight_max=3) as (_, port):
        client = await Client.connect(port)
        for n in range(200):
            client.send(n)
        assert [await client.correlation_id() for _ in range(200)] == list(range(200))
        await client.close()
    assert started == list(range(200))


async def test_no_more_requests_are_worked_on_than_allowed() -> None:
    release, working = asyncio.Event(), []

    async def handler(context: RequestContext, body: memoryview) -> list[Buffer]:
        working.append(len(body))
        await release.wait()
        return [b""]

    async with serving(handler, requests_in_flight_max=2) as (_, port):
        client = await Client.connect(port)
        for n in range(6):
            client.send(n, size=200_000)  # each larger than what is read at once
        await asyncio.sleep(0.1)
        assert len(working) == 2
        release.set()
        assert [await client.correlation_id() for _ in range(6)] == list(range(6))
        await client.close()


async def test_requests_without_answers_leave_no_gap() -> None:
    async def handler(context: RequestContext, body: memoryview) -> list[Buffer] | None:
        return None if context.correlation_id % 2 else [b""]

    async with serving(handler) as (_, port):
        client = await Client.connect(port)
        for n in range(6):
            client.send(n)
        assert [await client.correlation_id() for _ in range(3)] == [0, 2, 4]
        await client.close()


async def test_a_frame_in_pieces_is_one_request() -> None:
    async with serving(echo) as (_, port):
        client = await Client.connect(port)
        whole = frame_request(encode_request_header(METADATA, 8, 7, None), [b"body" * 50_000])
        for at in (0, 2, 5, 9, 30_000, 150_000):
            cut = [0, 2, 5, 9, 30_000, 150_000, len(whole)]
            client.writer.write(whole[at : cut[cut.index(at) + 1]])
            await client.writer.drain()
            await asyncio.sleep(0.01)
        assert (await client.frame())[4:] == b"body" * 50_000
        await client.close()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP was spoken"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS was spoken"),
        (b"\xde\xad\xbe\xef\xde\xad\xbe\xef", "not Kafka"),
        (b"\0\0\0\x08" + b"\x7f\xff\0\0\0\0\0\1", "API key 32767 .* is not supported"),
        (b"\0\0\0\x0a" + b"\0\x03\x7f\xff\0\0\0\1\0\0", "Metadata v32767: only 0 to 13"),
        (b"\0\0\0\x0a" + b"\0\x03\0\x01\0\0\0\1\x7f\xff", "client id of 32767 bytes"),
        (b"\x06\x40\0\x01", "request_bytes_max"),
    ],
)
async def test_bad_input_closes_the_connection_with_one_line(data: bytes, reason: str) -> None:
    async with serving(echo) as (_, port):
        with capture_logs() as logs:
            client = await Client.connect(port)
            client.writer.write(data)
            assert await client.closed()
        lines = [line for line in logs if line["log_level"] == "warning"]
        assert len(lines) == 1
        assert re.search(reason, lines[0]["reason"])
        other = await Client.connect(port)
        other.send(1)
        assert await other.correlation_id() == 1  # the server lives on
        await client.close()
        await other.close()


async def test_requests_before_a_bad_one_are_answered() -> None:
    release = asyncio.Event()

    async def handler(context: RequestContext, body: memoryview) -> list[Buffer]:
        if context.correlation_id == 2:
            raise WireError("Metadata v8: topics: nonsense")
        if context.correlation_id == 1:
            await release.wait()
        return [b""]

    async with serving(handler) as (_, port):
        client = await Client.connect(port)
        for n in (1, 2, 3):
            client.send(n)
        await asyncio.sleep(0.02)
        release.set()
        assert await client.correlation_id() == 1
        assert await client.closed()
        await client.close()


async def test_a_handler_that_fails_closes_only_its_connection() -> None:
    async def handler(context: RequestContext, body: memoryview) -> list[Buffer]:
        if context.correlation_id == 13:
            raise RuntimeError("bug")
        return [b""]

    async with serving(handler) as (_, port):
        bad, good = await Client.connect(port), await Client.connect(port)
        with capture_logs() as logs:
            bad.send(13)
            assert await bad.closed()
        assert [line["event"] for line in logs if line["log_level"] == "error"] == ["request failed"]
        good.send(1)
        assert await good.correlation_id() == 1
        await bad.close()
        await good.close()


async def test_api_versions_in_an_unknown_version_is_answered_in_version_0() -> None:
    async with serving(echo) as (_, port):
        client = await Client.connect(port)
        client.send(5, api=API_VERSIONS, version=99)
        frame = await client.frame()
        assert int.from_bytes(frame[:4], "big") == 5
        answer = api_versions.decode_response(frame[4:], 0)
        assert answer.error_code == 35
        assert answer.api_keys == [api_versions.ApiVersion(18, 0, API_VERSIONS.max)]
        client.send(6)  # and the connection goes on
        assert await client.correlation_id() == 6
        await client.close()


async def test_a_context_knows_the_client() -> None:
    seen: list[RequestContext] = []

    async def handler(context: RequestContext, body: memoryview) -> list[Buffer]:
        seen.append(context)
        return [b""]

    async with serving(handler) as (_, port):
        client = await Client.connect(port)
        hello = api_versions.ApiVersionsRequest("librdkafka", "2.16.0")
        header = encode_request_header(API_VERSIONS, 3, 1, "me")
        client.writer.write(frame_request(header, api_versions.encode_request(hello, 3)))
        # ApiVersions answers have header version 0: no tags.
        assert parse_response_header(API_VERSIONS, 3, await client.frame()) == (1, 4)
        client.send(2)
        await client.frame()
        await client.close()
    first, second = seen
    assert first.connection is second.connection
    info = second.connection
    assert (info.listener, info.peer_host, info.stamp) == ("PLAINTEXT", "127.0.0.1", None)
    assert (info.software_name, info.software_version) == ("librdkafka", "2.16.0")
    assert (second.api_key, second.api_version, second.correlation_id, second.client_id) == (
        3,
        8,
        2,
        "tester",
    )


async def test_a_hundred_announced_frames_stay_within_the_budget() -> None:
    """100 connections announce 90 MB each and send 1 MiB of it: 9 GB are not allocated, others are served."""
    async with serving(echo, process_bytes_max=16 * MIB) as (server, port):
        tracemalloc.start()
        clients = await asyncio.gather(*(Client.connect(port) for _ in range(100)))
        for client in clients:
            client.writer.write((90 * MIB).to_bytes(4, "big") + bytes(MIB))
        await asyncio.sleep(0.5)
        other = await Client.connect(port)
        other.send(1, size=1000)
        assert await other.correlation_id() == 1
        held, peak = server.request_bytes, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert 15 * MIB <= held <= 16 * MIB + 2 * MIB + 100 * 4096
        assert peak < 16 * MIB + 220 * MIB  # the clients' own unsent bytes are 100 MiB, twice while joined
        for client in (*clients, other):
            await client.close()
        await until(lambda: not server.connections)
        assert server.request_bytes == 0


async def test_more_large_requests_than_the_budget_holds_all_get_through() -> None:
    async def handler(context: RequestContext, body: memoryview) -> list[Buffer]:
        return [str(len(body)).encode()]

    async with serving(handler, process_bytes_max=6 * MIB) as (server, port):
        clients = await asyncio.gather(*(Client.connect(port) for _ in range(8)))
        for n, client in enumerate(clients):
            client.send(n, size=5 * MIB)
        frames = await asyncio.gather(*(client.frame() for client in clients))
        assert [frame[4:] for frame in frames] == [str(5 * MIB).encode()] * 8
        for client in clients:
            await client.close()
        assert server.request_bytes == 0


async def test_a_client_that_does_not_read_its_answers_is_not_read() -> None:
    working = []

    async def handler(context: RequestContext, body: memoryview) -> list[Buffer]:
        working.append(context.correlation_id)
        return [bytes(8 * MIB)]

    async with serving(handler, response_bytes_max=16 * MIB) as (_, port):
        client = await Client.connect(port)
        for n in range(40):
            client.send(n, size=100_000)
        await asyncio.sleep(0.5)
        assert len(working) < 12
        sizes = [len(await client.frame()) for _ in range(40)]
        assert sizes == [8 * MIB + 4] * 40
        await client.close()


async def test_connections_beyond_the_limit_are_closed() -> None:
    async with serving(echo, connections_max=2) as (server, port):
        first, second = await Client.connect(port), await Client.connect(port)
        first.send(1)
        await first.frame()
        second.send(1)
        await second.frame()
        third = await Client.connect(port)
        assert await third.closed()
        assert server.connections == 2
        await first.close()
        await until(lambda: server.connections == 1)
        fourth = await Client.connect(port)
        fourth.send(4)
        assert await fourth.correlation_id() == 4
        for client in (second, third, fourth):
            await client.close()


async def test_idle_and_stalled_connections_are_closed_but_not_busy_ones() -> None:
    release = asyncio.Event()

    async def handler(context: RequestContext, body: memoryview) -> list[Buffer]:
        await release.wait()
        return [b""]

    async with serving(handler, idle_s_max=0.2, stall_s_max=0.1) as (_, port):
        idle, stalled, busy = [await Client.connect(port) for _ in range(3)]
        stalled.writer.write(b"\0\0\x01\0half a request")
        busy.send(1)
        assert await stalled.closed()
        assert await idle.closed()
        release.set()
        assert await busy.correlation_id() == 1
        for client in (idle, stalled, busy):
            await client.close()


async def test_drain_answers_what_is_in_flight_and_closes() -> None:
    release = asyncio.Event()

    async def handler(context: RequestContext, body: memoryview) -> list[Buffer]:
        await release.wait()
        return [b""]

    async with serving(handler) as (server, port):
        busy, idle = await Client.connect(port), await Client.connect(port)
        busy.send(1)
        await asyncio.sleep(0.02)
        drained = asyncio.create_task(server.drain(10))
        assert await idle.closed()
        with pytest.raises(OSError):  # noqa: PT011 - refused, however the platform says it
            await Client.connect(port)
        release.set()
        assert await busy.correlation_id() == 1
        assert await busy.closed()
        await drained
        assert server.connections == 0
        await busy.close()
        await idle.close()


async def test_drain_cuts_what_does_not_end() -> None:
    cancelled = asyncio.Event()

    async def handler(context: RequestContext, body: memoryview) -> list[Buffer]:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return [b""]

    async with serving(handler) as (server, port):
        client = await Client.connect(port)
        client.send(1)
        await asyncio.sleep(0.02)
        await server.drain(0.05)
        assert await client.closed()
        assert cancelled.is_set()
        assert server.request_bytes == 0
        await client.close()


async def test_waking_from_a_pause_drops_every_connection_unanswered() -> None:
    async with serving(echo) as (server, port):
        clients = [await Client.connect(port) for _ in range(3)]
        for client in clients:
            client.send(1)
            await client.frame()
        server.drop_all()
        for client in clients:
            assert await client.closed()
            await client.close()
        again = await Client.connect(port)
        again.send(9)
        assert await again.correlation_id() == 9
        await again.close()


async def test_a_fetch_ends_with_its_connection_but_a_produce_goes_on() -> None:
    ended: list[tuple[int, str]] = []
    release = asyncio.Event()

    async def handler(context: RequestContext, body: memoryview) -> list[Buffer]:
        try:
            await release.wait()
            ended.append((context.api_key, "done"))
        except asyncio.CancelledError:
            ended.append((context.api_key, "cancelled"))
            raise
        return [b""]

    async with serving(handler) as (server, port):
        client = await Client.connect(port)
        client.send(1, api=APIS[1], version=11)
        client.send(2, api=PRODUCE, version=8)
        await asyncio.sleep(0.02)
        await client.close()
        await until(lambda: not server.connections)
        release.set()
        await until(lambda: len(ended) == 2)
        assert sorted(ended) == [(0, "done"), (1, "cancelled")]
        assert server.request_bytes == 0


async def test_two_listeners_have_their_names() -> None:
    async def dispatch(
        context: RequestContext, header: RequestHeader, body: memoryview
    ) -> list[Buffer] | None:
        return [context.connection.listener.encode()]

    server = Server(dispatch)
    listeners = [Listener("INSIDE", "127.0.0.1", 0), Listener("OUTSIDE", "127.0.0.1", 0)]
    ports = await server.start(listeners)
    for listener, port in zip(listeners, ports, strict=True):
        client = await Client.connect(port)
        client.send(1)
        assert (await client.frame())[4:] == listener.name.encode()
        await client.close()
    with pytest.raises(OSError, match=r"address already in use|Errno"):
        await Server(dispatch).start([Listener("AGAIN", "127.0.0.1", ports[0])])
    await server.drain(1)


async def test_messages_go_through_from_client_to_handler_and_back() -> None:
    async def handler(context: RequestContext, body: memoryview) -> list[Buffer]:
        request = produce.decode_request(body, context.api_version)
        (topic,) = request.topic_data
        done = [
            produce.PartitionProduceResponse(p.index, 0, len(p.records or b"")) for p in topic.partition_data
        ]
        answer = produce.ProduceResponse([produce.TopicProduceResponse(topic.name, topic.topic_id, done)])
        return produce.encode_response(answer, context.api_version)

    async with serving(handler) as (_, port):
        client = await Client.connect(port)
        for version in range(3, PRODUCE.max + 1):
            parts = [produce.PartitionProduceData(n, memoryview(bytes(n * 100_000))) for n in range(4)]
            request = produce.ProduceRequest(
                None, -1, 1000, [produce.TopicProduceData("t", bytes(16), parts)]
            )
            header = encode_request_header(PRODUCE, version, version, None)
            client.writer.write(frame_request(header, produce.encode_request(request, version)))
            frame = await client.frame()
            correlation_id, at = parse_response_header(PRODUCE, version, frame)
            assert correlation_id == version
            answer = produce.decode_response(frame[at:], version)
            assert [p.base_offset for p in answer.responses[0].partition_responses] == [
                0,
                100_000,
                200_000,
                300_000,
            ]
        await client.close()


async def test_broken_frames_of_every_api_end_only_their_connections() -> None:
    rng = random.Random(4)

    async def handler(context: RequestContext, body: memoryview) -> list[Buffer]:
        APIS[context.api_key].codec().decode_request(body, context.api_version)
        return [b""]

    async with serving(handler) as (server, port):
        with capture_logs() as logs:
            for case in fuzz_wire.cases(rng, 1):
                if case.kind == "response" or rng.random() < 0.5:
                    continue
                header = encode_request_header(APIS[case.api.key], case.version, 1, "x")
                client = await Client.connect(port)
                client.writer.write(fuzz_wire.broken(rng, frame_request(header, [case.data])))
                client.writer.write_eof()
                with contextlib.suppress(ConnectionError):
                    await client.reader.read()
                await client.close()
        assert not [line for line in logs if line["log_level"] == "error"]
        assert len([line for line in logs if line["log_level"] == "warning"]) > 50
        await until(lambda: not server.connections)
        assert server.request_bytes == 0
        last = await Client.connect(port)
        last.send(9, size=7)  # no topics, no flags
        assert await last.correlation_id() == 9
        await last.close()
