"""Asks a peer for slices: a bounded pool of connections to each, one request at a time on a connection.

A connection on which anything went wrong is closed: an answer that comes late would be taken for another's.
The caller bounds the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from agent.cluster.peers.tls import PeerTls
from agent.cluster.peers.wire import (
    ANSWER,
    FIGURES,
    FIGURES_BYTES_MAX,
    HELLO,
    NONCE_BYTES,
    PROOF_BYTES,
    SIZE,
    PeerAnswered,
    PeerError,
    Status,
    TooManyWait,
    check_answer,
    encode_request,
    proof,
    proven,
)
from coordination.clock import Clock
from objectstore.naming import SliceRef

CONNECTIONS_MAX = 8  # to one peer; more requests wait
WAITING_MAX = 1024  # requests that wait for a connection to one peer: one for each chunk a job reads at once
PEERS_MAX = 256  # peers with open connections
STREAM_BYTES = 1024 * 1024  # read ahead of what is asked for, bytes


class Link:
    """One connection to a peer, both sides proven."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: str, secret: bytes, nonce: bytes, tls: PeerTls | None = None) -> Link:
        """Connect and prove. Raises PeerError, OSError, EOFError."""
        host, _, port = address.rpartition(":")
        context = None if tls is None else tls.asking
        reader, writer = await asyncio.open_connection(
            host.strip("[]"), int(port), limit=STREAM_BYTES, ssl=context
        )
        try:
            writer.write(HELLO + nonce)
            theirs = await reader.readexactly(NONCE_BYTES)
            writer.write(proof(secret, b"client", theirs))
            if not proven(await reader.readexactly(PROOF_BYTES), secret, b"server", nonce):
                raise PeerError(f"{address} does not know this cluster's secret")
        except BaseException:
            writer.close()
            raise
        return cls(reader, writer)

    @property
    def streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """For who says something else on it than `ask`."""
        return self._reader, self._writer

    async def ask(self, slices: Sequence[SliceRef], recent: bool, heard: Callable[[], None]) -> bytes:
        """The slices' bytes, side by side; `heard` at each sign of life.

        Raises PeerError, OSError, EOFError.
        """
        request = encode_request(slices, recent)
        if self._writer.is_closing():  # uvloop says that with a RuntimeError
            raise ConnectionResetError("the peer went away")
        self._writer.write(request)
        status = Status.READING
        while status is Status.READING:
            status = check_answer(await self._reader.readexactly(ANSWER.size), request)
            heard()
        if status is not Status.OK:
            raise PeerAnswered(status)
        return await self._reader.readexactly(sum(each.length for each in slices))

    async def figures(self) -> bytes:
        """What the peer says of itself. Raises as `ask`."""
        request = SIZE.pack(len(FIGURES)) + FIGURES
        if self._writer.is_closing():
            raise ConnectionResetError("the peer went away")
        self._writer.write(request)
        status = check_answer(await self._reader.readexactly(ANSWER.size), request)
        if status is not Status.OK:
            raise PeerAnswered(status)
        (size,) = SIZE.unpack(await self._reader.readexactly(SIZE.size))
        if size > FIGURES_BYTES_MAX:
            raise PeerError(f"{size} bytes of figures")
        return await self._reader.readexactly(size)

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


class _Pool:
    def __init__(self) -> None:
        self.room = asyncio.Semaphore(CONNECTIONS_MAX)
        self.idle: list[Link] = []
        self.waiting = 0


class PeerClient:
    """Connections to peers by address."""

    def __init__(self, secret: bytes, clock: Clock, tls: PeerTls | None = None) -> None:
        self._secret = secret
        self._tls = tls
        self._clock = clock
        self._pools: dict[str, _Pool] = {}

    async def ask(
        self,
        address: str,
        slices: Sequence[SliceRef],
        *,
        recent: bool = True,
        heard: Callable[[], None] = lambda: None,
        begun: Callable[[], None] = lambda: None,
    ) -> bytes:
        """The slices' bytes as the peer at host:port has them; `heard` is called when it shows life.

        `begun` when the request has its turn: what it waits before that is not the peer's time. Raises
        PeerError (PeerAnswered, TooManyWait), OSError, EOFError.
        """
        return await self._asked(address, lambda link: link.ask(slices, recent, heard), begun)

    async def figures(self, address: str) -> bytes:
        """What the peer at host:port says of itself. Raises as `ask`; one of before hangs up: EOFError."""
        return await self._asked(address, lambda link: link.figures(), lambda: None)

    async def _asked(
        self, address: str, work: Callable[[Link], Awaitable[bytes]], begun: Callable[[], None]
    ) -> bytes:
        """One request, on a connection of its own."""
        pool = self._pool(address)
        if pool.waiting >= WAITING_MAX:
            raise TooManyWait(f"{pool.waiting} requests wait for {address} already")
        pool.waiting += 1
        try:
            await pool.room.acquire()
        finally:
            pool.waiting -= 1
        try:
            begun()
            link = pool.idle.pop() if pool.idle else await self.open(address)
            try:
                data = await work(link)
            except BaseException:
                link.close()
                raise
            if self._pools.get(address) is pool:
                pool.idle.append(link)
            else:  # forgotten meanwhile
                link.close()
            return data
        finally:
            pool.room.release()

    async def greet(self, address: str) -> None:
        """Return once the peer shakes hands. Raises PeerError, OSError, EOFError."""
        link = await self.open(address)
        pool = self._pool(address)
        if len(pool.idle) < CONNECTIONS_MAX:
            pool.idle.append(link)
        else:
            link.close()

    def forget(self, address: str) -> None:
        """Close the idle connections to a peer."""
        pool = self._pools.pop(address, None)
        for link in pool.idle if pool is not None else ():
            link.close()

    def close(self) -> None:
        """Close every idle connection."""
        for address in list(self._pools):
            self.forget(address)

    async def open(self, address: str) -> Link:
        """A connection of the caller's own. Raises PeerError, OSError, EOFError."""
        nonce = self._clock.random_bytes(NONCE_BYTES)
        return await Link.open(address, self._secret, nonce, self._tls)

    def _pool(self, address: str) -> _Pool:
        pool = self._pools.get(address)
        if pool is None:
            if len(self._pools) >= PEERS_MAX:
                self.forget(next(iter(self._pools)))
            pool = self._pools[address] = _Pool()
        return pool
