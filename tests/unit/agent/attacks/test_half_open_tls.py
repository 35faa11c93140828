"""Attacks on TLS before anybody is known: half-open by the thousand, large, slow, renegotiated."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import ssl
from collections.abc import Sequence
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from agent.net.announced import HELLO_BYTES_MAX, Announced
from agent.net.server import Server
from tests.equipment.certificates import Authority, Pair
from tests.unit.agent.net.server.harness import Client, until
from tests.unit.agent.net.server.test_tls_server import ask, connect, serving, tls_of

STRANGERS, MAX = 2_000, 100
HELLO_BYTES = 131_000
"""Of the largest first message that OpenSSL takes, which it makes room for when it is announced."""
HELD_KIB_MAX = 128
"""Memory of one connection that shakes hands, its client in this process included, at the worst, KiB."""
RECORD_BYTES = 16_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.pair("server")


def hello(sent: int, announced: int = HELLO_BYTES) -> bytes:
    """Records with so many bytes of a first message that is announced as large."""
    message = b"\x01" + announced.to_bytes(3, "big") + b"\x03\x03" + bytes(sent)
    parts = [message[at : at + RECORD_BYTES] for at in range(0, len(message), RECORD_BYTES)]
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in parts)


async def strangers(port: int, count: int, said: bytes) -> list[Client]:
    """They say that, and nothing more."""
    clients = []
    for _ in range(count):
        clients.append(await Client.connect(port))
        clients[-1].writer.write(said)
        with suppress(ConnectionError):
            await clients[-1].writer.drain()
    return clients


async def gone(clients: Sequence[Client]) -> None:
    for one in clients:
        await one.close()


async def held(server: Server) -> int:
    """Connections that have not shaken hands, once what they sent is read."""
    await asyncio.sleep(0.2)
    return len(server._shared.strangers)


@pytest.mark.parametrize(
    "said", [b"", b"\x16", hello(0, 500), hello(1_000, 9_000)], ids=["", "byte", "start", "more"]
)
async def test_half_open_handshakes_by_the_thousand(authority: Authority, pair: Pair, said: bytes) -> None:
    """So many are held, the oldest are cut, and whoever shakes hands meanwhile is served at once."""
    async with serving(tls_of(pair), strangers_max=MAX) as (server, port):
        known = await connect(port, authority.client())
        with capture_logs():
            many = await strangers(port, STRANGERS, said)
            assert await held(server) <= MAX
            assert await ask(known) == b""
            late = await connect(port, authority.client())
            assert await ask(late) == b""
            await gone([*many, known, late])
        await until(lambda: not server.connections and not len(server._shared.strangers))


async def test_memory_of_a_handshake_is_bounded(pair: Pair) -> None:
    """The worst that one can do: announce the largest message that is taken, and send nearly all of it."""
    count, said = 200, hello(HELLO_BYTES_MAX - 1_000, HELLO_BYTES_MAX)
    async with serving(tls_of(pair), strangers_max=count) as (server, port):
        with capture_logs():
            many = await strangers(port, 20, said)  # what is held once for all
            assert await held(server) == 20
            before = allocated_kib()
            many += await strangers(port, count - 20, said)
            assert await held(server) == count
            each = (allocated_kib() - before) / (count - 20)
            await gone(many)
        assert 30 < each < HELD_KIB_MAX, "less than 30 means that nothing was measured"


async def test_large_hello_is_not_made_room_for(authority: Authority, pair: Pair) -> None:
    """Announced in nine bytes, however these come: OpenSSL would take 170 KiB for each of them."""
    said = hello(0)
    async with serving(tls_of(pair)) as (server, port):
        known = await connect(port, authority.client())
        for pieces in (
            [said],
            [said[at : at + 1] for at in range(len(said))],
            [record(one) for one in said[5:]],
        ):
            with capture_logs() as logs:
                one = await Client.connect(port)
                for piece in pieces:
                    one.writer.write(piece)
                    await asyncio.sleep(0)
                assert await asyncio.wait_for(one.closed(), 20)
                await one.close()
            assert f"hello of {HELLO_BYTES} bytes" in logs[0]["reason"]
        assert await ask(known) == b""
        assert not len(server._shared.strangers)
        await gone([known])


def record(byte: int) -> bytes:
    """A record of one byte of a handshake."""
    return bytes([0x16, 3, 1, 0, 1, byte])


async def test_large_hello_after_a_retry(authority: Authority, pair: Pair) -> None:
    """The server asks for another kind of key (HelloRetryRequest): the second hello is a hello as well."""
    tls = tls_of(pair)
    tls.context.set_ecdh_curve("secp521r1")
    async with serving(tls) as (_, port):
        known = await connect(port, authority.client())  # by a retry
        assert await ask(known) == b""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = authority.client().wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        one = await Client.connect(port)
        one.writer.write(outgoing.read())
        assert (await one.reader.read(1)) == b"\x16"
        with capture_logs() as logs:
            one.writer.write(b"\x14\x03\x03\x00\x01\x01" + hello(0))
            while await asyncio.wait_for(one.reader.read(1_000), 20):
                pass
        assert f"hello of {HELLO_BYTES} bytes" in logs[0]["reason"]
        await gone([known, one])


def test_what_is_encrypted_is_no_hello() -> None:
    """TLS 1.2: behind the client's key exchange a handshake is encrypted, and looks like anything."""
    exchange = b"\x16\x03\x03\x00\x06\x10\x00\x00\x02\xff\xff"
    for at in range(len(exchange)):
        one = Announced()
        said = hello(398, 400) + exchange + b"\x14\x03\x03\x00\x01\x01" + hello(0)
        where = len(said) - len(hello(0)) - at
        assert one.feed(memoryview(said[:where]))
        assert one.feed(memoryview(said[where:]))
        assert not Announced().feed(memoryview(hello(0)))


class _Allocated(ctypes.Structure):
    """glibc's mallinfo2, whose names these are."""

    _fields_ = [(f"_{number}", ctypes.c_size_t) for number in range(10)]
    """arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost."""


def allocated_kib() -> float:
    """What OpenSSL, and the others who ask malloc, hold now; what is free again does not count."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _Allocated
    gc.collect()
    now = mallinfo2()
    mapped, used = now._4, now._7
    return float(mapped + used) / 1024


async def test_slow_handshake(authority: Authority, pair: Pair) -> None:
    """A client that always has one more byte is cut when its time is over."""
    async with serving(tls_of(pair), login_s_max=0.5) as (_, port):
        slow, known = await Client.connect(port), await connect(port, authority.client())

        async def trickle() -> None:
            for byte in hello(10_000, 15_000):
                slow.writer.write(bytes([byte]))
                await asyncio.sleep(0.02)

        with capture_logs() as logs:
            trickling = asyncio.create_task(trickle())
            assert await asyncio.wait_for(slow.closed(), 20)
            trickling.cancel()
            await asyncio.gather(trickling, return_exceptions=True)
        assert "login_ms_max" in logs[0]["reason"]
        assert await ask(known) == b""
        await gone([slow, known])


async def openssl(port: int, authority: Authority, *arguments: str, said: bytes) -> str:
    """What its client tells that says `said` once it is connected."""
    process = await asyncio.create_subprocess_exec(
        "openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", str(authority.cert), *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    told = b""
    while b"Verify return code" not in told:
        told += await asyncio.wait_for(process.stdout.readline(), 20)
    process.stdin.write(said)
    with suppress(ConnectionError):
        await process.stdin.drain()
    rest = await asyncio.wait_for(process.stdout.read(), 20)
    process.stdin.close()
    await process.wait()
    return (told + rest).decode()


async def test_renegotiation(authority: Authority, pair: Pair) -> None:
    """A client may not shake hands again on its connection, a thousand times for nothing; others go on."""
    async with serving(tls_of(pair, versions=("TLSv1.2",)), idle_s_max=2) as (_, port):
        known = await connect(port, authority.client())
        told = await openssl(port, authority, "-tls1_2", said=b"R\n")
        assert "RENEGOTIATING" in told
        assert "no renegotiation" in told
        assert await ask(known) == b""
        await gone([known])


async def test_resumption_and_compression(authority: Authority, pair: Pair) -> None:
    """No ticket outlives the authority that vouched for its client, and nothing is compressed (CRIME)."""
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        async with serving(tls_of(pair)) as (_, port):
            context = authority.client()
            context.maximum_version = version
            client = await connect(port, context)
            assert await ask(client) == b""
            spoken: ssl.SSLObject = client.writer.get_extra_info("ssl_object")
            assert spoken.compression() is None
            session = spoken.session
            assert session is None or not session.has_ticket
            await gone([client])
