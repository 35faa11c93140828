"""The server over real sockets: limits, back-pressure, idle clients, and a graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tracemalloc

import pytest
from structlog.testing import capture_logs

from agent.net.listening import Listener, RequestContext
from agent.net.server import Server
from agent.net.wire.api import APIS
from agent.net.wire.frame import RequestHeader, encode_request_header, frame_request, parse_response_header
from agent.net.wire.generated import produce
from agent.net.wire.primitives import Buffer
from tests import fuzz_wire
from tests.unit.agent.net.server.harness import MIB, PRODUCE, Client, echo, serving, until


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


async def test_drain_loses_no_answer_to_a_request_that_comes_too_late() -> None:
    """A socket that is closed with unread input is reset, and the kernel throws away what is on its way: here
    the most of a large answer, which its client would have in part."""
    release = asyncio.Event()

    async def handler(context: RequestContext, body: memoryview) -> list[Buffer]:
        await release.wait()
        return [bytes(16 * MIB)]

    async with serving(handler) as (server, port):
        client = await Client.connect(port)
        client.send(1)
        await until(lambda: server.request_bytes > 0)
        drained = asyncio.create_task(server.drain(30))
        await until(lambda: server.draining)
        client.send(2)  # nobody reads it any more
        await client.writer.drain()
        release.set()
        answer = await client.frame()
        assert int.from_bytes(answer[:4], "big") == 1
        assert len(answer) > 16 * MIB
        assert await client.reader.read() == b"", "the end, and no reset"
        await client.close()
        await drained


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
