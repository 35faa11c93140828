"""A network in memory: connections between nodes with latency, one-way cuts and resets.

Bytes of one direction arrive in order; different connections are independent, so messages overtake each other
across them. A cut link holds what is sent until it heals, as TCP's retransmission does; a connection
over it waits. A lost segment comes late, with all that follows on its connection; one that is lost too often
breaks it. A single connection can be held in one direction from a request of a given kind on:
whoever gave it up goes on by another connection, and the request arrives long after. A node that dies resets
its connections. A half-open one is dead and nobody is told: some box between has forgotten it, or the machine
at the other end is gone; only a machine that is back says so to whoever still sends.
"""

from __future__ import annotations

import asyncio
import contextvars
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.sim.late_ends import LATE_END, LateEnds
from tests.sim.loop import NODE, VirtualLoop

CONNECT_S_MAX = 30.0
CONNECT_AGAIN_S, CONNECT_AGAIN_S_MAX = 0.05, 0.4  # over a link that is cut: first, and at most
REFUSED_S_MIN = 0.01  # aiokafka asks again at once, for as long as an agent is down
HELD_S = (0.5, 6.0)
HELD_OF = 0.4
"""How likely a request of a kind that is held is held."""
WRITE_HIGH_BYTES = 256 * 1024
RETRANSMIT_S = 0.2
"""Until a lost segment is sent again the first time; each further time takes twice as long."""
RETRANSMITS_MAX = 6
HALF_OPEN_OF = 0.5
EVENTS = (
    "overtaking",
    "cut off",
    "lost segment",
    "lost too often",
    "reset",
    "half-open",
    "peer gone",
    "reset by a new life",
    LATE_END,
)
"""What is counted, for the coverage."""
HOST = "sim"


@dataclass(slots=True)
class Link:
    """One direction between two nodes. Times in seconds."""

    latency_s: tuple[float, float] = (0.0002, 0.002)
    cut: bool = False
    loss: float = 0.0
    """Share of segments that are lost."""
    newest: float = 0.0
    """When the last message on any connection arrives."""
    held: list[Callable[[], None]] = field(default_factory=list)


@dataclass(slots=True)
class Listening:
    """One open port."""

    node: str
    port: int
    factory: Callable[[], Any]
    context: contextvars.Context
    open: bool = True


class _Socket:
    """What getsockname is asked of."""

    def __init__(self, port: int) -> None:
        self._port = port

    def getsockname(self) -> tuple[str, int]:
        """Host and port."""
        return (HOST, self._port)


class VirtualServer:
    """What create_server gives."""

    def __init__(self, listening: Listening) -> None:
        self._listening = listening
        self.sockets = [_Socket(listening.port)]

    def close(self) -> None:
        """Accept no more."""
        self._listening.open = False

    async def wait_closed(self) -> None:
        """At once."""


class Network:
    """All nodes' links and ports. `trace` is told of everything that happens."""

    def __init__(self, loop: VirtualLoop, trace: Callable[[str], None]) -> None:
        self._loop = loop
        self.trace = trace
        self._ports: dict[int, Listening] = {}
        self._next_port = 10_000
        self._links: dict[tuple[str, str], Link] = {}
        self._ends: dict[str, list[VirtualTransport]] = {}
        self.default_latency_s = (0.0002, 0.002)
        self.messages = 0
        self.held_kinds: frozenset[int] = frozenset()
        """API keys of Kafka whose requests, or their answers, are held."""
        self.late_ends = LateEnds(self)
        self.held: Counter[int] = Counter()
        self.requests: Counter[int] = Counter()
        """By API key, as far as each is written at once."""
        self.events: Counter[str] = Counter()
        """Of EVENTS."""
        self._own = contextvars.copy_context()
        loop.server_factory = self._listen
        loop.connection_factory = self._connect

    def link(self, source: str, target: str) -> Link:
        """The direction from one node name to another (without the life)."""
        key = (_name(source), _name(target))
        if key not in self._links:
            self._links[key] = Link(self.default_latency_s)
        return self._links[key]

    def cut(self, source: str, target: str) -> None:
        """Hold what is sent from `source` to `target`."""
        self.trace(f"cut {source}->{target}")
        self.link(source, target).cut = True

    def heal(self, source: str, target: str) -> None:
        """Let it through again, and what was held."""
        link = self.link(source, target)
        if link.cut:
            self.trace(f"heal {source}->{target}")
            link.cut = False
            held, link.held = link.held, []
            for deliver in held:
                deliver()

    def heal_all(self) -> None:
        """No link is cut any more, and whoever waits on a dead connection is told."""
        for source, target in sorted(self._links):
            self.heal(source, target)
        for name in sorted(self._ends):
            for end in list(self._ends[name]):
                if end.lost or (end.peer is not None and end.peer.gone):
                    end.abort()

    def lose(self, source: str, target: str, share: float) -> None:
        """Lose that share of segments from `source` to `target` from now on."""
        self.link(source, target).loss = share

    def reset(self, node: str) -> None:
        """Every connection of the node breaks."""
        for end in list(self._ends.get(_name(node), ())):
            self.events["reset"] += 1
            end.abort()

    def half_open(self, node: str) -> None:
        """Some of the node's connections die, and neither side is told."""
        for end in self._ends.get(_name(node), ()):
            if not end.lost and end.peer is not None and self._loop.random.random() < HALF_OPEN_OF:
                self.trace(f"half-open {end.node} {end.peer.node}")
                self.events["half-open"] += 1
                end.lost = end.peer.lost = True

    def bury(self, node: str, told: bool = True) -> None:
        """The node's process is gone: its ports are closed, its peers are told unless the machine is gone."""
        for listening in self._ports.values():
            if listening.node == node:
                listening.open = False
        for end in self._ends.pop(_name(node), []):
            if told:
                end.vanish()
            elif end.peer is not None:
                self.events["peer gone"] += 1
                end.gone = True

    def _listen(self, factory: Callable[[], Any], host: str, port: int) -> VirtualServer:
        del host
        if not port:
            port = self._next_port
            self._next_port += 1
        taken = self._ports.get(port)
        if taken is not None and taken.open:
            raise OSError(98, f"port {port} is taken by {taken.node}")
        listening = Listening(NODE.get(), port, factory, contextvars.copy_context())
        self._ports[port] = listening
        return VirtualServer(listening)

    async def _connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:
        del host
        source = NODE.get()
        listening = self._ports.get(int(port))
        if listening is None:
            raise ConnectionRefusedError(111, f"nobody ever listened on port {port}")
        out, back = self.link(source, listening.node), self.link(listening.node, source)
        again_s = CONNECT_AGAIN_S
        async with asyncio.timeout(CONNECT_S_MAX):
            while out.cut or back.cut:  # as SYNs are sent again
                await asyncio.sleep(again_s)
                again_s = min(2 * again_s, CONNECT_AGAIN_S_MAX)
        least_s = 0.0 if listening.open else REFUSED_S_MIN
        await asyncio.sleep(max(least_s, self.delay(out) + self.delay(back)))
        if not listening.open:
            raise ConnectionRefusedError(111, f"nobody listens on port {port} any more")
        near, far = factory(), listening.context.run(listening.factory)
        mine = VirtualTransport(self, source, near, contextvars.copy_context())
        theirs = VirtualTransport(self, listening.node, far, listening.context.copy())
        mine.peer, theirs.peer, mine.link, theirs.link = theirs, mine, out, back
        for end in (mine, theirs):
            self._ends.setdefault(_name(end.node), []).append(end)
        theirs.call(far.connection_made, theirs)
        near.connection_made(mine)
        return mine, near

    def noted(self, node: str, data: bytes) -> None:
        """Bytes leave a node: in the trace by size and checksum, so that two runs can be compared."""
        self.messages += 1
        self.trace(f"{node} {len(data)} {zlib.crc32(data):08x}")

    def delay(self, link: Link) -> float:
        """A latency of the link, drawn anew."""
        low, high = link.latency_s
        return low + self._loop.random.random() * (high - low)

    def maybe_hold(self, end: VirtualTransport, frame: bytes) -> None:
        """Hold the connection from this request of a client's on, or its answers, for a while."""
        kind = int.from_bytes(frame[4:6], "big") if len(frame) > 6 else -1
        random = self._loop.random
        if kind not in self.held_kinds or end.agent or random.random() > HELD_OF:
            return
        source = end if random.random() < 0.5 else end.peer
        if source is None or source.held is not None:
            return
        self.hold(source, f"hold {end.node} {'request' if source is end else 'answer'} {kind}", kind)
        self.release_later(source, random.uniform(*HELD_S))

    def hold(self, source: VirtualTransport, what: str, kind: int) -> None:
        """Keep what this end sends from here on, beginning with a message about a request of this kind."""
        self.trace(what)
        self.held[kind] += 1
        source.held = []

    def release_later(self, source: VirtualTransport, late_s: float) -> None:
        """Let it go on after so long."""
        self._loop.call_later(late_s, self.release, source, context=self._own)

    def drawn(self) -> float:
        """A number of the seed's, from 0 to 1."""
        return self._loop.random.random()

    def release(self, source: VirtualTransport) -> None:
        """Let a connection's direction go on."""
        if source.held is not None:
            self.trace(f"release {source.node}")
            held, source.held = source.held, None
            for what in held:
                self.send(source, what)

    def release_all(self) -> None:
        """Hold nothing any more."""
        self.held_kinds, self.late_ends.on, self.late_ends.positions = frozenset(), False, False
        for name in sorted(self._ends):
            for end in list(self._ends[name]):
                self.release(end)

    def forget(self, end: VirtualTransport) -> None:
        """The end is closed."""
        ends = self._ends.get(_name(end.node))
        if ends is not None and end in ends:
            ends.remove(end)

    def send(self, source: VirtualTransport, what: Callable[[], None]) -> None:
        """Deliver `what` at the other end, after everything that was sent before it."""
        peer, link = source.peer, source.link
        assert peer is not None, "sent before it was connected"
        if source.held is not None:
            source.held.append(what)
        elif not source.lost and not source.gone:
            if link.cut or link.held:
                self.events["cut off"] += 1
                link.held.append(lambda: self._deliver(source, peer, link, what))
            else:
                self._deliver(source, peer, link, what)

    def _deliver(
        self, source: VirtualTransport, peer: VirtualTransport, link: Link, what: Callable[[], None]
    ) -> None:
        if peer.gone:
            if _name(peer.node) in self._ends:  # the machine is back and knows nothing of it
                self.events["reset by a new life"] += 1
                self._loop.call_later(self.delay(link), source.abort, context=source.context)
            return
        late = self._retransmitted(link) if link.loss else 0.0
        if late < 0:
            self.events["lost too often"] += 1
            source.abort()
            return
        when = max(self._loop.time() + self.delay(link) + late, source.last_arrival)
        if when < link.newest:
            self.events["overtaking"] += 1
        link.newest = max(when, link.newest)
        source.last_arrival = when
        self._loop.call_at(when, what, context=peer.context)

    def _retransmitted(self, link: Link) -> float:
        """Seconds that the losses of one segment cost; below 0 when it is given up."""
        late, again_s = 0.0, RETRANSMIT_S
        for _ in range(RETRANSMITS_MAX):
            if self._loop.random.random() >= link.loss:
                return late
            self.events["lost segment"] += 1
            late, again_s = late + again_s, 2 * again_s
        return -1.0


class VirtualTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: Network, node: str, protocol: Any, context: contextvars.Context) -> None:
        super().__init__({"peername": (HOST, 1), "sockname": (HOST, 2)})
        self._network = network
        self.node = node
        self.protocol = protocol
        self.context = context
        self.agent = _is_agent(node)
        self.peer: VirtualTransport | None = None
        self.link = Link()  # the way to the peer
        self.last_arrival = 0.0
        self.lost = False
        """Nothing passes any more, either way, and nobody is told."""
        self.gone = False
        """Of a machine that is gone."""
        self.held: list[Callable[[], None]] | None = None
        self._closed = False
        self._reading = True
        self._waiting: list[bytes] = []
        self._in_flight = 0
        self._high = WRITE_HIGH_BYTES
        self._paused_peer = False

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        """Run a callback of this end's protocol in its node."""
        self._network._loop.call_soon(function, *args, context=self.context)

    # What protocols use.

    def set_protocol(self, protocol: Any) -> None:
        """See asyncio."""
        self.protocol = protocol

    def get_protocol(self) -> Any:
        """See asyncio."""
        return self.protocol

    def is_closing(self) -> bool:
        """See asyncio."""
        return self._closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See asyncio."""
        del low
        self._high = WRITE_HIGH_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        """Bytes that the other end has not taken."""
        return self._in_flight

    def write(self, data: Any) -> None:
        """See asyncio."""
        if self._closed or not data:
            return
        copy = bytes(data)
        self._in_flight += len(copy)
        self._network.noted(self.node, copy)
        if not self.agent:
            self._network.requests[int.from_bytes(copy[4:6], "big")] += 1
            self._network.late_ends.written(self, copy)
        if self._network.held_kinds:
            self._network.maybe_hold(self, copy)
        if self._in_flight > self._high and not self._paused_peer:
            self._paused_peer = True
            self.protocol.pause_writing()
        peer = self.peer
        assert peer is not None, "written before it was connected"
        self._network.send(self, lambda: peer._arrive(copy))

    def writelines(self, list_of_data: Any) -> None:
        """See asyncio."""
        self.write(b"".join(bytes(each) for each in list_of_data))

    def can_write_eof(self) -> bool:
        """Not needed by Kafka."""
        return False

    def pause_reading(self) -> None:
        """See asyncio."""
        self._reading = False

    def resume_reading(self) -> None:
        """See asyncio."""
        self._reading = True
        if self._waiting:
            self.call(self._drain)

    def is_reading(self) -> bool:
        """See asyncio."""
        return self._reading

    def close(self) -> None:
        """Deliver what was written, then end."""
        if not self._closed:
            self._end(None)

    def abort(self) -> None:
        """End at once."""
        if not self._closed:
            self._end(None)

    def vanish(self) -> None:
        """The process of this end is gone: only the other end hears of it."""
        if not self._closed:
            self._closed = True
            self._tell_peer()

    def _end(self, error: Exception | None) -> None:
        self._closed = True
        self._network.forget(self)
        self.call(self.protocol.connection_lost, error)
        self._tell_peer()

    def _tell_peer(self) -> None:
        peer = self.peer
        if peer is not None and not peer._closed:
            self._network.send(self, peer._peer_gone)

    def _peer_gone(self) -> None:
        if not self._closed:
            self._drain(force=True)
            self._end_quietly()

    def _end_quietly(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._network.forget(self)
        self.protocol.eof_received()
        self.protocol.connection_lost(ConnectionResetError(104, "connection reset by peer"))

    def _arrive(self, data: bytes) -> None:
        if self._closed:
            return
        self._waiting.append(data)
        self._drain()

    def _drain(self, force: bool = False) -> None:
        while self._waiting and (self._reading or force) and not self._closed:
            data = self._waiting.pop(0)
            _feed(self.protocol, data)
            if self.peer is not None:
                self.peer._taken(len(data))

    def _taken(self, size: int) -> None:
        self._in_flight -= size
        if self._paused_peer and self._in_flight <= self._high // 4 and not self._closed:
            self._paused_peer = False
            self.call(self.protocol.resume_writing)


def _feed(protocol: Any, data: bytes) -> None:
    """Hand bytes to either kind of protocol."""
    if not isinstance(protocol, asyncio.BufferedProtocol):
        protocol.data_received(data)
        return
    view = memoryview(data)
    while view:
        buffer = memoryview(protocol.get_buffer(len(view)))
        size = min(len(buffer), len(view))
        buffer[:size] = view[:size]
        protocol.buffer_updated(size)
        view = view[size:]


def _is_agent(node: str) -> bool:
    """Agents are `a` and a number; clients have other letters."""
    return node[:1] == "a" and node[1:2].isdigit()


def _name(node: str) -> str:
    """The node's name without the number of its life."""
    return node.partition("/")[0]
