"""Links that a torture run can break: proxies in an event loop of their own, driven from any thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from tests.equipment.proxy import Framing, Proxy, whatever_arrives

T = TypeVar("T")
SLOW_DOWN = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: 84\r\n"
    b"Connection: close\r\n\r\n"
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>busy now</Message></Error>"
)


class StoreProxy(Proxy):
    """A link to an S3 server that can also answer 503 to everything by itself."""

    busy = False
    refused = 0  # requests answered 503

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.busy:
            return await super()._connect(reader, writer)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(SLOW_DOWN)
            self.refused += 1
            await writer.drain()
        writer.close()
        return None

    def set_busy(self, busy: bool) -> None:
        """Answer 503 from now on, also to clients that are connected (their connections are reset)."""
        self.busy = busy
        self.reset()

    def heal(self) -> None:
        """No more faults."""
        if self.busy:
            self.set_busy(False)
        super().heal()


class LinkLoop:
    """The thread whose loop runs the proxies. Use as a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._proxies: list[Proxy] = []

    def __enter__(self) -> LinkLoop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for proxy in self._proxies:
            self.run(proxy.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the links' loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def link(self, port: int, *, store: bool = False, framing: Framing = whatever_arrives) -> Proxy:
        """A started proxy to 127.0.0.1:`port`."""
        proxy = StoreProxy("127.0.0.1", port) if store else Proxy("127.0.0.1", port, framing)
        self.run(proxy.start())
        self._proxies.append(proxy)
        return proxy

    def do(self, action: Any, *arguments: object) -> None:
        """Call a plain method of a proxy on the loop: do(link.reset)."""

        async def call() -> None:
            action(*arguments)

        self.run(call())
