"""The link tool does what it is told, and nothing else."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from tests.contract.log_labs import until
from tests.equipment.proxy import Action, Proxy, kafka_frames


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Echo:
    """A server that answers every frame with itself, and remembers what came."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while True:
                body = await read_frame(reader)
                self.received.append(body)
                writer.write(frame(body))
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    server = Echo()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def link(echo: Echo) -> AsyncIterator[Proxy]:
    async with Proxy("127.0.0.1", echo.port, kafka_frames) as proxy:
        yield proxy


async def connect(link: Proxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", link.port)


async def test_frames_pass_in_pieces_and_together(link: Proxy) -> None:
    reader, writer = await connect(link)
    for piece in (frame(b"one")[:2], frame(b"one")[2:] + frame(b"two"), frame(b"x" * 200_000)):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.01)
    assert [await read_frame(reader) for _ in range(3)] == [b"one", b"two", b"x" * 200_000]
    writer.close()


async def test_one_answer_is_dropped_after_its_request_was_forwarded(link: Proxy, echo: Echo) -> None:
    link.answers.rule = lambda found: Action.DROP if b"two" in found else Action.PASS
    reader, writer = await connect(link)
    writer.write(frame(b"one") + frame(b"two") + frame(b"three"))
    assert [await read_frame(reader) for _ in range(2)] == [b"one", b"three"]
    assert echo.received == [b"one", b"two", b"three"]
    assert link.answers.dropped_bytes == len(frame(b"two"))
    writer.close()


async def test_a_request_is_doubled(link: Proxy, echo: Echo) -> None:
    link.requests.rule = lambda found: Action.DOUBLE
    reader, writer = await connect(link)
    writer.write(frame(b"one"))
    assert [await read_frame(reader), await read_frame(reader)] == [b"one", b"one"]
    assert echo.received == [b"one", b"one"]
    writer.close()


async def test_a_request_is_held_and_delivered_late(link: Proxy, echo: Echo) -> None:
    link.requests.rule = lambda found: Action.HOLD if b"late" in found else Action.PASS
    reader, writer = await connect(link)
    writer.write(frame(b"late") + frame(b"next"))
    assert await read_frame(reader) == b"next"
    assert link.requests.held == 1
    link.requests.release()
    assert await read_frame(reader) == b"late"
    assert echo.received == [b"next", b"late"]
    writer.close()


async def test_a_rule_resets_the_connection(link: Proxy) -> None:
    link.requests.rule = lambda found: Action.RESET
    reader, writer = await connect(link)
    writer.write(frame(b"one"))
    with pytest.raises(ConnectionResetError):
        await reader.readexactly(1)
    writer.close()


@pytest.mark.parametrize("way", ["requests", "answers"])
async def test_one_way_is_cut(link: Proxy, echo: Echo, way: str) -> None:
    reader, writer = await connect(link)
    lane = getattr(link, way)
    lane.cut = True
    writer.write(frame(b"lost"))
    await until(lambda: lane.dropped_bytes > 0)
    assert echo.received == ([] if way == "requests" else [b"lost"])
    link.heal()
    with pytest.raises(ConnectionResetError):
        await reader.readexactly(1)
    writer.close()
    reader, writer = await connect(link)
    writer.write(frame(b"healed"))
    assert await read_frame(reader) == b"healed"
    writer.close()


async def test_silence_is_for_connections_of_now(link: Proxy) -> None:
    reader, writer = await connect(link)
    writer.write(frame(b"one"))
    assert await read_frame(reader) == b"one"
    link.silence()
    writer.write(frame(b"two"))
    other_reader, other_writer = await connect(link)
    other_writer.write(frame(b"three"))
    assert await read_frame(other_reader) == b"three"
    await until(lambda: link.answers.dropped_bytes > 0)
    assert not reader.at_eof()
    writer.close()
    other_writer.close()


async def test_new_connections_are_refused_and_taken_again(link: Proxy) -> None:
    reader, writer = await connect(link)
    writer.write(frame(b"one"))
    assert await read_frame(reader) == b"one"
    await link.refuse()
    with pytest.raises(ConnectionRefusedError):
        await connect(link)
    writer.write(frame(b"two"))
    assert await read_frame(reader) == b"two"
    await link.start()
    _, again = await connect(link)
    again.close()
    writer.close()


@pytest.mark.parametrize("turns", range(7))
async def test_nobody_is_left_who_comes_while_it_stops(echo: Echo, turns: int) -> None:
    """A connection that the loop is about to hand over is closed too; pytest tells of those that are not."""
    proxy = await Proxy("127.0.0.1", echo.port).start()
    with socket.create_connection(("127.0.0.1", proxy.port)):
        for _ in range(turns):
            await asyncio.sleep(0)
        await proxy.stop()
    gc.collect()
