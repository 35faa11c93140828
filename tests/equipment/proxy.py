"""A TCP proxy that makes a link's faults happen: delay, cut one way, hold and release, reset, refuse.

Each direction of the link is a Lane. Without framing, whatever arrives is passed on as it comes; with
`framing=kafka_frames` (4 bytes of length, then that many) a lane's `rule` decides frame by frame, so
that one answer can be dropped, doubled or held after its request was forwarded while the connection
goes on.
"""

from __future__ import annotations

import asyncio
import enum
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

READ_BYTES = 1 << 16
TURNS_OF_ACCEPTING = (
    5  # of the loop, until a socket that was accepted comes to `_accept`; closed before, it is nobody's
)
Framing = Callable[[bytearray], Iterator[bytes]]


class Action(enum.Enum):
    """What becomes of one frame."""

    PASS = "pass"
    DROP = "drop"
    DOUBLE = "double"
    HOLD = "hold"  # until Lane.release(); later frames of the lane pass it
    COPY = "copy"  # passed, and a copy of it is held
    RESET = "reset"  # the whole connection, both ways


def kafka_frames(buffer: bytearray) -> Iterator[bytes]:
    """Take the whole frames off the front of `buffer`."""
    while len(buffer) >= 4:
        (size,) = struct.unpack_from(">i", buffer)
        if len(buffer) < 4 + size:
            return
        frame = bytes(buffer[: 4 + size])
        del buffer[: 4 + size]
        yield frame


def whatever_arrives(buffer: bytearray) -> Iterator[bytes]:
    """No framing."""
    if buffer:
        yield bytes(buffer)
        buffer.clear()


@dataclass
class Lane:
    """One direction of the link, for all its connections. Change the fields at any time.

    `cut` swallows everything; what it swallowed is lost even after `cut` is lifted, so without framing
    reset the connections before that. `rule` sees every whole frame.
    """

    cut: bool = False
    delay_s: float = 0.0
    rule: Callable[[bytes], Action] | None = None
    passed_bytes: int = 0
    dropped_bytes: int = 0
    _held: list[tuple[bytes, asyncio.StreamWriter]] = field(default_factory=list)

    @property
    def held(self) -> int:
        """How many frames wait for release()."""
        return len(self._held)

    def holds(self, writer: asyncio.StreamWriter) -> bool:
        """Whether something of this connection is held: it then outlives the client's end of it."""
        return any(held is writer for _, held in self._held)

    def release(self) -> list[bytes]:
        """Send what is held, in order, on the connections it came from, though the client may have left.

        Those frames whose connection still stood.
        """
        held, self._held = self._held, []
        sent = []
        for frame, writer in held:
            with suppress(OSError, RuntimeError):
                if not writer.is_closing():
                    writer.write(frame)
                    sent.append(frame)
        return sent

    async def carry(self, frame: bytes, writer: asyncio.StreamWriter) -> bool:
        """Do to one frame what was ordered; False when the connection must be reset."""
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        action = Action.DROP if self.cut else self.rule(frame) if self.rule is not None else Action.PASS
        if action is Action.DROP:
            self.dropped_bytes += len(frame)
        elif action is Action.HOLD:
            self._held.append((frame, writer))
        elif action is not Action.RESET:
            if action is Action.COPY:
                self._held.append((frame, writer))
            writer.write(frame * 2 if action is Action.DOUBLE else frame)
            self.passed_bytes += len(frame)
            await writer.drain()
        return action is not Action.RESET


class Proxy:
    """Listens on a port of its own and forwards to `host:port`.

    `async with Proxy("127.0.0.1", 9092) as link: client = connect(link.address); link.answers.cut = True`
    """

    def __init__(self, host: str, port: int, framing: Framing = whatever_arrives) -> None:
        self._target = (host, port)
        self._framing = framing
        self.requests = Lane()  # from the client to the server
        self.answers = Lane()  # from the server to the client
        self.port = 0
        self.opened = 0  # connections, from the beginning
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._silenced: list[asyncio.StreamWriter] = []
        self._tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def address(self) -> str:
        """host:port for the client."""
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """Connections open now."""
        return len(self._writers) // 2

    async def start(self) -> Self:
        """Listen; on the same port as before when started again."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def refuse(self) -> None:
        """New connections are refused until start(); those that are open stay."""
        if self._server is not None:
            for listening in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listening.fileno())
            for _ in range(TURNS_OF_ACCEPTING):
                await asyncio.sleep(0)
            self._server.close()
            self._server = None

    def reset(self) -> None:
        """Break every open connection with a TCP reset, and forget what is held."""
        self.requests._held.clear()
        self.answers._held.clear()
        for writer in self._writers:
            _abort(writer)

    def silence(self) -> None:
        """Connections open now stay open and never hear an answer again; new ones work."""
        self._silenced += self._writers

    def heal(self) -> None:
        """No more faults; connections from which bytes are missing are reset."""
        if self.requests.cut or self.answers.cut:
            self.reset()
        for lane in (self.requests, self.answers):
            lane.cut, lane.delay_s, lane.rule = False, 0.0, None
            lane.release()

    async def stop(self) -> None:
        """Stop listening and break every connection."""
        await self.refuse()
        self.reset()
        tasks = dict(self._tasks)
        for task, accepted in tasks.items():
            task.cancel()
            _abort(accepted)  # also when its task never came to run
        await asyncio.gather(*tasks, *(end.wait_closed() for end in tasks.values()), return_exceptions=True)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        task = asyncio.get_running_loop().create_task(self._connect(reader, writer))
        self._tasks[task] = writer
        task.add_done_callback(self._tasks.pop)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            _abort(writer)
            return
        ends = [writer, back]
        self._writers += ends
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, back, self.requests, ends))
                both.create_task(self._pump(there, writer, self.answers, ends))
        finally:
            for end in ends:
                self._writers.remove(end)
                if end in self._silenced:
                    self._silenced.remove(end)
                end.close()
            await asyncio.gather(*(end.wait_closed() for end in ends), return_exceptions=True)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        lane: Lane,
        ends: list[asyncio.StreamWriter],
    ) -> None:
        buffer = bytearray()
        with suppress(OSError):
            while data := await reader.read(READ_BYTES):
                buffer += data
                for frame in self._framing(buffer):
                    if lane is self.answers and writer in self._silenced:
                        lane.dropped_bytes += len(frame)
                    elif not await lane.carry(frame, writer):
                        for end in ends:
                            _abort(end)
                        return
            if not lane.cut and not lane.holds(writer) and writer.can_write_eof():
                writer.write_eof()


def _abort(writer: asyncio.StreamWriter) -> None:
    """Close with a TCP reset, as a crashed peer or a firewall does."""
    connection = writer.get_extra_info("socket")
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
