"""HTTP over TLS on real sockets, with OpenSSL on the other side; and connections that only take a place."""

from __future__ import annotations

import asyncio
import hashlib
import random
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from agent.config import HttpConfig
from agent.config.errors import ConfigError
from agent.http import HttpServer
from agent.http.connections import KEEP_ALIVE_S, NOT_TLS
from agent.http.identity import PRINCIPAL
from agent.net.doors import tls_of
from agent.net.tls import Tls
from agent.telemetry.metrics import Metrics
from tests.equipment.certificates import Authority, Pair
from tests.unit.agent.net.server.harness import until

MIB = 1024 * 1024
LARGE = 12 * MIB
"""More than sockets hold."""
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who vouches for everybody here."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    """The agent's."""
    return authority.pair("agent")


async def _who(request: Request) -> Response:
    """What the connection says, and how many bytes came."""
    size = len(await request.body())
    return Response(f"{request.url.scheme} {request.scope['state'][PRINCIPAL]} {size}")


async def _digest(request: Request) -> Response:
    return Response(hashlib.sha256(await request.body()).hexdigest())


async def _large(_request: Request) -> Response:
    return Response(b"x" * LARGE)


async def _pieces(_request: Request) -> Response:
    async def each() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * MIB
            await asyncio.sleep(0)

    return StreamingResponse(each())


async def _broken(_request: Request) -> Response:
    async def each() -> AsyncIterator[bytes]:
        yield b"x" * LARGE
        raise RuntimeError("in the middle of its answer")

    return StreamingResponse(each())


def config_of(pair: Pair | None, **more: object) -> HttpConfig:
    """With the pair's certificate."""
    files = {} if pair is None else {"tls_cert_file": str(pair.cert), "tls_key_file": str(pair.key)}
    return HttpConfig.model_validate({"host": "127.0.0.1", "port": 0, **files, **more})


@asynccontextmanager
async def serving(config: HttpConfig) -> AsyncIterator[tuple[HttpServer, Tls | None]]:
    """A server of a few routes."""
    tls = tls_of(config, "http") if config.tls_cert_file else None
    app = Starlette(
        routes=[
            Route("/who", _who, methods=["GET", "POST"]),
            Route("/digest", _digest, methods=["POST"]),
            Route("/large", _large),
            Route("/pieces", _pieces),
            Route("/broken", _broken),
        ],
    )
    server = HttpServer(app, config, tls, Metrics())
    await server.start()
    try:
        yield server, tls
    finally:
        await server.stop()


def connect(server: HttpServer, context: ssl.SSLContext) -> httpx.AsyncClient:
    """By the name that the certificate has."""
    return httpx.AsyncClient(base_url=f"https://localhost:{server.port}", verify=context)


async def test_bodies_and_answers_of_any_size_go_through(authority: Authority, pair: Pair) -> None:
    async with serving(config_of(pair)) as (server, _), connect(server, authority.client()) as client:
        for size in (0, 1, 70_000, 5 * MIB):
            answer = await client.post("/who", content=b"x" * size)
            assert answer.text == f"https  {size}"
        assert len((await client.get("/large")).content) == LARGE


async def test_a_body_comes_as_it_was_sent_however_many_records_come_at_once(
    authority: Authority, pair: Pair
) -> None:
    """What is decrypted may not lie where the next records wait to be."""
    body = random.Random(1).randbytes(3 * MIB)
    async with serving(config_of(pair)) as (server, _), connect(server, authority.client()) as client:
        answer = await client.post("/digest", content=body)
        assert answer.text == hashlib.sha256(body).hexdigest()


async def test_a_certificate_names_its_client_by_the_rules(authority: Authority, pair: Pair) -> None:
    rules = "RULE:^CN=([^,]*).*$/$1/L"
    asked = {"tls_ca_file": str(authority.cert), "tls_client_auth": "requested", "tls_principal_rules": rules}
    ann = authority.pair("ann", "/O=Floe/CN=ANN")
    async with serving(config_of(pair, **asked)) as (server, _):
        async with connect(server, authority.client(ann)) as client:
            assert (await client.get("/who")).text == "https ann 0"
        async with connect(server, authority.client()) as client:
            assert (await client.get("/who")).text == "https  0"


async def test_a_certificate_that_nobody_vouches_for_is_turned_away(
    authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    asked = {"tls_ca_file": str(authority.cert), "tls_client_auth": "required"}
    stranger = Authority(tmp_path, "somebody else").pair("eve")
    async with serving(config_of(pair, **asked)) as (server, _):
        for shown in (stranger, None):
            async with connect(server, authority.client(shown)) as client:
                with pytest.raises((httpx.TransportError, ssl.SSLError)):
                    await client.get("/who")


async def test_a_renewed_certificate_counts_for_the_next_connection_and_a_bad_one_for_none(
    authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    own = Pair(tmp_path / "tls.crt", tmp_path / "tls.key")
    shutil.copy(pair.cert, own.cert)
    shutil.copy(pair.key, own.key)

    async def serial(server: HttpServer) -> object:
        context = authority.client()
        opened = asyncio.open_connection("127.0.0.1", server.port, ssl=context, server_hostname="localhost")
        _, writer = await opened
        found = writer.get_extra_info("peercert")["serialNumber"]
        writer.close()
        return found

    async with serving(config_of(own)) as (server, tls), connect(server, authority.client()) as client:
        assert tls is not None
        assert (await client.get("/who")).status_code == 200
        first = await serial(server)
        newer = authority.pair("newer")
        shutil.copy(newer.cert, own.cert)
        assert tls.renew()
        assert "the key is not that of the certificate" in tls.problem
        assert await serial(server) == first
        shutil.copy(newer.key, own.key)
        assert tls.renew()
        assert not tls.problem
        assert await serial(server) != first
        assert (await client.get("/who")).status_code == 200, "the connection that was there goes on"


def test_certificates_that_cannot_be_used_are_one_line_at_the_start(pair: Pair, tmp_path: Path) -> None:
    config = config_of(Pair(pair.cert, tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"^listener http: tls_key_file \(.*/none\): No such file"):
        tls_of(config, "http")


async def test_plain_http_to_a_port_with_tls_is_told_so(pair: Pair) -> None:
    async with serving(config_of(pair)) as (server, _):
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
            answer = await client.get("/who")
        assert (answer.status_code, answer.text) == (400, NOT_TLS)


async def test_what_proxies_are_said_to_have_seen_is_not_believed() -> None:
    """ACLs and the count of failed logins go by the address: nobody may name his own."""
    seen = []

    async def host(request: Request) -> Response:
        seen.append(request.client.host if request.client else "")
        return Response()

    server = HttpServer(Starlette(routes=[Route("/", host)]), config_of(None))
    await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        await client.get("/", headers={"X-Forwarded-For": "10.9.9.9", "X-Forwarded-Proto": "https"})
    await server.stop()
    assert seen == ["127.0.0.1"]


@pytest.mark.parametrize("tls", [False, True])
async def test_a_flood_of_connections_that_say_nothing_keeps_nobody_out(
    authority: Authority, pair: Pair, tls: bool
) -> None:
    """Half-open by the hundred: with and without a beginning of a request, and of a TLS handshake."""
    config = config_of(pair if tls else None, requests_in_flight_max=4)
    async with serving(config) as (server, _):
        opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(100)]
        for number, (_, writer) in enumerate(opened):
            writer.write((b"", b"GET /who HTTP/1.1\r\nX: ", b"\x16\x03\x01")[number % (3 if tls else 2)])
        await asyncio.sleep(0)
        base = f"{'https' if tls else 'http'}://localhost:{server.port}"
        verify = authority.client() if tls else True
        async with httpx.AsyncClient(base_url=base, verify=verify) as client:
            for _ in range(3):
                assert (await client.get("/who")).status_code == 200
        assert len(server.connections.idle) <= 16
        for _, writer in opened:
            writer.close()


async def test_a_head_that_does_not_end_ends_the_connection() -> None:
    async with serving(config_of(None)) as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /who HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"http  0")).startswith(b"HTTP/1.1 200")
        writer.write(b"GET /who HTTP/1.1\r\nX: ")
        await until(lambda: len(server.connections.idle) == 1)
        now = asyncio.get_running_loop().time()
        server.connections.idle.sweep(now + KEEP_ALIVE_S + 1)
        rest = b""
        try:
            while part := await reader.read(4096):
                rest += part
        except ConnectionResetError:
            pass
        assert b"HTTP/1.1" not in rest
        writer.close()


async def test_a_request_that_is_served_is_not_idle() -> None:
    arrived, finish = asyncio.Event(), asyncio.Event()

    async def slow(_request: Request) -> Response:
        arrived.set()
        await finish.wait()
        return Response("done")

    server = HttpServer(Starlette(routes=[Route("/", slow)]), config_of(None))
    await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        asked = asyncio.create_task(client.get("/"))
        await arrived.wait()
        server.connections.idle.sweep(asyncio.get_running_loop().time() + 10 * KEEP_ALIVE_S)
        finish.set()
        assert (await asked).text == "done"
    await server.stop()


def untaken(server: HttpServer) -> int:
    """Bytes of answers that clients have not taken, of all connections."""
    return sum(each.transport.get_write_buffer_size() for each in server.connections._open)


@asynccontextmanager
async def asked(server: HttpServer, context: ssl.SSLContext | None, head: bytes) -> AsyncIterator[Streams]:
    """A client that has asked, and takes its answer when it reads. Without `head` it is to ask itself."""
    connected = socket.socket()
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    connected.connect(("127.0.0.1", server.port))
    name = "localhost" if context else None
    reader, writer = await asyncio.open_connection(
        sock=connected, ssl=context, server_hostname=name, limit=4096
    )
    await until(lambda: len(server.connections.idle) == 1)
    if head:
        writer.write(b"GET " + head + b"\r\n\r\n")
        await until(lambda: untaken(server) > 0 and len(server.connections.idle) == 1)
    yield reader, writer
    writer.close()


@pytest.mark.parametrize("tls", [False, True])
async def test_whoever_takes_some_of_a_large_answer_gets_all_of_it(
    authority: Authority, pair: Pair, tls: bool
) -> None:
    config, context = config_of(pair if tls else None), authority.client() if tls else None
    head = b"/large HTTP/1.1\r\nHost: x"
    async with serving(config) as (server, _), asked(server, context, head) as (reader, _):
        now, before = asyncio.get_running_loop().time(), untaken(server)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        left = LARGE
        while untaken(server) == before:
            left -= len(await reader.read(65_536))
        assert untaken(server) > 0
        server.connections.idle.sweep(now + KEEP_ALIVE_S)
        assert len(await reader.readexactly(left)) == left


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    "head",
    [
        b"/large HTTP/1.1\r\nHost: x",
        b"/large HTTP/1.1\r\nHost: x\r\nConnection: close",
        b"/pieces HTTP/1.1\r\nHost: x",
    ],
)
async def test_an_answer_that_nobody_takes_ends_its_connection(
    authority: Authority, pair: Pair, tls: bool, head: bytes
) -> None:
    """Whole already, the last one of its connection, or still being made."""
    config, context = config_of(pair if tls else None), authority.client() if tls else None
    async with serving(config) as (server, _), asked(server, context, head):
        server.connections.idle.sweep(asyncio.get_running_loop().time() + 2 * KEEP_ALIVE_S)
        await until(lambda: not server.connections._open)
        assert not len(server.connections.idle)


async def test_an_answer_that_broke_off_and_that_nobody_takes_ends_its_connection() -> None:
    async with serving(config_of(None)) as (server, _), asked(server, None, b"") as (_, writer):
        (own,) = server.connections._open
        own.transport.set_write_buffer_limits(LARGE)  # its handler does not wait for the client
        writer.write(b"GET /broken HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(own.transport.is_closing)
        await server.connections.sweep()
        server.connections.idle.sweep(asyncio.get_running_loop().time() + 2 * KEEP_ALIVE_S)
        await until(lambda: not server.connections._open)


async def test_header_bombs_are_bounded(authority: Authority, pair: Pair) -> None:
    """A head without an end, of one line or of many, is answered 400 before it is held."""
    context = authority.client()
    async with serving(config_of(pair)) as (server, _):
        for line in (b"X: " + b"x" * 4096, b"X: y\r\n" * 700):
            opened = asyncio.open_connection(
                "127.0.0.1", server.port, ssl=context, server_hostname="localhost"
            )
            reader, writer = await opened
            writer.write(b"GET /who HTTP/1.1\r\n")
            for _ in range(50):
                writer.write(line)
            assert (await reader.read(12)).startswith(b"HTTP/1.1 400")
            writer.close()
