"""Whether a new connection is let in: how many a listener has, and how fast they come (KIP-402, KIP-612).

A listener's rate makes new connections wait; an address that is too fast waits too, and is then closed, as
in Kafka. Too many at once are closed without a wait. Nothing of it costs anything on a listener without
bounds while there are no quotas of addresses.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

import structlog

from agent.config.quotas import QuotasConfig
from agent.net.rates import Rate
from agent.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)

IPV4_MAPPED: Final = "::ffff:"
EARLY_BYTES_MAX: Final = 64 * 1024
"""What a connection that waits may have sent, bytes; with more it is closed."""
NOTHING: Final = memoryview(b"")


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Bounds of one listener; 0: none."""

    connections_max: int = 0
    connections_per_s: int = 0
    per_ip_max: int = 0
    per_ip: Mapping[str, int] = field(default_factory=dict)
    """For addresses of their own."""

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return bool(self.connections_max or self.connections_per_s or self.per_ip_max or self.per_ip)


UNLIMITED: Final = ListenerLimits()


class Verdict(NamedTuple):
    """What becomes of a connection: after so many seconds it is let in, or closed for a reason."""

    wait_s: float = 0.0
    refusal: str = ""


class Admission:
    """Of one server."""

    def __init__(
        self,
        config: QuotasConfig,
        metrics: Metrics,
        now: Callable[[], float],
    ) -> None:
        """`now`: seconds that only go on."""
        self._config, self._metrics, self._now = config, metrics, now
        self._ip_rate: Callable[[str], float | None] = lambda host: None
        self._ip_rates: Callable[[], bool] = lambda: False
        self._of_listener: Counter[str] = Counter()
        self._of_address: Counter[tuple[str, str]] = Counter()
        self._listener_rates: dict[str, Rate] = {}
        self._address_rates: OrderedDict[str, Rate] = OrderedDict()
        self.held = 0
        """Connections that wait."""

    def limit_addresses(self, rate: Callable[[str], float | None], rates: Callable[[], bool]) -> None:
        """`rate`: connections per second of an address, None: any number. `rates`: whether any has one."""
        self._ip_rate, self._ip_rates = rate, rates

    def wanted(self, limits: ListenerLimits) -> bool:
        """Whether a listener's connections are to be looked at."""
        return limits.any or self._ip_rates()

    def enter(self, listener: str, limits: ListenerLimits, host: str) -> Verdict:
        """One comes. Whoever is let in must `leave`."""
        refusal = self._too_many(listener, limits, host)
        if refusal:
            return Verdict(refusal=refusal)
        now_ms = int(self._now() * 1000)
        wait_ms = self._too_fast(host, now_ms)
        if wait_ms:
            return Verdict(wait_ms / 1000, f"quota connection_creation_rate of {host}")
        self._of_listener[listener] += 1
        self._of_address[listener, host] += 1
        if limits.connections_per_s:
            rate = self._listener_rates.setdefault(listener, self._rate())
            rate.record(1, now_ms)
            wait_ms = min(rate.throttle_ms(limits.connections_per_s, now_ms), self._config.throttle_ms_max)
        return Verdict(wait_ms / 1000)

    def leave(self, listener: str, host: str) -> None:
        """One that was let in is gone."""
        self._of_listener[listener] -= 1
        self._of_address[listener, host] -= 1
        if not self._of_address[listener, host]:
            del self._of_address[listener, host]

    def may_hold(self) -> bool:
        """Whether one more may wait."""
        return self.held < self._config.held_connections_max

    def tell(self, listener: str, host: str, verdict: Verdict) -> None:
        """Count, and log, what is not let in at once."""
        why = "closed" if verdict.refusal else "waited"
        self._metrics.connections_held.labels(listener, why).inc()
        if verdict.refusal:
            log.warning("connection refused", listener=listener, peer=host, reason=verdict.refusal)

    def _too_many(self, listener: str, limits: ListenerLimits, host: str) -> str:
        most = limits.connections_max
        if most and self._of_listener[listener] >= most:
            return f"the listener has {most} connections (connections_max)"
        most = limits.per_ip.get(host, limits.per_ip_max)
        if most and self._of_address[listener, host] >= most:
            return f"the address has {most} connections (connections_per_ip_max)"
        return ""

    def _too_fast(self, host: str, now_ms: int) -> int:
        """How long this address has to wait, milliseconds. What is not let in does not count."""
        bound = self._ip_rate(host)
        if bound is None:
            return 0
        rates = self._address_rates
        rate = rates.setdefault(host, self._rate())
        rates.move_to_end(host)
        while len(rates) > self._config.entities_max:
            rates.popitem(last=False)
        wait_ms = rate.throttle_ms(bound, now_ms, more=1)
        if not wait_ms:
            rate.record(1, now_ms)
        return min(wait_ms, self._config.throttle_ms_max)

    def _rate(self) -> Rate:
        return Rate(self._config.windows, self._config.window_ms)


class Gate(asyncio.Protocol):
    """A new connection until it is let in: then `make` gives what it goes on with."""

    def __init__(
        self,
        admission: Admission,
        listener: str,
        limits: ListenerLimits,
        make: Callable[[Callable[[], None]], asyncio.BufferedProtocol],
    ) -> None:
        """`make` gets what must be called when the connection is gone."""
        self._admission, self._listener, self._limits, self._make = admission, listener, limits, make
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._host = ""
        self._early = b""
        self._entered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = connected = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._host = str(peer[0]).removeprefix(IPV4_MAPPED) if isinstance(peer, tuple) else ""
        verdict = self._admission.enter(self._listener, self._limits, self._host)
        self._entered = not verdict.refusal
        if self._entered and not verdict.wait_s:
            self._let_in()
            return
        self._admission.tell(self._listener, self._host, verdict)
        if not verdict.wait_s or not self._admission.may_hold():
            connected.abort()
            return
        self._admission.held += 1
        then = self._let_in if self._entered else connected.abort
        self._timer = self._loop.call_later(verdict.wait_s, then)

    def data_received(self, data: bytes) -> None:
        """What a client says while it waits is kept."""
        self._early += data
        if self._transport is not None and len(self._early) > EARLY_BYTES_MAX:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._done_waiting()
        if self._entered:
            self._admission.leave(self._listener, self._host)

    def _done_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._admission.held -= 1

    def _let_in(self) -> None:
        self._done_waiting()
        transport, early = self._transport, self._early
        if transport is None or transport.is_closing():
            return
        self._early = b""
        protocol = self._make(self._gone)
        transport.set_protocol(protocol)
        if early:
            Early(transport, protocol, early).begin()
        else:
            protocol.connection_made(transport)

    def _gone(self) -> None:
        self._admission.leave(self._listener, self._host)


class Early:
    """The transport of a connection whose client spoke before it was let in: what it said comes first.

    It comes as from a socket, while the protocol reads, and until all of it has come the socket is not read.
    Anything else is the transport's.
    """

    def __init__(
        self, transport: asyncio.Transport, protocol: asyncio.BufferedProtocol, early: bytes
    ) -> None:
        self._transport, self._protocol = transport, protocol
        self._early = memoryview(early)
        self._paused = False
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def begin(self) -> None:
        """Make it the protocol's connection."""
        self._transport.pause_reading()
        self._protocol.connection_made(self)  # type: ignore[arg-type]  # it has what is used of a transport
        self._go_on()

    def pause_reading(self) -> None:
        """No more comes."""
        self._paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """What was said early comes after the protocol has returned, then the rest."""
        self._paused = False
        if self._early:
            self._loop.call_soon(self._go_on)
        else:
            self._transport.resume_reading()

    def _go_on(self) -> None:
        while self._early and not (self._paused or self._transport.is_closing()):
            buffer = memoryview(self._protocol.get_buffer(-1))
            count = min(len(self._early), len(buffer))
            buffer[:count], self._early = self._early[:count], self._early[count:]
            buffer.release()
            self._protocol.buffer_updated(count)
        if self._early:
            return
        self._early = NOTHING  # a part of it, however small, would keep all of it
        if not (self._paused or self._transport.is_closing()):
            self._transport.resume_reading()
