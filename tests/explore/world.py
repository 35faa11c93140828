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


class Ready(NamedTuple):
    """A command that waits for the next entry; `sends` hang on its outcome. Incarnation 0: any will do."""

    command: bytes
    sends: tuple[Send, ...]
    incarnation: int


class Attempt(NamedTuple):
    """One append transaction on its way to etcd."""

    incarnation: int
    sequence: int
    expected: int
    entry: bytes


class Append(NamedTuple):
    """The append in flight. `maybe`: an attempt without an answer may have landed."""

    sequence: int
    entry: bytes
    maybe: bool


class Parked(NamedTuple):
    """What hangs on an entry that was sent and is not applied yet."""

    incarnation: int
    sequence: int
    ready: tuple[Ready, ...]


class Agent(NamedTuple):
    """One agent's memory. `node`: what it has applied. `chain`: (sequence, revision) of its last append."""

    name: str
    runs: int = 0
    incarnation: int = 0
    registered: bool = False
    node: int = 0
    chain: tuple[int, int] = (0, 0)
    received: tuple[Send, ...] = ()
    next_chunk: int = 1
    queue: tuple[Ready, ...] = ()
    appending: Append | None = None
    parked: tuple[Parked, ...] = ()


class Key(NamedTuple):
    """An incarnation key in etcd: the append chain's end."""

    incarnation: int
    sequence: int
    revision: int


class Etcd(NamedTuple):
    """`head`: the newest entry. Entries up to `trimmed` are gone; a snapshot of the state there is kept."""

    revision: int
    head: int
    keys: tuple[Key, ...]
    trimmed: int


class Stored(NamedTuple):
    """A chunk: the records it holds, as (client, batch), and whether it is still there."""

    chunk: ChunkId
    records: tuple[tuple[int, int], ...]
    there: bool


class Client(NamedTuple):
    """A producer that sends its batches one after the other. `acked`: base offset per finished batch."""

    batch: int = 0
    attempt: int = 0
    waiting: int = -1  # the agent whose answer it waits for; -1: none
    acked: tuple[int, ...] = ()


class Budget(NamedTuple):
    """How often each misfortune may still happen."""

    late: int = 2  # a client gives up waiting; its request stays on its way
    twice: int = 1  # a request is delivered twice
    refused: int = 2  # resends after an error
    answers_lost: int = 1  # etcd did it and its answer is lost
    timeouts: int = 1  # an attempt is given up before etcd has looked at it, which it will
    puts_failed: int = 1  # the store did it and says that it failed
    leases: int = 1  # a lease ends under a living agent
    crashes: int = 1
    trims: int = 1


class World(NamedTuple):
    """Everything."""

    agents: tuple[Agent, ...]
    clients: tuple[Client, ...]
    etcd: Etcd
    stored: tuple[Stored, ...]
    sends: tuple[Send, ...]  # on their way
    attempts: tuple[Attempt, ...]  # on their way
    budget: Budget

    def with_agent(self, number: int, agent: Agent) -> World:
        """The same with one agent changed."""
        return self._replace(agents=(*self.agents[:number], agent, *self.agents[number + 1 :]))

    def with_client(self, number: int, client: Client) -> World:
        """The same with one client changed."""
        return self._replace(clients=(*self.clients[:number], client, *self.clients[number + 1 :]))

    def spend(self, what: str) -> World:
        """The same with one misfortune less to come."""
        return self._replace(budget=self.budget._replace(**{what: getattr(self.budget, what) - 1}))
