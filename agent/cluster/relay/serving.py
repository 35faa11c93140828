"""Lets other agents follow this one: each is sent what the ring has, from where it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from agent.cluster.peers.wire import Status, encode_answer
from agent.cluster.relay.ring import Cursor, Ring
from agent.cluster.relay.wire import FRAME_BYTES_GOAL, HEAD, WANTS, decode_follow
from objectstore import tasks
from objectstore.store import Buffer

BEAT_S = 0.5  # a follower hears something at least so often, seconds
PATIENCE_S = 10.0  # for a follower to take what it is sent, seconds


class RelayServer:
    """Serves connections of peers that asked to follow. `log` is which one is followed (wire.name_of).

    `ask` is called when somebody waits for a revision of which nothing is known yet.
    """

    def __init__(self, ring: Ring, log: bytes, ask: Callable[[], None], followers_max: int) -> None:
        self.followers = 0
        self.sent_bytes = 0
        self._ring = ring
        self._log = log
        self._ask = ask
        self._followers_max = followers_max
        self._beating: asyncio.Task[None] | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
        """Until it goes, falls behind what is remembered, or this agent follows etcd no more.

        Raises PeerError, OSError, TimeoutError; returns when it was refused and may ask something else.
        """
        request = decode_follow(body)
        cursor = self._ring.find(request.after)
        if request.log != self._log:
            self._send(writer, encode_answer(body, Status.FAILED))
        elif self.followers >= self._followers_max:
            self._send(writer, encode_answer(body, Status.BUSY))
        elif cursor is None:
            self._send(writer, encode_answer(body, Status.GONE))
        else:
            await self._follow(reader, writer, body, cursor)

    async def _follow(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes, cursor: Cursor
    ) -> None:
        self.followers += 1
        if self._beating is None:
            self._beating = tasks.kept(self._beat, "beat for followers")
        hearing = tasks.start(self._hear(reader, writer), "hear a follower")
        try:
            self._send(writer, encode_answer(body, Status.OK))
            await self._feed(writer, cursor)
        finally:
            hearing.cancel()
            self.followers -= 1
            if not self.followers and self._beating is not None:
                self._beating.cancel()
                self._beating = None

    async def _feed(self, writer: asyncio.StreamWriter, cursor: Cursor) -> None:
        told, now = -1, asyncio.get_running_loop().time
        sent_at = now()
        while True:
            news = self._ring.news
            taken = self._ring.take(cursor, FRAME_BYTES_GOAL)
            if taken is None:
                raise ConnectionResetError("what this follower needs is not remembered any more")
            parts, through, cursor = taken
            if not parts and through <= told and now() < sent_at + BEAT_S:
                await news.wait()
                continue
            self._send(writer, [HEAD.pack(HEAD.size - 4 + sum(map(len, parts)), through), *parts])
            told, sent_at = through, now()
            if writer.transport.get_write_buffer_size():
                async with asyncio.timeout(PATIENCE_S):
                    await writer.drain()

    async def _beat(self) -> None:
        """While there are followers: wake them, for one timer serves all."""
        while True:
            await asyncio.sleep(BEAT_S)
            self._ring.wake()

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """What it waits for. Hang up when it goes."""
        try:
            while True:
                (wanted,) = WANTS.unpack(await reader.readexactly(WANTS.size))
                if wanted > self._ring.through:
                    self._ask()
        except (OSError, EOFError):
            writer.transport.abort()

    def _send(self, writer: asyncio.StreamWriter, parts: Sequence[Buffer]) -> None:
        if writer.is_closing():
            raise ConnectionResetError("the follower went away")
        self.sent_bytes += sum(map(len, parts))
        writer.writelines(parts)
