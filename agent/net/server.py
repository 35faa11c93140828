"""Kafka's sockets: listeners, connections, back-pressure, limits and a graceful end.

Each connection is an `agent.net.connection.Connection` driven by one BufferedProtocol. A request is
dispatched in a task of its own once its frame is whole and its turn has come (pacing.py); tasks of one
connection start in the order of their requests, and answers leave in that order; which of them wait for one
another, the dispatcher decides.
Whatever is wrong with a connection (bytes that are not Kafka, a handler that fails) closes that connection
with one log line; nothing here ends the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

import structlog

from agent.net.admission import Admission, Gate
from agent.net.connection import SCRATCH_BYTES, Budget, Connection, Limits, Slot
from agent.net.encrypted import Encrypted
from agent.net.listening import ConnectionInfo, Dispatch, Listener, RequestContext
from agent.net.muting import Muting
from agent.net.pacing import Line, Pacing
from agent.net.parking import Parking
from agent.net.room import Room
from agent.net.shared import Shared
from agent.net.software import learn
from agent.net.strangers import Strangers
from agent.net.wire.api import API_VERSIONS, APIS
from agent.net.wire.errors import WireError
from agent.net.wire.frame import (
    BadVersion,
    RequestHeader,
    frame_response,
    parse_request_header,
    unsupported_api_versions,
)
from agent.telemetry.logs import request_id
from agent.telemetry.metrics import Metrics
from objectstore import coalesced, tasks

log = structlog.get_logger(__name__)

FETCH: Final = 1
WRITE_HIGH_BYTES: Final = 1024 * 1024
"""Bytes in a socket's send buffer above which answers wait in the connection."""
SWEEP_S: Final = 5.0
"""Time between two looks for idle and stalled connections, seconds; less when their limits are lower."""
LINGER_S: Final = 1.0
"""How long a connection that is drained waits for its client to hang up too, seconds."""
CANCEL_S: Final = 1.0
"""How long cancelled requests have to end, seconds."""
BACKLOG: Final = 1024


class Server:
    """Serves Kafka connections on any number of listeners."""

    def __init__(
        self,
        dispatch: Dispatch,
        limits: Limits | None = None,
        metrics: Metrics | None = None,
        reads: Collection[int] = (FETCH,),
        admission: Admission | None = None,
    ) -> None:
        """`reads`: keys of the APIs whose requests end with their connection. `admission`: None: all."""
        limits = limits or Limits()
        budget = Budget(limits.process_bytes_max)
        scratch = memoryview(bytearray(SCRATCH_BYTES))
        strangers = Strangers(limits.strangers_max, limits.login_s_max)
        told, turned = metrics or Metrics(), strangers.in_turn(dispatch)
        pacing = Pacing(limits.requests_in_flight_max)
        self._shared = Shared(turned, limits, told, budget, scratch, reads, strangers, admission, pacing)
        self._shared.metrics.request_bytes.set_function(lambda: budget.used)
        self._shared.metrics.strangers.set_function(strangers.__len__)
        self._shared.metrics.requests_waiting.set_function(lambda: pacing.waiting)
        self._servers: list[asyncio.Server] = []
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, listeners: Sequence[Listener]) -> list[int]:
        """Listen; gives the bound port of each listener. Raises OSError when one is taken."""
        loop = asyncio.get_running_loop()
        ports = []
        try:
            for listener in listeners:
                server = await loop.create_server(
                    partial(_accepted, self._shared, listener),
                    listener.host,
                    listener.port,
                    backlog=BACKLOG,
                )
                self._servers.append(server)
                ports.append(server.sockets[0].getsockname()[1])
        except OSError:
            self.stop_accepting()
            raise
        self._sweeper = tasks.kept(self._sweep, "sweeping of connections")
        return ports

    @property
    def connections(self) -> int:
        """Connections open now."""
        return len(self._shared.live)

    @property
    def request_bytes(self) -> int:
        """Request bytes held now, over all connections."""
        return self._shared.budget.used

    @property
    def draining(self) -> bool:
        """Whether nothing more is read."""
        return self._shared.draining

    def stop_accepting(self) -> None:
        """Close the listening sockets; connections stay."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    def hang_up(self, connection: int, why: WireError) -> None:
        """Read no more of a connection, by its number; it is closed once all that has come is answered."""
        protocol = self._shared.live.get(connection)
        if protocol is not None:
            protocol.doom(why)

    def drop_all(self) -> None:
        """Cut every connection at once, unread and unanswered: what to do when waking from a pause."""
        for protocol in list(self._shared.live.values()):
            protocol.abort("dropped")

    async def drain(self, timeout_s: float) -> None:
        """Stop accepting and reading, let requests in flight finish and their answers leave, close.

        What has not finished after `timeout_s` seconds is cut and cancelled.
        """
        shared = self._shared
        self.stop_accepting()
        shared.draining = True
        for protocol in list(shared.live.values()):
            protocol.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while shared.live:
                    shared.empty.clear()
                    await shared.empty.wait()
        self.drop_all()
        for task in list(shared.tasks):
            task.cancel()
        if shared.tasks:
            await asyncio.wait(list(shared.tasks), timeout=CANCEL_S)
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    async def _sweep(self) -> None:
        limits = self._shared.limits
        pause = min(SWEEP_S, limits.idle_s_max / 4, limits.stall_s_max / 4, limits.login_s_max / 4)
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(coalesced.pause_s(pause))
            now = loop.time()
            self._shared.strangers.sweep(now)
            for protocol in list(self._shared.live.values()):
                protocol.sweep(now)


def _accepted(shared: Shared, listener: Listener) -> asyncio.BaseProtocol:
    """What a new connection of the listener begins with."""
    admission = shared.admission
    if admission is None or not admission.wanted(listener.limits):
        return _let_in(shared, listener, None)
    return Gate(admission, listener.name, listener.limits, partial(_let_in, shared, listener))


def _let_in(shared: Shared, listener: Listener, gone: Callable[[], None] | None) -> asyncio.BufferedProtocol:
    """What it goes on with. `gone` is called when it ends."""
    if listener.tls is None:
        return _Protocol(shared, listener, gone)

    def refused(one: Encrypted, reason: str) -> None:
        peer = one.get_extra_info("peername") or ("",)
        shared.metrics.handshakes_failed.labels(listener.name).inc()
        log.warning("TLS handshake failed", peer=str(peer[0]), listener=listener.name, reason=reason)

    speaks = "SASL_SSL" if listener.login else "SSL"
    app = partial(_Protocol, shared, listener)
    return Encrypted(listener.tls, shared.encrypted, shared.strangers, app, refused, speaks, gone)


class _Protocol(asyncio.BufferedProtocol):
    """Drives one Connection."""

    def __init__(self, shared: Shared, listener: Listener, gone: Callable[[], None] | None = None) -> None:
        self._shared, self._gone = shared, gone
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._machine = Connection(shared.limits, shared.budget, shared.scratch, self._update_reading)
        self._transport: asyncio.Transport | None = None
        self._info = ConnectionInfo(0, listener.name, "")
        self._muting = Muting(self._loop, self._update_reading)
        self._info.room, self._info.mute = self._room, self._muting.mute
        self._info.stranger, self._info.welcome = listener.login, self._welcome
        self._reads: dict[asyncio.Task[None], None] = {}
        self._parking = Parking(self._info, self._machine, shared.metrics, self._unpark, self._send)
        self._rooms, self._line = Room(self._loop), Line(self._begin)
        self._unsent = 0
        self._reading = self._writable = True
        self._sending = self._doomed = self._lingering = self._cut = False
        self._last = self._loop.time()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "writelines")
        self._transport = connected = cast(asyncio.Transport, transport)  # uvloop's derive from nothing
        shared = self._shared
        peer = transport.get_extra_info("peername")
        self._info.peer_host = str(peer[0]) if isinstance(peer, tuple) else str(peer or "")
        if shared.draining or len(shared.live) >= shared.limits.connections_max:
            shared.metrics.connections_refused.inc()
            self.abort("refused: connections_max is reached" if not shared.draining else "refused: stopping")
            return
        shared.last_id += 1
        self._info.id = shared.last_id
        shared.live[self._info.id] = self
        shared.metrics.connections.set(len(shared.live))
        connected.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        if principal := transport.get_extra_info("principal"):
            self._info.principal = principal
            log.info("connection by a certificate", **self._names(), principal=principal)
        if self._info.stranger:
            self._machine.narrow(shared.limits.stranger_frame_bytes_max)
            shared.strangers.enter(self, self._loop.time(), self.abort)

    def _welcome(self, principal: str) -> None:
        """See ConnectionInfo. What was held short is not any more."""
        self._info.principal, self._info.stranger = principal, False
        self._shared.strangers.leave(self)
        self._machine.widen()
        self._update_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shared.scratch if self._lingering else self._machine.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._lingering:
            return
        self._last = self._loop.time()
        self._shared.metrics.bytes_in.inc(nbytes)
        frames = self._machine.received(nbytes)
        for frame in frames:
            if self._doomed:
                self._machine.release(frame)
            else:
                self._shared.pacing.come(self._line, frame, self._machine.open())
        if self._machine.failed and not self._doomed:
            self._doom(None, self._machine.failed)
        if frames and self._info.metered:
            self._muting.mute(0)
        self._update_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._machine.close()
        self._shared.strangers.leave(self)
        self._shared.live.pop(self._info.id, None)
        self._shared.metrics.connections.set(len(self._shared.live))
        if not self._shared.live:
            self._shared.empty.set()
        for task in list(self._reads):
            task.cancel()
        self._rooms.let_in()
        self._muting.end()
        if self._gone is not None:
            self._gone()
        if self._info.on_lost is not None:
            self._info.on_lost()
        self._parking.end()

    # What the server calls.

    def abort(self, reason: str) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._cut = True
            log.info("connection cut", **self._names(), reason=reason)
            self._transport.abort()
            self._machine.close()

    def doom(self, why: WireError) -> None:
        """Close for what a request did after its place was given up; what has come since is answered."""
        self._doom(None, why)

    def drain(self) -> None:
        """Read no more; close when everything is answered and sent."""
        self._update_reading()
        self._close_when_done()

    def sweep(self, now: float) -> None:
        """Close when idle or stalled for too long."""
        if self._transport is None:
            return
        unsent, before = self._transport.get_write_buffer_size(), self._unsent
        self._unsent = unsent
        if unsent < before:  # the client reads, however slowly
            self._last = now
        quiet = now - self._last
        if self._machine.in_flight and not self._rooms.waited_for:
            return
        if self._machine.mid_frame and not self._machine.waiting and self._reading:
            if quiet > self._shared.limits.stall_s_max:
                self.abort(f"stopped in the middle of a request for {quiet:.0f} s")
        elif quiet > self._shared.limits.idle_s_max:
            self.abort(f"idle for {quiet:.0f} s")

    # Requests.

    def _begin(self, frame: memoryview, slot: Slot) -> None:
        """Dispatch one request whose turn it is, unless it can wait without that or nobody is left for it."""
        if self._cut or slot.cut:
            self._machine.release(frame)
            return
        if not (self._reading or self._line.waiting):
            self._update_reading()
        lost = self._transport is None
        if not lost and self._machine.in_flight == 1 and self._parking.begin(frame, slot):
            return
        try:
            header = parse_request_header(frame)
        except WireError as error:
            self._machine.release(frame)
            self._refuse(slot, error)
            return
        if lost and header.api_key in self._shared.reads:  # a write goes on
            self._machine.release(frame)
            return
        self._info.only_api_versions &= header.api_key == API_VERSIONS
        self._start(header, self._serve(self._context(header, frame), header, slot))

    def _unpark(self, frame: memoryview, slot: Slot, waited_s: float) -> None:
        """Dispatch one that has waited."""
        context = self._context(header := parse_request_header(frame), frame)
        context.waited_s, context.has_turn = waited_s, True
        self._start(header, self._serve_late(context, header, slot))

    def _context(self, header: RequestHeader, frame: memoryview) -> RequestContext:
        return RequestContext(
            self._info, header.api_key, header.api_version, header.correlation_id, header.client_id, frame
        )

    def _start(self, header: RequestHeader, work: Coroutine[Any, Any, None]) -> None:
        task = tasks.start(work, "request", ended=self._ended)
        self._shared.tasks[task] = None
        self._shared.pacing.begins(self._line)
        if header.api_key in self._shared.reads:  # nobody is left to read; a write goes on to its end
            self._reads[task] = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._shared.tasks.pop(task, None)
        self._shared.pacing.ended(self._line)
        self._reads.pop(task, None)

    async def _serve_late(self, context: RequestContext, header: RequestHeader, slot: Slot) -> None:
        self._machine.hold(context.frame)  # here: one that is cancelled before it begins gives nothing back
        await self._serve(context, header, slot)

    async def _serve(self, context: RequestContext, header: RequestHeader, slot: Slot) -> None:
        request_id.set(f"{self._info.id}-{context.correlation_id}")
        api = APIS[context.api_key]
        begun = slot.came or self._loop.time() - context.waited_s
        frame = context.frame
        body = frame[header.body :]
        try:
            if context.api_key == API_VERSIONS:
                learn(self._info, context.api_version, body)
            answer = await self._shared.dispatch(context, header, body)
            version = context.api_version
            framed = None if answer is None else frame_response(api, version, context.correlation_id, answer)
            self._machine.answer(slot, framed)
        except WireError as error:
            self._refuse(slot, error)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                self.abort(f"{api.name} was cancelled")
                raise
            tasks.tell(f"{api.name} v{context.api_version}", error)
            self._doom(slot, WireError(f"{api.name} v{context.api_version} failed in the agent"))
        finally:
            self._machine.release(frame)
        bound = self._shared.metrics.request(api.name)
        bound.count.inc()
        bound.seconds.observe(self._loop.time() - begun)
        if not self._sending:  # at the end of this round of the loop: one flush answers many
            self._sending = True
            self._loop.call_soon(self._send)

    def _refuse(self, slot: Slot, error: WireError) -> None:
        if not (isinstance(error, BadVersion) and error.api.key == API_VERSIONS):
            self._doom(slot, error)
            return
        body = unsupported_api_versions()
        self._machine.answer(slot, frame_response(error.api, 0, error.correlation_id, body))
        self._send()

    def _doom(self, slot: Slot | None, error: WireError) -> None:
        """Close for what happened at this place, with one log line, once everything before is answered."""
        if not self._doomed and self._transport is not None:
            self._doomed = True
            self._shared.metrics.frames_refused.inc()
            log.warning("connection closed for a request", **self._names(), reason=str(error))
        self._machine.cut(slot, error)
        self._send()

    def _names(self) -> dict[str, Any]:
        return {"connection": self._info.id, "peer": self._info.peer_host, "listener": self._info.listener}

    # Back-pressure.

    def _send(self) -> None:
        self._sending = False
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._writable and self._machine.outbox:
            self._last = self._loop.time()
            self._shared.metrics.bytes_out.inc(self._machine.outbox_bytes)
            transport.writelines(self._machine.take())
        self._update_reading()
        self._close_when_done()

    def _held(self, transport: asyncio.Transport) -> int:
        """Answer bytes that the transport holds for a slow client."""
        return 0 if self._writable else transport.get_write_buffer_size()

    def _room(self) -> asyncio.Future[None] | None:
        """See ConnectionInfo. What is held is sent, or `sweep` cuts a client that reads none of it."""
        transport = self._transport
        if transport is None or not self._machine.crowded(self._held(transport)):
            return None
        return self._rooms.wanted()

    def _update_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._lingering:
            return
        unsent = self._held(transport)
        if not self._machine.crowded(unsent):
            self._rooms.let_in()
        held = self._shared.draining or self._muting.on or self._line.waiting
        wanted = not held and self._machine.wants_read(unsent)
        if wanted and not self._reading:
            self._reading = True
            transport.resume_reading()
        elif self._reading and not wanted:
            self._reading = False
            transport.pause_reading()

    def _close_when_done(self) -> None:
        done = not self._machine.in_flight and not self._machine.outbox
        if not done or self._transport is None:
            return
        if self._doomed:
            self._transport.close()
        elif self._shared.draining and not self._lingering:
            self._linger(self._transport)

    def _linger(self, transport: asyncio.Transport) -> None:
        """Say that nothing more comes, and throw away what the client sends until it hangs up.

        A socket that is closed with unread input is reset, and the kernel forgets what was on its way: the
        client would have the beginning of an answer.
        """
        if not transport.can_write_eof():
            transport.close()
            return
        self._lingering = True
        transport.write_eof()
        transport.resume_reading()
        self._loop.call_later(LINGER_S, self._unheard)

    def _unheard(self) -> None:
        """The client did not hang up."""
        if self._transport is not None:
            self._transport.close()
