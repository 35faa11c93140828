"""uvicorn inside the agent's own event loop: no signal handlers, no threads, a port known at once."""

from __future__ import annotations

import asyncio

import uvicorn
from starlette.types import ASGIApp

from agent.config import HttpConfig
from agent.http.connections import KEEP_ALIVE_S, Connections
from agent.net.tls import Tls
from agent.processes.listening import STOP_S_MAX, Quiet, bound
from agent.telemetry.metrics import Metrics
from objectstore import tasks

HEADER_BYTES_MAX = 64 * 1024
BACKLOG = 512
CONNECTIONS_PER_REQUEST = 8
"""Open connections allowed per request that may be served at once; most are idle keep-alives."""
IDLE_SHARE = 2
"""One of so many connections may be idle; with one more the oldest of those goes."""


class HttpServer:
    """Serves an ASGI application on `config.host`:`config.port` until stopped."""

    def __init__(
        self, app: ASGIApp, config: HttpConfig, tls: Tls | None = None, metrics: Metrics | None = None
    ) -> None:
        self._config = config
        most = config.requests_in_flight_max * CONNECTIONS_PER_REQUEST
        self.connections = connections = Connections(tls, most // IDLE_SHARE, metrics)
        self._server = Quiet(
            uvicorn.Config(
                app,
                http=connections,  # type: ignore[arg-type]  # called as the class would be
                ws="none",
                proxy_headers=False,  # what ACLs and the audit log call an address is where it came from
                callback_notify=connections.sweep,
                timeout_notify=0,  # at each of its ticks
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=STOP_S_MAX,
                h11_max_incomplete_event_size=HEADER_BYTES_MAX,
                limit_concurrency=most,
            )
        )
        self._task: asyncio.Task[None] | None = None
        self.port = config.port

    async def start(self) -> int:
        """Bind and serve; returns the port. Raises OSError when the address cannot be bound."""
        found = bound("http", self._config.host, self._config.port)
        self.port = int(found.getsockname()[1])
        self._task = tasks.start(self._server.serve(sockets=[found]), "http")
        while not self._server.started:
            if self._task.done():
                await self._task
            await asyncio.sleep(0.005)
        return self.port

    async def stop(self) -> None:
        """Stop accepting, finish what is being served within STOP_S_MAX seconds. Idempotent."""
        self._server.leave()
        if self._task is not None:
            await self._task
            self._task = None
