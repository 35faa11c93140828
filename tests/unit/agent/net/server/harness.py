"""A server on a real socket with a handler of the test's own, and a client that speaks frames."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from agent.net.connection import Limits
from agent.net.listening import Listener, RequestContext
from agent.net.server import Server
from agent.net.wire.api import APIS
from agent.net.wire.frame import RequestHeader, encode_request_header, frame_request
from agent.net.wire.primitives import Buffer

MIB = 1024 * 1024
METADATA, PRODUCE, API_VERSIONS = APIS[3], APIS[0], APIS[18]

Handler = Callable[[RequestContext, memoryview], Awaitable[list[Buffer] | None]]


@asynccontextmanager
async def serving(handler: Handler, **limits: Any) -> AsyncIterator[tuple[Server, int]]:
    async def dispatch(
        context: RequestContext, header: RequestHeader, body: memoryview
    ) -> list[Buffer] | None:
        return await handler(context, body)

    server = Server(dispatch, Limits(**limits))
    (port,) = await server.start([Listener("PLAINTEXT", "127.0.0.1", 0)])
    try:
        yield server, port
    finally:
        await server.drain(0.5)


class Client:
    """A raw socket that speaks frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, correlation_id: int, size: int = 0, api: Any = METADATA, version: int = 8) -> None:
        header = encode_request_header(api, version, correlation_id, "tester")
        self.writer.write(frame_request(header, [bytes(size)]))

    async def frame(self) -> bytes:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)

    async def correlation_id(self) -> int:
        return int.from_bytes((await self.frame())[:4], "big")

    async def closed(self) -> bool:
        with contextlib.suppress(ConnectionError):
            return await self.reader.read(1) == b""
        return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


async def until(reached: Callable[[], bool]) -> None:
    """Wait for something that happens soon, without saying how soon."""
    for _ in range(3000):
        if reached():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


async def echo(context: RequestContext, body: memoryview) -> list[Buffer] | None:
    return [body]
