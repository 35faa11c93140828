"""Which agent of this zone reads a chunk for all the others, and which chunks are recent."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from agent.cluster.hints import Seeds, mix, rendezvous, seeds
from coordination.state.state import State
from coordination.state.types import Applied, Broker, serving_of
from objectstore.naming import ChunkId, SegmentId

ADDRESSES_MAX = 1024  # agents whose addresses are remembered


class Owner(NamedTuple):
    """The agent to ask: its incarnation tells runs apart. An empty address: this agent itself."""

    incarnation: int
    address: str


class Owners:
    """A view of the state for one agent. Pure but for what it remembers of the entries it saw.

    `state` gives the state of now, `own` this agent's incarnation.
    """

    def __init__(
        self, state: Callable[[], State], own: Callable[[], int], zone: str, recent_max: int
    ) -> None:
        self._state = state
        self._own = own
        self._zone = zone
        self._recent_max = recent_max
        self._recent: OrderedDict[ChunkId | SegmentId, None] = OrderedDict()
        self._next_serial = 0
        self._own_next = 0  # number of this agent's first chunk that no entry seen so far commits
        self._seen: list[Broker] = []
        self._nodes: Seeds = []
        self._addresses: OrderedDict[int, str] = OrderedDict()  # by incarnation, of agents of this zone

    def applied(self, _applied: Applied) -> None:
        """Listener of the replica: note the chunks that came with an entry."""
        self._note_chunks(self._state())

    def reloaded(self, state: State) -> None:
        """Listener of the replica: a snapshot replaced the state."""
        self._next_serial = max(0, state.chunks.next_serial - self._recent_max)
        self._note_chunks(state)

    def recent(self, chunk: ChunkId | SegmentId) -> bool:
        """Whether the chunk is among the newest of the log: its readers read it at about the same time."""
        return chunk in self._recent

    def mine(self, chunk: ChunkId) -> bool:
        """Whether this run of this agent wrote the chunk."""
        return chunk.incarnation == self._own()

    def seen(self, chunk: ChunkId) -> bool:
        """Whether the entry that commits the chunk, one that this run of this agent wrote, has been seen."""
        return chunk.number < self._own_next

    def owner(self, chunk: ChunkId) -> Owner | None:
        """Who reads this chunk for the zone; None when this agent knows of nobody, itself included.

        The author where it lives in this zone: it has the bytes in memory. It counts also while it leaves.
        """
        self._look()
        state, own = self._state(), self._own()
        author = chunk.incarnation
        if author == own:
            return Owner(own, "")
        address = self._addresses.get(author)
        if address is not None and state.is_live(author):
            return Owner(author, address)
        node = rendezvous(mix(chunk.incarnation ^ mix(chunk.number + 1)), self._nodes)
        broker = state.brokers.get(node)
        if broker is None:
            return None
        return Owner(broker.incarnation, "" if broker.incarnation == own else broker.peer_address)

    def _note_chunks(self, state: State) -> None:
        table = state.chunks
        for serial in range(self._next_serial, table.next_serial):
            chunk = table.by_serial.get(serial)
            if chunk is not None:
                self._recent[chunk.id] = None
        self._next_serial = table.next_serial
        author = state.incarnations.get(self._own())
        self._own_next = 0 if author is None else author.next_chunk_number
        while len(self._recent) > self._recent_max:
            self._recent.popitem(last=False)

    def _look(self) -> None:
        brokers = list(self._state().brokers.values())
        if brokers == self._seen:
            return
        self._seen = brokers
        near = [broker for broker in brokers if broker.zone == self._zone and broker.peer_address]
        self._nodes = seeds(broker.node_id for broker in serving_of(near))
        for broker in near:
            self._addresses[broker.incarnation] = broker.peer_address
        while len(self._addresses) > ADDRESSES_MAX:
            self._addresses.popitem(last=False)
