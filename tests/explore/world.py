"""A small cluster as a value: agents, etcd, the store, messages on their way. Every step makes a new one.

What a real agent does asynchronously is cut into steps here that may be taken in any order; an agent that is
paused is one whose steps are not taken. What is decided (apply, the end of an append, what is garbage, what a
fetch returns) is decided by the product's own code.
"""

from __future__ import annotations

from typing import NamedTuple

from objectstore.naming import ChunkId


class Send(NamedTuple):
    """A produce request: one batch of one record. `attempt` counts the client's tries of any batch."""

    client: int
    batch: int
    attempt: int
    agent: int


Item = tuple[str, int, tuple[tuple[int, int], ...]]
"""A command: its kind, a number (of a chunk, of an incarnation), and a chunk's records as (client, batch)."""


class Ready(NamedTuple):
    """A command that waits for the next entry; `sends` hang on its outcome. Incarnation 0: any will do."""

    item: Item
    sends: tuple[Send, ...]
    incarnation: int


class Attempt(NamedTuple):
    """One append transaction on its way to etcd. `expected`: the key's version that it compares with."""

    incarnation: int
    sequence: int
    expected: int
    items: tuple[Item, ...]


class Append(NamedTuple):
    """The append in flight. `maybe`: an attempt without an answer may have landed."""

    sequence: int
    items: tuple[Item, ...]
    maybe: bool


class Parked(NamedTuple):
    """What hangs on an entry that was sent and is not applied yet."""

    incarnation: int
    sequence: int
    ready: tuple[Ready, ...]


class Agent(NamedTuple):
    """One agent's memory without its state. `chain`: (sequence, version) of its last append."""

    runs: int = 0
    incarnation: int = 0
    registered: bool = False
    chain: tuple[int, int] = (0, 0)
    received: tuple[Send, ...] = ()
    next_chunk: int = 1
    queue: tuple[Ready, ...] = ()
    appending: Append | None = None
    parked: tuple[Parked, ...] = ()


class Key(NamedTuple):
    """An incarnation key in etcd: the append chain's end. `version` counts its writes: equal exactly when its
    mod_revision is, and independent of what else etcd does."""

    incarnation: int
    sequence: int
    version: int


class Etcd(NamedTuple):
    """`head`: the newest entry. Entries up to `trimmed` are gone; `snapshot` is the entry of the newest one,
    `older` of the one before it, which an agent may be loading still."""

    head: int
    keys: tuple[Key, ...]
    trimmed: int
    snapshot: int
    older: int = 0


class Stored(NamedTuple):
    """A chunk that is there, with the records it holds, as (client, batch)."""

    chunk: ChunkId
    records: tuple[tuple[int, int], ...]


class Client(NamedTuple):
    """A producer that sends its batches one after the other. `acked`: base offset per finished batch."""

    batch: int = 0
    attempt: int = 0
    waiting: int = -1  # the agent whose answer it waits for; -1: none
    acked: tuple[int, ...] = ()


class Budget(NamedTuple):
    """How often each misfortune may still happen."""

    messages: int = (
        0  # delayed until later or for ever, answered to nobody, or delivered twice: of either kind below
    )
    requests: int = 0  # at most so many of them between a client and an agent
    appends: int = 0  # and so many between an agent and etcd
    refused: int = -1  # resends after an error, after which a client gives up; -1: as often as it likes
    puts_failed: int = 0  # the store did it and says that it failed
    leases: int = 0  # a lease ends under a living agent
    crashes: int = 0
    trims: int = 0


class World(NamedTuple):
    """Everything. `nodes`: the entry up to which each agent has applied the log."""

    agents: tuple[Agent, ...]
    nodes: tuple[int, ...]
    clients: tuple[Client, ...]
    etcd: Etcd
    stored: tuple[Stored, ...]
    sends: tuple[Send, ...]  # on their way
    attempts: tuple[Attempt, ...]  # on their way
    budget: Budget

    def with_agent(self, number: int, agent: Agent) -> World:
        """The same with one agent changed."""
        return self._replace(agents=(*self.agents[:number], agent, *self.agents[number + 1 :]))

    def with_node(self, number: int, node: int) -> World:
        """The same with one agent further on."""
        return self._replace(nodes=(*self.nodes[:number], node, *self.nodes[number + 1 :]))

    def with_client(self, number: int, client: Client) -> World:
        """The same with one client changed."""
        return self._replace(clients=(*self.clients[:number], client, *self.clients[number + 1 :]))

    def spend(self, what: str) -> World:
        """The same with one misfortune less to come."""
        if getattr(self.budget, what) < 0:
            return self
        left = self.budget._replace(**{what: getattr(self.budget, what) - 1})
        if what in ("requests", "appends"):
            left = left._replace(messages=left.messages - 1)
        return self._replace(budget=left)

    def may(self, what: str) -> bool:
        """Whether such a misfortune may still happen."""
        if what in ("requests", "appends") and not self.budget.messages:
            return False
        return bool(getattr(self.budget, what))
