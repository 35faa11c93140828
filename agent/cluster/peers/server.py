"""Answers other agents from this one's memory, or from the bucket where it owns the chunk.

Connections, requests at once and the bytes of answers under way are bounded; what does not fit is told BUSY,
and the peer reads the bucket itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from agent.cluster.peers.tls import PeerTls
from agent.cluster.peers.wire import (
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

CONNECTIONS_MAX = 1024
BEAT_S = 0.2  # while an answer is being read, the peer is told so this often, seconds
PATIENCE_S = 10.0  # for a handshake, and for a peer to take its answer, seconds

Serve = Callable[[Sequence[SliceRef], bool], Awaitable[list[Buffer]]]
"""The bytes of each slice of a chunk; the flag says that it is recent. Raises StoreError."""


@dataclass(slots=True)
class ServerStats:
    """Counts since the start."""

    served: int = 0
    served_bytes: int = 0
    refused: int = 0


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
    ) -> None:
        self._tls = tls
        self._serve = serve
        self._secret = secret
        self._clock = clock
        self._bytes_max = bytes_max
        self._beat_s = beat_s
        self._bytes = 0
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], None] = {}
        self.stats = ServerStats()

    async def start(self, host: str, port: int) -> int:
        """Listen; gives the bound port. Raises OSError when it is taken."""
        context = None if self._tls is None else self._tls.answering
        patience = None if self._tls is None else PATIENCE_S
        self._server = await asyncio.start_server(
            self._connected, host, port, ssl=context, ssl_handshake_timeout=patience
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Close everything. Idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            writer.close()
            return
        task = tasks.start(self._talk(reader, writer), "talk with a peer")
        self._connections[task] = None
        task.add_done_callback(self._connections.pop)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._shake_hands(reader, writer)
            while True:
                (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
                if size > REQUEST_BYTES_MAX:
                    raise PeerError(f"a request of {size} bytes")
                body = await reader.readexactly(size)
                await self._reply(writer, body)
        except PeerError as error:
            self.stats.refused += 1
            _log.warning("peer refused", reason=str(error))
        except (OSError, EOFError, TimeoutError):
            pass  # it went away, or does not take its answer
        finally:
            writer.transport.abort()

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


def _send(writer: asyncio.StreamWriter, parts: Iterable[Buffer]) -> None:
    """Raises ConnectionResetError when the peer has gone away: uvloop says that with a RuntimeError."""
    if writer.is_closing():
        raise ConnectionResetError("the peer went away")
    writer.writelines(parts)
