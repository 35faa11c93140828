"""Strangers read nothing from agents: a configured secret, and certificates of both sides."""

from __future__ import annotations

import asyncio
import errno
import shutil
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop

from agent.cluster.peers import server as serving
from agent.cluster.peers.client import PeerClient
from agent.cluster.peers.server import PeerServer
from agent.cluster.peers.tls import PeerTls
from agent.cluster.peers.wire import PeerError, secret_of
from agent.config import ConfigError
from agent.config.sections import PeersConfig
from agent.telemetry.metrics import Metrics
from coordination.clock import SystemClock
from objectstore.naming import ChunkId, SliceRef
from objectstore.store import Buffer
from tests.equipment.certificates import Authority, Pair
from tests.equipment.files import unseen

SECRET = b"s" * 32
SLICES = [SliceRef(0, 1, ChunkId(1, 1), 0, 10, 0)]
CLOSED = (PeerError, EOFError, OSError)


async def serve(slices: object, recent: bool) -> list[Buffer]:
    return [b"0123456789"]


def tls_of(pair: Pair, authority: Authority, metrics: Metrics | None = None) -> PeerTls:
    files = {
        "tls_cert_file": str(pair.cert),
        "tls_key_file": str(pair.key),
        "tls_ca_file": str(authority.cert),
    }
    return PeerTls(PeersConfig(**files), metrics)


async def asked(server: tuple[bytes, PeerTls | None], client: tuple[bytes, PeerTls | None]) -> bytes:
    """What the client gets of the server. Raises one of CLOSED."""
    answering = PeerServer(serve, server[0], SystemClock(), 1000, tls=server[1])
    asking = PeerClient(client[0], SystemClock(), client[1])
    try:
        port = await answering.start("127.0.0.1", 0)
        async with asyncio.timeout(20):
            return bytes(await asking.ask(f"127.0.0.1:{port}", SLICES))
    finally:
        asking.close()
        await answering.stop()


async def test_the_cluster_s_id_is_not_enough_where_there_is_a_secret() -> None:
    """Any client is told the id."""
    configured = secret_of(bytes(16), "floe", "0123456789abcdef0123456789abcdef")
    assert await asked((configured, None), (configured, None)) == b"0123456789"
    for other in (secret_of(bytes(16), "floe"), secret_of(bytes(16), "floe", "x" * 32)):
        with pytest.raises(CLOSED):
            await asked((configured, None), (other, None))


async def test_both_sides_show_a_certificate(tmp_path: Path) -> None:
    ours, others = Authority(tmp_path / "ours"), Authority(tmp_path / "others")
    agent, second = tls_of(ours.pair("a"), ours), tls_of(ours.pair("b"), ours)
    assert await asked((SECRET, agent), (SECRET, second)) == b"0123456789"
    foreign, nobody = tls_of(others.pair("c"), ours), tls_of(ours.pair("d"), others)
    nameless = tls_of(ours.pair("e"), ours)
    nameless.asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nameless.asking.check_hostname = False
    nameless.asking.load_verify_locations(ours.cert)
    for server, client in (
        (agent, foreign), (foreign, agent), (agent, nobody), (nobody, agent), (agent, nameless),
        (agent, None), (None, agent),
    ):  # fmt: skip
        with pytest.raises(CLOSED):
            await asked((SECRET, server), (SECRET, client))
    with pytest.raises(CLOSED):
        await asked((SECRET, agent), (b"x" * 32, second))


async def test_certificates_are_renewed_and_what_is_none_changes_nothing(tmp_path: Path) -> None:
    ours, others = Authority(tmp_path / "ours"), Authority(tmp_path / "others")
    live = Pair(tmp_path / "live.crt", tmp_path / "live.key")
    first, second = others.pair("a"), ours.pair("b")
    for source, target in ((first.cert, live.cert), (first.key, live.key)):
        shutil.copy(source, target)
    agent, client = tls_of(live, ours), tls_of(ours.pair("c"), ours)
    with pytest.raises(CLOSED):
        await asked((SECRET, agent), (SECRET, client))
    shutil.copy(second.cert, live.cert)
    agent.renew()  # half of a pair
    shutil.copy(second.key, live.key)
    agent.renew()
    assert await asked((SECRET, agent), (SECRET, client)) == b"0123456789"
    live.cert.write_text("junk")
    agent.renew()
    assert await asked((SECRET, agent), (SECRET, client)) == b"0123456789"
    with pytest.raises(ConfigError, match=r"peers\.tls_cert_file"):
        tls_of(live, ours)


async def test_certificates_that_could_not_be_read_once_are_tried_again_and_told_of(tmp_path: Path) -> None:
    """Though nothing of the files changes that tells; the alerts of listeners' certificates have them too."""
    ours, live = Authority(tmp_path / "ours"), Pair(tmp_path / "live.crt", tmp_path / "live.key")
    over, second = ours.pair("over", days=-1), ours.pair("b")
    shutil.copy(over.cert, live.cert)
    shutil.copy(over.key, live.key)
    metrics = Metrics()
    agent = tls_of(live, ours, metrics)

    def told() -> tuple[float, float]:
        found = [
            metrics.registry.get_sample_value(f"floe_tls_{name}", {"listener": "peers"})
            for name in ("renewal_failing", "expires_seconds")
        ]
        assert found[0] is not None
        assert found[1] is not None
        return found[0], found[1]

    failing, ended = told()
    assert failing == 0
    good = second.cert.read_bytes()
    live.cert.write_bytes(b"x" * len(good))
    shutil.copy(second.key, live.key)
    for _ in range(2):
        await agent.look()
        assert told() == (1, ended)
    unseen(live.cert, good)
    await agent.look()
    failing, ends = told()
    assert (failing, agent.problem) == (0, "")
    assert ends > ended
    assert await asked((SECRET, agent), (SECRET, tls_of(ours.pair("c"), ours))) == b"0123456789"


@pytest.mark.parametrize("secured", [False, True])
@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02"])
def test_handshakes_that_are_left_half_open_keep_no_peer_out(
    tmp_path: Path, secured: bool, said: bytes
) -> None:
    """They are as many as the limit says, in the loop that agents run; the oldest make room."""
    ours = Authority(tmp_path)
    tls = tls_of(ours.pair("a"), ours) if secured else None

    async def crowd() -> None:
        server = PeerServer(serve, SECRET, SystemClock(), 1000, tls=tls, handshakes_max=4)
        port = await server.start("127.0.0.1", 0)
        client = PeerClient(SECRET, SystemClock(), tls)
        opened = [await half_open(port, said) for _ in range(20)]
        async with asyncio.timeout(20):
            for reader, _ in opened[:16]:
                with suppress(ConnectionError):
                    assert await reader.read() == b""  # cut
        assert server.stats.cut == 16
        assert len(server._connections) == 4
        assert not opened[-1][0].at_eof()
        async with asyncio.timeout(20):
            assert bytes(await client.ask(f"127.0.0.1:{port}", SLICES)) == b"0123456789"
        assert server.stats.cut == 17
        client.close()
        for _, writer in opened:
            writer.close()
        await server.stop()

    uvloop.run(crowd())


async def half_open(port: int, said: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    return reader, writer


async def test_one_peer_too_many_is_closed_and_the_others_stay() -> None:
    server = PeerServer(serve, SECRET, SystemClock(), 1000, connections_max=2)
    port = await server.start("127.0.0.1", 0)
    clients = [PeerClient(SECRET, SystemClock()) for _ in range(3)]
    for each in clients[:2]:
        assert bytes(await each.ask(f"127.0.0.1:{port}", SLICES)) == b"0123456789"
    with pytest.raises(CLOSED):
        await clients[2].ask(f"127.0.0.1:{port}", SLICES)
    for each in clients[:2]:
        assert bytes(await each.ask(f"127.0.0.1:{port}", SLICES)) == b"0123456789"
    for each in clients:
        each.close()
    await server.stop()


@pytest.mark.parametrize("secured", [False, True])
def test_a_peer_whose_machine_is_gone_takes_no_place_for_ever(tmp_path: Path, secured: bool) -> None:
    """It sends no end of its connection: the system asks, in the loop that agents run."""
    ours = Authority(tmp_path)
    tls = tls_of(ours.pair("a"), ours) if secured else None
    seen: list[dict[str, int]] = []

    async def asking() -> None:
        server = PeerServer(serve, SECRET, SystemClock(), 1000, tls=tls)
        shake_hands = server._shake_hands

        async def looked_at(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            found = writer.get_extra_info("socket")
            names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
            told = {name: found.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names}
            seen.append(told | {"on": found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)})
            await shake_hands(reader, writer)

        server._shake_hands = looked_at  # type: ignore[method-assign]  # looks, and goes on
        port = await server.start("127.0.0.1", 0)
        client = PeerClient(SECRET, SystemClock(), tls)
        async with asyncio.timeout(20):
            assert bytes(await client.ask(f"127.0.0.1:{port}", SLICES)) == b"0123456789"
        client.close()
        await server.stop()

    uvloop.run(asking())
    (found,) = seen
    assert found.pop("on")
    assert found == {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 90_000}


class Crowded:
    """A listening socket of a process that has no descriptor left, for as long as `full`."""

    def __init__(self, listening: socket.socket) -> None:
        self.fileno, self.close, self.getsockname = listening.fileno, listening.close, listening.getsockname
        self._listening = listening
        self.full, self.asked, self.met = True, 0, asyncio.Event()

    def accept(self) -> tuple[socket.socket, object]:
        self.asked += 1
        self.met.set()
        if self.full:
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listening.accept()


async def test_without_a_descriptor_left_the_event_loop_has_its_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits to be accepted is there at each turn; accepted he is once there is room."""
    ours = Authority(tmp_path)
    tls = tls_of(ours.pair("a"), ours)
    made = serving._listening

    crowds: list[Crowded] = []

    def crowded(host: str, port: int) -> Crowded:
        crowds.append(Crowded(made(host, port)))
        return crowds[0]

    monkeypatch.setattr(serving, "_listening", crowded)
    server = PeerServer(serve, SECRET, SystemClock(), 1000, tls=tls)
    client = PeerClient(SECRET, SystemClock(), tls)
    port = await server.start("127.0.0.1", 0)
    (crowd,) = crowds
    asked = asyncio.create_task(client.ask(f"127.0.0.1:{port}", SLICES))
    async with asyncio.timeout(20):
        await crowd.met.wait()
    for _ in range(200):  # turns of the loop
        await asyncio.sleep(0)
    assert crowd.asked == 1
    crowd.full = False
    async with asyncio.timeout(20):
        assert bytes(await asked) == b"0123456789"
    client.close()
    await server.stop()
