"""A connection of HTTP: uvicorn's, behind TLS where there is that, and cut where it only takes a place.

A connection that waits for its client is idle: before a request's head is complete, between requests, and
while there is more of an answer than the client takes. Anybody can open such ones, so they are few and short:
the oldest goes for a new one, and a head that does not end within KEEP_ALIVE_S ends the connection. Whoever
takes some of his answer every KEEP_ALIVE_S gets all of it. For bodies agent/http/answers.py waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from agent.http.identity import PRINCIPAL
from agent.net.encrypted import Encrypted
from agent.net.strangers import Strangers
from agent.net.tls import Tls
from agent.telemetry.logs import logger
from agent.telemetry.metrics import Metrics

KEEP_ALIVE_S: Final = 30
"""For how long a connection may be idle, seconds."""
READ_BYTES: Final = 64 * 1024
"""Read from a socket at once, bytes."""
NOT_TLS: Final = "plain HTTP came to a port with TLS: use https://"
_ANSWER: Final = (
    f"HTTP/1.1 400 Bad Request\r\nContent-Length: {len(NOT_TLS)}\r\nConnection: close\r\n\r\n{NOT_TLS}"
)
_log = logger("http")


class Http(H11Protocol):
    """One connection's requests. `idle` is shared by all."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        idle: Strangers,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._idle, self._waits = idle, False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._await()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_served():
            self._await()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._served()
        super().connection_lost(exc)

    def sweep(self) -> None:
        """Idle once uvicorn has closed it too, which it does not tell: then it waits for its client alone."""
        if self.transport.is_closing() and not self._waits:
            self._await()

    def _is_served(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _look(self) -> None:
        if self._is_served() and not self.flow.write_paused and not self.transport.is_closing():
            self._served()

    def _await(self) -> None:
        """Idle from now on."""
        self._served()
        self._waits = True
        self._idle.enter(self, self.loop.time(), self._cut, self.transport.get_write_buffer_size)

    def _served(self) -> None:
        self._waits = False
        self._idle.leave(self)

    def _cut(self, _reason: str) -> None:
        self._waits = False
        self.transport.abort()


class Https(Encrypted):
    """TLS in front of a connection's requests: a transport to uvicorn."""

    def write(self, data: bytes) -> None:
        """As asyncio's transports do."""
        self.writelines((data,))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Of the socket; uvicorn goes by `sslcontext` for the scheme."""
        return self.context if name == "sslcontext" else super().get_extra_info(name, default)

    def not_tls(self, first: bytes) -> str:
        """Whoever speaks HTTP is told by HTTP."""
        if self._raw is not None and first[:1].isalpha():
            self._raw.write(_ANSWER.encode())
        return NOT_TLS


class _Decrypted(asyncio.BufferedProtocol):
    """Hands what was decrypted to uvicorn, and the name that the certificate gives."""

    def __init__(self, scratch: memoryview, made: Callable[[str], Http]) -> None:
        self._scratch, self._made = scratch, made
        self._http: Http | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._http = self._made(transport.get_extra_info("principal"))
        self._http.connection_made(transport)  # type: ignore[arg-type]  # it has what is used of a transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        if self._http is not None:
            self._http.data_received(bytes(self._scratch[:nbytes]))

    def pause_writing(self) -> None:
        if self._http is not None:
            self._http.pause_writing()

    def resume_writing(self) -> None:
        if self._http is not None:
            self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._http is not None:
            self._http.connection_lost(exc)


class Connections:
    """What makes them, for uvicorn: it calls this as it would the class of its own protocol."""

    def __init__(self, tls: Tls | None, idle_max: int, metrics: Metrics | None = None) -> None:
        self._tls, self._metrics = tls, metrics
        self._encrypted, self._plain = (memoryview(bytearray(READ_BYTES)) for _ in range(2))
        self.idle = Strangers(idle_max, KEEP_ALIVE_S)
        self._open: set[Any] = set()

    async def sweep(self) -> None:
        """End those that are idle for too long."""
        for each in list(self._open):
            each.sweep()
        self.idle.sweep(asyncio.get_running_loop().time())

    def __call__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> asyncio.BaseProtocol:
        """A new connection."""
        self._open = server_state.connections  # each is an Http

        def http(principal: str) -> Http:
            state = {**app_state, PRINCIPAL: principal}
            return Http(config, server_state, state, _loop, idle=self.idle)

        if self._tls is None:
            return http("")
        made = partial(_Decrypted, self._plain, http)
        return Https(self._tls, self._encrypted, self.idle, made, self._refused, "https")

    def _refused(self, one: Encrypted, reason: str) -> None:
        peer = one.get_extra_info("peername") or ("",)
        if self._metrics is not None and self._tls is not None:
            self._metrics.handshakes_failed.labels(self._tls.files.listener).inc()
        _log.warning("TLS handshake failed", peer=str(peer[0]), reason=reason)
