"""The server over real sockets: order of answers, and bad input."""

from __future__ import annotations

import asyncio
import re

import pytest
from structlog.testing import capture_logs

from agent.net.listening import RequestContext
from agent.net.wire.errors import WireError
from agent.net.wire.frame import encode_request_header, frame_request, parse_response_header
from agent.net.wire.generated import api_versions
from agent.net.wire.primitives import Buffer
from objectstore.tasks import DEFECTS
from tests.unit.agent.net.server.harness import API_VERSIONS, METADATA, Client, echo, serving


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


class Panic(BaseException):
    """What native code raises: no Exception."""


@pytest.mark.parametrize("error", [RuntimeError("bug"), MemoryError("full"), Panic("native")], ids=repr)
async def test_a_handler_that_fails_closes_only_its_connection(
    error: BaseException,
) -> None:
    async def handler(context: RequestContext, body: memoryview) -> list[Buffer]:
        if context.correlation_id == 13:
            raise error
        return [b""]

    async with serving(handler) as (_, port):
        bad, good = await Client.connect(port), await Client.connect(port)
        before = DEFECTS.counts["Metadata v8"]
        bad.send(13)
        assert await bad.closed()
        assert DEFECTS.counts["Metadata v8"] == before + 1
        assert DEFECTS.newest[-1].error == f"{type(error).__name__}: {error}"
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
    assert (info.listener, info.peer_host, info.only_api_versions) == ("PLAINTEXT", "127.0.0.1", False)
    assert (info.software_name, info.software_version) == ("librdkafka", "2.16.0")
    assert (second.api_key, second.api_version, second.correlation_id, second.client_id) == (
        3,
        8,
        2,
        "tester",
    )
