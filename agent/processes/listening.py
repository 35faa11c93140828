"""uvicorn inside an event loop that is somebody else's: no signal handlers, no threads."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from objectstore import coalesced, tasks

STOP_S_MAX = 5
STARTED_S = 0.005
"""Between two looks whether it serves."""
TICK_S = 1.0
"""Between two moments at which uvicorn makes its Date header and looks at what is idle."""
CONNECTIONS_MAX = 64
"""Who asks how an agent is: probes, Prometheus, the process that watches it."""
IDLE_S_MAX = 30.0
"""For how long a connection may bring no whole request, or not take its answer. They are few."""


class Quiet(uvicorn.Server):
    """uvicorn, leaving signals to the process's entry. It ends with `leave`, and wakes up once a second.

    uvicorn itself looks ten times a second whether it is to end.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._left = asyncio.Event()

    def leave(self) -> None:
        """End: accept no more, finish what is being served."""
        self.should_exit = True
        self._left.set()

    async def main_loop(self) -> None:
        """See uvicorn.Server: until it is to end."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(coalesced.pause_s(TICK_S)):
                    await self._left.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """See uvicorn.Server: here it captures none."""
        yield

    def _log_started_message(self, listeners: Sequence[socket.SocketType]) -> None:
        """It would say how to stop uvicorn, which is not what runs here."""


class _Short(H11Protocol):
    """A connection that ends where it only takes a place.

    uvicorn bounds the silence behind an answer alone, and not a head that does not end: without this, so many
    connections of clients that are gone would have probes refused until the process ends.
    """

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._stop_waiting()
        self._late = self.loop.call_later(IDLE_S_MAX, self._end)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()

    def _end(self) -> None:
        if self.cycle is None or self.cycle.response_complete:  # else it waits anew once it is answered
            self.transport.abort()


class Listening:
    """Serves a small application on a socket of the network, or on a Unix socket, until stopped."""

    def __init__(
        self, app: ASGIApp, where: socket.socket | Path, context: ssl.SSLContext | None = None
    ) -> None:
        """A path must be free, and in a folder that nobody else may enter. `context`: it speaks TLS."""
        self._bound = None if isinstance(where, Path) else where
        config = uvicorn.Config(
            app,
            uds=str(where) if isinstance(where, Path) else None,
            http=_Short,
            ws="none",
            proxy_headers=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=STOP_S_MAX,
            limit_concurrency=CONNECTIONS_MAX,
        )
        config.load()
        config.ssl = context  # as it is, with what renews it: uvicorn would make one of files
        self._server = Quiet(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve. Raises OSError for a path that cannot be bound."""
        sockets = None if self._bound is None else [self._bound]
        self._task = tasks.owned(self._server.serve(sockets=sockets), "listening")
        while not self._server.started:
            if self._task.done():
                await self._task
            await asyncio.sleep(STARTED_S)

    async def stop(self) -> None:
        """Stop accepting, finish what is being served within STOP_S_MAX seconds. Idempotent."""
        self._server.leave()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)


def bound(what: str, host: str, port: int) -> socket.socket:
    """A socket on an address; port 0 takes a free one. Raises OSError that names `what`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise OSError(error.errno, f"{what}: cannot bind {host}:{port}: {error.strerror}") from None
    found.setblocking(False)
    return found
