"""The request of a connection that waits without a task: it is known that there is nothing for it yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct

from agent.net.connection import Connection, Slot
from agent.net.listening import ConnectionInfo, Parked
from agent.net.wire.api import APIS
from agent.net.wire.frame import frame_response
from agent.telemetry.metrics import Metrics

_FIXED = Struct(">hhi").unpack_from  # what each request begins with: API key, version, correlation id

Serve = Callable[[memoryview, Slot, float], None]
"""Dispatch the frame after all: its place, and how long it has waited, seconds."""


class Parking:
    """Of one connection, in its event loop. One request at most: the next one comes behind it."""

    __slots__ = (
        "_begun", "_head", "_info", "_loop", "_machine", "_metrics", "_sent", "_serve", "_slot", "_waiting",
    )  # fmt: skip

    def __init__(
        self,
        info: ConnectionInfo,
        machine: Connection,
        metrics: Metrics,
        serve: Serve,
        sent: Callable[[], None],
    ) -> None:
        """`sent` is called when there is an answer to send."""
        self._info, self._machine, self._metrics = info, machine, metrics
        self._serve, self._sent = serve, sent
        self._loop = asyncio.get_running_loop()
        self._waiting: Parked | None = None
        self._slot = Slot()
        self._head, self._begun = (0, 0, 0), 0.0

    def begin(self, frame: memoryview, slot: Slot) -> bool:
        """Whether the request waits here; its frame is worked off then."""
        again = self._info.again
        waiting = None if again is None else again(frame, self)
        if waiting is None:
            return False
        self._waiting, self._slot, self._begun = waiting, slot, self._loop.time()
        self._head = _FIXED(frame)
        self._machine.release(frame)
        return True

    def end(self) -> None:
        """The connection is gone."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()

    def answer(self, body: bytes) -> None:
        """The wait is over, with this answer."""
        self._waiting = None
        key, version, correlation_id = self._head
        api = APIS[key]
        self._machine.answer(self._slot, [b"".join(frame_response(api, version, correlation_id, [body]))])
        bound = self._metrics.request(api.name)
        bound.count.inc()
        bound.seconds.observe(self._loop.time() - self._begun)
        self._sent()

    def serve(self, frame: bytes) -> None:
        """It is to be served as any other request, in the turn that it has; `frame` without its size."""
        self._waiting = None
        self._serve(memoryview(frame), self._slot, self._loop.time() - self._begun)
