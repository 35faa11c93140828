"""Answers other agents from this one's memory, or from the bucket where it owns the chunk.

Connections, requests at once and the bytes of answers under way are bounded; what does not fit is told BUSY,
and the peer reads the bucket itself. Who has not shown yet that it is a peer is bounded apart, TLS included:
when one too many comes the oldest is cut, so nobody keeps peers out by handshakes that are left half open.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agent.cluster.peers.tls import PeerTls
from agent.cluster.peers.wire import (
    FIGURES,
    FIGURES_BYTES_MAX,
    FOLLOW,
    HELLO,
    NONCE_BYTES,
    PROOF_BYTES,
    REQUEST_BYTES_MAX,
    SIZE,
    PeerError,
    Status,
    decode_request,
    encode_answer,
    proof,
    proven,
)
from agent.telemetry.logs import logger
from coordination.clock import Clock
from objectstore import tasks
from objectstore.naming import SliceRef
from objectstore.reader import ChunkMissing
from objectstore.store import Buffer, StoreError

_log = logger("peers")

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

CONNECTIONS_MAX = 1024  # of peers
HANDSHAKES_MAX = 128  # under way
ACCEPTED_MAX = 4  # in one round of the event loop
BACKLOG = 128
FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
FULL_PAUSE_S = 1.0  # for which nobody is accepted once the system has no room for another, seconds
PROBE_AFTER_S = 60  # of silence the system asks whether a peer's machine is there, seconds; …
PROBE_AGAIN_S = 10  # … again after so many seconds, …
PROBES_MAX = 3  # … and it ends the connection when so many are not answered
BEAT_S = 0.2  # while an answer is being read, the peer is told so this often, seconds
PATIENCE_S = 10.0  # for a handshake, and for a peer to take its answer, seconds

Serve = Callable[[Sequence[SliceRef], bool], Awaitable[list[Buffer]]]
"""The bytes of each slice of a chunk; the flag says that it is recent. Raises StoreError."""

Relay = Callable[[asyncio.StreamReader, asyncio.StreamWriter, bytes], Awaitable[None]]
"""Returns when the request was refused. Raises PeerError, OSError, EOFError, TimeoutError: that ends it."""


Figures = Callable[[], bytes]
"""What this agent says of itself."""


@dataclass(slots=True)
class ServerStats:
    """Counts since the start."""

    served: int = 0
    served_bytes: int = 0
    refused: int = 0
    cut: int = 0  # handshakes, for others that came


class PeerServer:
    """Listens for peers. `bytes_max` bounds the answers under way; `beat_s` as BEAT_S, seconds."""

    def __init__(
        self,
        serve: Serve,
        secret: bytes,
        clock: Clock,
        bytes_max: int,
        *,
        beat_s: float = BEAT_S,
        tls: PeerTls | None = None,
        connections_max: int = CONNECTIONS_MAX,
        handshakes_max: int = HANDSHAKES_MAX,
        figures: Figures | None = None,
    ) -> None:
        self.relay: Relay | None = None
        """Takes the connection of a peer that asks to follow the log (agent/cluster/relay)."""
        self._tls = tls
        self._connections_max, self._handshakes_max = connections_max, handshakes_max
        self._serve, self._figures = serve, figures
        self._secret = secret
        self._clock = clock
        self._bytes_max = bytes_max
        self._beat_s = beat_s
        self._bytes = 0
        self._listening: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], None] = {}
        self._shaking: dict[asyncio.Task[None], None] = {}  # of those, oldest first
        self.stats = ServerStats()

    async def start(self, host: str, port: int) -> int:
        """Listen; gives the bound port. Raises OSError when it is taken.

        The event loop's own server tells of a connection with TLS only when that is spoken.
        """
        if self._tls is None:
            self._server = await asyncio.start_server(self._plain, host, port, backlog=BACKLOG)
            found: int = self._server.sockets[0].getsockname()[1]
            return found
        self._listening = await asyncio.to_thread(_listening, host, port)
        self._listen(self._listening)
        bound: int = self._listening.getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Close everything. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        listening, self._listening = self._listening, None
        if listening is not None:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        """A few of those that wait; the loop comes back for others."""
        for _ in range(ACCEPTED_MAX):
            try:
                connected, _ = listening.accept()
            except OSError as error:
                if error.errno in FULL:
                    self._rest(listening, error)
                return  # else nobody waits, or whoever did is gone
            connected.setblocking(False)
            self._connected(self._opened(connected), connected.close)

    def _rest(self, listening: socket.socket, error: OSError) -> None:
        """Who waits stays readable: with no pause the event loop would do nothing else."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        loop.call_later(FULL_PAUSE_S, self._listen, listening)
        _log.warning("no peer can be accepted", error=str(error), pause_s=FULL_PAUSE_S)

    def _listen(self, listening: socket.socket) -> None:
        """Have the loop tell who comes, unless this was stopped."""
        if self._listening is listening:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _plain(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def opened() -> _Streams:
            return reader, writer

        self._connected(opened(), writer.transport.abort)

    def _connected(self, opened: Coroutine[Any, Any, _Streams], close: Callable[[], None]) -> None:
        while len(self._shaking) >= self._handshakes_max:
            self._cut_oldest()
        task = tasks.start(self._talk(opened), "talk with a peer")
        self._connections[task] = self._shaking[task] = None

        def gone(task: asyncio.Task[None]) -> None:
            opened.close()  # where it never came to run
            close()
            self._connections.pop(task, None)
            self._shaking.pop(task, None)

        task.add_done_callback(gone)

    def _cut_oldest(self) -> None:
        task = next(iter(self._shaking))
        self._shaking.pop(task)
        task.cancel()
        self.stats.cut += 1

    async def _talk(self, opened: Coroutine[Any, Any, _Streams]) -> None:
        transport: asyncio.Transport | None = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                reader, writer = await opened
                transport = cast(asyncio.Transport, writer.transport)
                _probed(writer.get_extra_info("socket"))
                await self._shake_hands(reader, writer)
            self._known()
            while True:
                (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
                if size > REQUEST_BYTES_MAX:
                    raise PeerError(f"a request of {size} bytes")
                body = await reader.readexactly(size)
                if self.relay is not None and body[:1] == FOLLOW:
                    await self.relay(reader, writer, body)
                elif body == FIGURES:
                    await self._tell(writer)
                else:
                    await self._reply(writer, body)
        except PeerError as error:
            self.stats.refused += 1
            _log.warning("peer refused", reason=str(error))
        except (OSError, EOFError, TimeoutError):
            pass  # it went away, or does not take its answer
        finally:
            if transport is not None:
                transport.abort()

    async def _opened(self, connected: socket.socket) -> _Streams:
        """The connection as streams, behind TLS."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        assert self._tls is not None, "only these are accepted here"
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, connected, ssl=self._tls.answering, ssl_handshake_timeout=PATIENCE_S
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    def _known(self) -> None:
        """It is a peer. Raises PeerError when there are too many."""
        task = asyncio.current_task()
        if task is not None:
            self._shaking.pop(task, None)
        if len(self._connections) - len(self._shaking) > self._connections_max:
            raise PeerError(f"{self._connections_max} others are connected (peers.connections_max)")

    async def _shake_hands(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = await reader.readexactly(len(HELLO))
        if hello != HELLO:
            raise PeerError("something that is not an agent of this version connected")
        theirs = await reader.readexactly(NONCE_BYTES)
        ours = self._clock.random_bytes(NONCE_BYTES)
        _send(writer, [ours])
        if not proven(await reader.readexactly(PROOF_BYTES), self._secret, b"client", ours):
            raise PeerError("somebody without this cluster's secret connected")
        _send(writer, [proof(self._secret, b"server", theirs)])

    async def _reply(self, writer: asyncio.StreamWriter, body: bytes) -> None:
        slices, recent = decode_request(body)
        size = sum(each.length for each in slices)
        if self._bytes + size > self._bytes_max:
            _send(writer, encode_answer(body, Status.BUSY))
            return
        self._bytes += size
        try:
            finding = tasks.owned(self._find(slices, recent), "find for a peer")
            try:
                while not (await asyncio.wait([finding], timeout=self._beat_s))[0]:
                    _send(writer, encode_answer(body, Status.READING))
                status, found = finding.result()
            finally:
                finding.cancel()
            _send(writer, encode_answer(body, status, found))
            async with asyncio.timeout(PATIENCE_S):
                await writer.drain()
        finally:
            self._bytes -= size
        if status is Status.OK:
            self.stats.served += len(slices)
            self.stats.served_bytes += size

    async def _tell(self, writer: asyncio.StreamWriter) -> None:
        """What this agent says of itself."""
        told = self._figures() if self._figures is not None else b""
        status = Status.OK if 0 < len(told) <= FIGURES_BYTES_MAX else Status.FAILED
        after = [SIZE.pack(len(told)), told] if status is Status.OK else []
        _send(writer, encode_answer(FIGURES, status, after))
        async with asyncio.timeout(PATIENCE_S):
            await writer.drain()

    async def _find(self, slices: Sequence[SliceRef], recent: bool) -> tuple[Status, list[Buffer]]:
        try:
            found = await self._serve(slices, recent)
        except ChunkMissing:
            return Status.GONE, []
        except (StoreError, TimeoutError) as error:
            _log.info("a peer's slices cannot be read", error=repr(error))
            return Status.FAILED, []
        if any(len(data) != each.length for data, each in zip(found, slices, strict=True)):
            return Status.FAILED, []
        return Status.OK, found


def _listening(host: str, port: int) -> socket.socket:
    """Raises OSError when the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.create_server((host, port), family=family, backlog=BACKLOG)
    made.setblocking(False)
    return made


def _probed(connected: Any) -> None:
    """Have the system end the connection of a peer whose machine is gone, which says nothing for ever.

    Raises OSError when it ended. Systems have some of these options; `connected` is None in a simulation.
    """
    if connected is None:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    gone_ms = (PROBE_AFTER_S + PROBES_MAX * PROBE_AGAIN_S) * 1000
    for name, value in (
        ("TCP_KEEPIDLE", PROBE_AFTER_S), ("TCP_KEEPALIVE", PROBE_AFTER_S),  # Linux', macOS'
        ("TCP_KEEPINTVL", PROBE_AGAIN_S), ("TCP_KEEPCNT", PROBES_MAX),
        ("TCP_USER_TIMEOUT", gone_ms),  # where something was sent, which nobody takes: then it is not probed
    ):  # fmt: skip
        option = getattr(socket, name, None)
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


def _send(writer: asyncio.StreamWriter, parts: Iterable[Buffer]) -> None:
    """Raises ConnectionResetError when the peer has gone away: uvloop says that with a RuntimeError."""
    if writer.is_closing():
        raise ConnectionResetError("the peer went away")
    writer.writelines(parts)
