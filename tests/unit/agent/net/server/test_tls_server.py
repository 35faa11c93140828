"""Listeners that speak TLS, over real sockets and with OpenSSL's own client on the other side."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent.config.errors import ConfigError
from agent.net.connection import Limits
from agent.net.encrypted import RECORD_BYTES, Encrypted
from agent.net.listening import Listener, RequestContext
from agent.net.principals import namer
from agent.net.renewal import Renewal
from agent.net.server import Server
from agent.net.tls import Tls, TlsFiles
from agent.net.wire.frame import RequestHeader
from agent.net.wire.primitives import Buffer
from tests.equipment.certificates import Authority, Pair
from tests.unit.agent.net.server.harness import MIB, Client, until


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.pair("server")


def tls_of(pair: Pair, source: str = "subject", rules: str = "DEFAULT", **files: Any) -> Tls:
    return Tls(TlsFiles("L", str(pair.cert), str(pair.key), **files), namer(rules, source, "L"))


async def echo(context: RequestContext, header: RequestHeader, body: memoryview) -> list[Buffer]:
    return [body]


async def whoami(context: RequestContext, header: RequestHeader, body: memoryview) -> list[Buffer]:
    return [context.connection.principal.encode()]


@asynccontextmanager
async def serving(tls: Tls, dispatch: Any = echo, **limits: Any) -> AsyncIterator[tuple[Server, int]]:
    server = Server(dispatch, Limits(**limits))
    (port,) = await server.start([Listener("L", "127.0.0.1", 0, tls)])
    try:
        yield server, port
    finally:
        await server.drain(0.5)


async def connect(port: int, context: ssl.SSLContext) -> Client:
    opened = asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    return Client(*await opened)


async def ask(client: Client, number: int = 1) -> bytes:
    """What comes behind the correlation id."""
    client.send(number)
    return (await client.frame())[4:]


async def test_requests_and_answers_of_any_size_go_through(authority: Authority, pair: Pair) -> None:
    async with serving(tls_of(pair)) as (server, port):
        client = await connect(port, authority.client())
        for size in (0, 1, 16 * 1024, 70_000, 5 * MIB):
            client.send(size, size=size)
        for size in (0, 1, 16 * 1024, 70_000, 5 * MIB):
            frame = await client.frame()
            assert (int.from_bytes(frame[:4], "big"), len(frame)) == (size, size + 4)
        await client.close()
        await until(lambda: not server.connections)
        assert server.request_bytes == 0


async def test_openssl_is_given_a_record_at_a_time(
    authority: Authority, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its buffers keep the memory of the most that they ever held, for as long as the connection lives."""
    most = 0
    make = Encrypted.__init__

    class Measured:
        def __init__(self, bio: ssl.MemoryBIO) -> None:
            self._bio = bio

        @property
        def pending(self) -> int:
            return self._bio.pending

        def write(self, content: Buffer) -> None:
            nonlocal most
            self._bio.write(content)
            most = max(most, self.pending)

        def read(self) -> bytes:
            nonlocal most
            most = max(most, self.pending)
            return self._bio.read()

    def measured(self: Any, *arguments: Any) -> None:
        make(self, *arguments)
        self._incoming, self._outgoing = Measured(self._incoming), Measured(self._outgoing)

    monkeypatch.setattr(Encrypted, "__init__", measured)
    async with serving(tls_of(pair)) as (_, port):
        client = await connect(port, authority.client())
        for size in (10, 200_000, 3 * MIB):
            client.send(size, size=size)
            assert len(await client.frame()) == size + 4
        await client.close()
    assert RECORD_BYTES < most < RECORD_BYTES + 1024


async def test_a_client_that_reads_slowly_gets_everything(authority: Authority, pair: Pair) -> None:
    """More than the kernel and the transport hold: it waits in the clear, and goes on when there is room."""

    async def large(context: RequestContext, header: RequestHeader, body: memoryview) -> list[Buffer]:
        return [bytes([context.correlation_id]) * (8 * MIB)]

    async with serving(tls_of(pair), large) as (_, port):
        client = await connect(port, authority.client())
        for number in range(3):
            client.send(number)
        await asyncio.sleep(0.5)
        for number in range(3):
            assert (await client.frame())[4:] == bytes([number]) * (8 * MIB)
        await client.close()


async def test_a_drain_answers_before_it_hangs_up(authority: Authority, pair: Pair) -> None:
    release = asyncio.Event()

    async def waits(context: RequestContext, header: RequestHeader, body: memoryview) -> list[Buffer]:
        await release.wait()
        return [bytes(MIB)]

    async with serving(tls_of(pair), waits) as (server, port):
        client = await connect(port, authority.client())
        client.send(1)
        await until(lambda: server.request_bytes > 0)
        draining = asyncio.create_task(server.drain(5))
        await asyncio.sleep(0.05)
        release.set()
        assert len(await client.frame()) == MIB + 4
        assert await client.closed()
        await client.close()
        await draining


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\0\0\x10\0\x12\0\0\0\0\0\1\0\x04test", "set security.protocol to SSL"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP was spoken"),
        (b"\x16\x03\x01\0\5hello", "TLS handshake"),
    ],
    ids=["Kafka in the clear", "HTTP", "garbage"],
)
async def test_who_speaks_something_else_is_told(pair: Pair, data: bytes, reason: str) -> None:
    async with serving(tls_of(pair)) as (_, port):
        with capture_logs() as logs:
            client = await Client.connect(port)
            client.writer.write(data)
            await client.reader.read()
            await client.close()
            await asyncio.sleep(0)
        (line,) = [line for line in logs if line["log_level"] == "warning"]
        assert reason in line["reason"]


async def test_a_handshake_that_does_not_end_is_cut(authority: Authority, pair: Pair) -> None:
    """One byte of it now and then does not help."""
    async with serving(tls_of(pair), login_s_max=0.4) as (_, port):
        client = await Client.connect(port)
        with (
            capture_logs() as logs,
            suppress(ConnectionError, RuntimeError),
        ):  # uvloop's own when it is closed
            for byte in b"\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x03" + bytes(1000):
                client.writer.write(bytes([byte]))
                await client.writer.drain()
                await asyncio.sleep(0.02)
                if client.reader.at_eof():
                    break
        assert any("login_ms_max" in str(line.get("reason")) for line in logs)
        await client.close()


async def test_half_open_handshakes_do_not_keep_anybody_out(authority: Authority, pair: Pair) -> None:
    async with serving(tls_of(pair), strangers_max=20) as (server, port):
        half = await asyncio.gather(*(Client.connect(port) for _ in range(200)))
        for client in half:
            client.writer.write(b"\x16\x03\x01")
        other = await connect(port, authority.client())
        assert await ask(other) == b""
        gone = [client for client in half if client.reader.at_eof()]
        assert len(gone) >= 170
        assert server.connections == 1
        for client in (*half, other):
            await client.close()


async def test_a_client_is_who_its_certificate_says(authority: Authority, pair: Pair) -> None:
    alice = authority.pair("alice", "/C=DE/O=Example/CN=Alice", "URI:spiffe://x/alice,DNS:a.example")
    required = {"ca_file": str(authority.cert), "client_auth": "required"}
    rules = "RULE:^CN=(.*?),O=Other.*$/$1/,RULE:^CN=(.*?),O=Example.*$/$1@example/L,DEFAULT"
    for source, expected in (
        ("subject", b"alice@example"),
        ("san_uri", b"spiffe://x/alice"),
        ("san_dns", b"a.example"),
    ):
        async with serving(tls_of(pair, source, rules, **required), whoami) as (_, port):
            client = await connect(port, authority.client(alice))
            assert await ask(client) == expected
            await client.close()


async def turned_away(port: int, context: ssl.SSLContext) -> None:
    """With TLS 1.3 the client hears of it only when it reads."""
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await _asked(port, context)


async def _asked(port: int, context: ssl.SSLContext) -> None:
    client = await connect(port, context)
    try:
        await ask(client)
    finally:
        client.writer.transport.abort()


async def test_certificates_of_clients_are_asked_for_as_configured(
    authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    alice, late = authority.pair("alice"), authority.pair("late", days=-1)
    stranger = Authority(tmp_path / "other").pair("stranger")
    ca = {"ca_file": str(authority.cert)}
    async with serving(tls_of(pair, client_auth="required", **ca), whoami) as (_, port):
        with capture_logs() as logs:
            await turned_away(port, authority.client())
            await turned_away(port, authority.client(stranger))
            await turned_away(port, authority.client(late))
            await until(lambda: len(logs) == 3)
        reasons = [str(line["reason"]) for line in logs]
        for reason, told in zip(reasons, ("shows no certificate", "refused", "expired"), strict=True):
            assert told in reason
        client = await connect(port, authority.client(alice))
        assert await ask(client) == b"CN=alice"
        await client.close()
    async with serving(tls_of(pair, client_auth="requested", **ca), whoami) as (_, port):
        await turned_away(port, authority.client(stranger))
        for context, expected in ((authority.client(), b"ANONYMOUS"), (authority.client(alice), b"CN=alice")):
            client = await connect(port, context)
            assert await ask(client) == expected
            await client.close()
    async with serving(tls_of(pair, "san_uri", client_auth="required", **ca), whoami) as (_, port):
        await turned_away(port, authority.client(alice))  # it has no such name


async def test_only_the_configured_versions_are_spoken(authority: Authority, pair: Pair) -> None:
    for served, refused in (("TLSv1.2", ssl.TLSVersion.TLSv1_3), ("TLSv1.3", ssl.TLSVersion.TLSv1_2)):
        async with serving(tls_of(pair, versions=(served,))) as (_, port):
            context = authority.client()
            client = await connect(port, context)
            assert client.writer.get_extra_info("ssl_object").version() == served
            await client.close()
            context.minimum_version = context.maximum_version = refused
            await turned_away(port, context)


def put(pair: Pair, live: Pair) -> None:
    """Where the listener has its files."""
    shutil.copy(pair.cert, live.cert)
    shutil.copy(pair.key, live.key)


async def test_new_files_count_for_new_connections_and_bad_ones_for_nobody(
    authority: Authority, tmp_path: Path
) -> None:
    live = Pair(tmp_path / "live.crt", tmp_path / "live.key")
    first, second = authority.pair("first"), authority.pair("second")
    put(first, live)
    told: list[str] = []
    tls = tls_of(live)
    renewal = Renewal([tls], 1000, lambda thing: told.append(thing.problem))

    async def name(port: int) -> str:
        client = await connect(port, authority.client())
        subject = client.writer.get_extra_info("peercert")["subject"]
        assert await ask(client) == b""
        await client.close()
        return str(subject[0][0][1])

    async with serving(tls) as (_, port):
        old = await connect(port, authority.client())
        assert await name(port) == "first"
        await renewal.look()
        assert told == []
        put(second, live)
        await renewal.look()
        assert (told, await name(port)) == ([""], "second")
        shutil.copy(first.key, live.key)  # half of a renewal
        await renewal.look()
        await renewal.look()
        assert len(told) == 2
        assert "the key is not that of the certificate" in told[1]
        assert await name(port) == "second"
        shutil.copy(first.cert, live.cert)
        await renewal.look()
        assert (told[2:], await name(port)) == ([""], "first")
        put(authority.pair("over", days=-1), live)
        await renewal.look()
        assert "expired" in told[3]
        assert await name(port) == "first"
        assert await ask(old) == b""  # it has been there all the time
        await old.close()


async def test_an_authority_that_is_taken_away_is_not_trusted_any_more(
    authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    ca, alice = tmp_path / "ca.crt", authority.pair("alice")
    shutil.copy(authority.cert, ca)
    tls = tls_of(pair, ca_file=str(ca), client_auth="required")
    async with serving(tls) as (_, port):
        old = await connect(port, authority.client(alice))
        assert await ask(old) == b""
        shutil.copy(Authority(tmp_path / "next").cert, ca)
        await Renewal([tls], 1000, lambda _: None).look()
        await turned_away(port, authority.client(alice))
        assert await ask(old) == b""
        await old.close()


async def test_what_cannot_be_used_is_one_clear_line_at_the_start(
    authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    other, over = authority.pair("other"), authority.pair("over", days=-1)
    junk = tmp_path / "junk.pem"
    junk.write_text("nonsense")
    locked = tmp_path / "locked.key"
    command = ("openssl", "pkcs8", "-topk8", "-in", str(pair.key), "-out", str(locked), "-passout", "pass:x")
    made = await asyncio.create_subprocess_exec(*command)
    assert await made.wait() == 0
    ca = str(authority.cert)
    for wrong, told in (
        (lambda: tls_of(Pair(tmp_path / "none", pair.key)), r"tls_cert_file .*none.*No such file"),
        (lambda: tls_of(Pair(junk, pair.key)), "tls_cert_file .*junk"),
        (lambda: tls_of(Pair(pair.cert, other.key)), "the key is not that of the certificate"),
        (lambda: tls_of(Pair(pair.cert, locked)), "is encrypted: set tls_key_password"),
        (lambda: tls_of(Pair(pair.cert, locked), key_password="y"), "tls_key_password does not open it"),
        (lambda: tls_of(over), "tls_cert_file .*expired"),
        (lambda: tls_of(pair, ciphers="NOT-A-CIPHER"), "tls_ciphers .*No cipher can be selected"),
        (lambda: tls_of(pair, ca_file=str(junk), client_auth="required"), "tls_ca_file .*junk"),
        (lambda: tls_of(pair, rules="RULE:(/x/"), "tls_principal_rules"),
        (lambda: tls_of(pair, rules="RULE:^CN=(.*)$/$2/"), r"tls_principal_rules.*1 groups"),
        (lambda: tls_of(pair, rules="default"), "tls_principal_rules: 'default' is no rule"),
    ):
        with pytest.raises(ConfigError, match=f"listener L: .*{told}") as refused:
            wrong()
        assert "\n" not in str(refused.value)
    tls = tls_of(Pair(pair.cert, locked), key_password="x", ca_file=ca, client_auth="requested")
    assert time.time() + 29 * 86_400 < tls.expires_s < time.time() + 31 * 86_400
    assert "x'" not in repr(tls.files)
