"""When two worlds of the produce scope are the same.

Exactly: when all their parts are. By meaning: when what may still happen, and what is right, is the same.
Counts are taken relative to what the log holds of their author; a request that its client has given up is the
same whichever try it was; a committed chunk is where its records are; only who is behind sees a trimmed log.
"""

from __future__ import annotations

from collections.abc import Hashable

from objectstore.naming import ChunkId
from tests.explore.agents import Scope
from tests.explore.history import Content, History, Node, Numbers
from tests.explore.world import Agent, Attempt, Client, Item, Key, Ready, Send, World

Base = dict[int, tuple[int, int, int]]
"""By incarnation: entries in the log, the next chunk number that may come, the version of its key."""


class Keys:
    """Keys of worlds, of small numbers."""

    def __init__(self, history: History, numbers: Numbers, scope: Scope) -> None:
        self._history = history
        self._number = numbers
        self._scope = scope
        self._referenced: dict[int, frozenset[ChunkId]] = {}
        self._agents: dict[Hashable, int] = {}
        self._bases: dict[Hashable, tuple[Base, int]] = {}

    def exact(self, world: World) -> Hashable:
        """Nothing left out but the way a state came about."""
        number, history, head = self._number, self._history, world.etcd.head
        agents = tuple(
            number((agent, history[node].essence, history.between(node, head)))
            for agent, node in zip(world.agents, world.nodes, strict=True)
        )
        trimmed = history.between(world.etcd.trimmed, head)
        return (
            *agents,
            number((history[head].essence, trimmed, world.etcd.keys)),
            number((world.clients, world.budget)),
            number((world.stored, world.sends, world.attempts)),
        )

    def meaning(self, world: World) -> Hashable:
        """See above."""
        number, history, etcd = self._number, self._history, world.etcd
        head = history[etcd.head]
        base, base_number = self._base(etcd.head, head, etcd.keys)
        clients = world.clients
        agents = tuple(self._agent(place, world, base, base_number) for place in range(len(world.agents)))
        referenced = self._references(etcd.head, head)
        loose = tuple(
            (chunk.incarnation, chunk.number - base.get(chunk.incarnation, (0, 0, 0))[1], records,
             chunk in head.state.chunks.garbage)
            for chunk, records in world.stored
            if chunk not in referenced
        )  # fmt: skip
        trimmed: Hashable = 0
        if self._scope.broken or any(history[n].depth < history[etcd.trimmed].depth for n in world.nodes):
            older = history[etcd.older].depth
            trimmed = (
                head.depth - history[etcd.trimmed].depth,
                head.depth - history[etcd.snapshot].depth,
                older - head.depth,
            )
        sends = tuple(sorted(_send(each, clients) for each in world.sends))
        attempts = tuple(sorted(_attempt(each, base) for each in world.attempts))
        return (
            *agents,
            number((head.essence, trimmed, tuple(each.incarnation for each in etcd.keys))),
            number((tuple((each.batch, each.waiting, each.acked) for each in clients), world.budget)),
            number((loose, sends, attempts)),
        )

    def _base(self, at: int, head: Node, keys: tuple[Key, ...]) -> tuple[Base, int]:
        known = self._bases.get((at, keys))
        if known is None:
            versions = {each.incarnation: each.version for each in keys}
            base = {
                each.incarnation: (each.sequence, each.next_chunk_number, versions.get(each.incarnation, 0))
                for each in head.state.incarnations.values()
            }
            for key in keys:
                base.setdefault(key.incarnation, (key.sequence, 0, key.version))
            known = self._bases[at, keys] = base, self._number(("base", tuple(sorted(base.items()))))
        return known

    def _references(self, at: int, head: Node) -> frozenset[ChunkId]:
        known = self._referenced.get(at)
        if known is None:
            known = self._referenced[at] = frozenset(one.id for one in head.state.chunks.by_serial.values())
        return known

    def _agent(self, place: int, world: World, base: Base, base_number: int) -> int:
        agent, node, head = world.agents[place], world.nodes[place], world.etcd.head
        tries = tuple((each.attempt, each.batch, each.waiting) for each in world.clients)
        about = (agent, node, head, base_number, tries)
        known = self._agents.get(about)
        if known is None:
            future = tuple(_content(each, base) for each in self._history.between(node, head))
            meaning = (_mind(agent, world.clients, base), self._history[node].essence, future)
            known = self._agents[about] = self._number(meaning)
        return known


def _mind(agent: Agent, clients: tuple[Client, ...], base: Base) -> Hashable:
    sequence, chunk, version = base.get(agent.incarnation, (0, 0, 0))
    chain, append = agent.chain, agent.appending
    return (
        agent.incarnation,
        agent.runs,
        agent.registered,
        (chain[0] - sequence, chain[1] - version) if agent.incarnation else 0,
        tuple(_send(each, clients) for each in agent.received),
        agent.next_chunk - chunk if agent.incarnation else 0,
        tuple(_ready(each, agent.incarnation, clients, base) for each in agent.queue),
        append and (append.sequence - sequence, append.maybe, _items(append.items, agent.incarnation, base)),
        tuple(
            (each[0], each[1] - base.get(each[0], (0, 0, 0))[0],
             tuple(_ready(ready, each[0], clients, base) for ready in each.ready))
            for each in agent.parked
        ),
    )  # fmt: skip


def _send(send: Send, clients: tuple[Client, ...]) -> tuple[int, int, int, bool]:
    client = clients[send.client]
    current = client.waiting == send.agent and (client.attempt, client.batch) == (send.attempt, send.batch)
    return send.client, send.batch, send.agent, current


def _ready(ready: Ready, author: int, clients: tuple[Client, ...], base: Base) -> Hashable:
    sends = tuple(_send(each, clients) for each in ready.sends)
    return _items((ready.item,), ready.incarnation or author, base), sends, ready.incarnation


def _items(items: tuple[Item, ...], author: int, base: Base) -> Hashable:
    first = base.get(author, (0, 0, 0))[1]
    return tuple(
        (kind, number - first if kind == "commit" else number, records) for kind, number, records in items
    )


def _attempt(attempt: Attempt, base: Base) -> tuple[int, int, int, Hashable]:
    sequence, _, version = base.get(attempt.incarnation, (0, 0, 0))
    items = _items(attempt.items, attempt.incarnation, base)
    return attempt.incarnation, attempt.sequence - sequence, attempt.expected - version, items


def _content(content: Content, base: Base) -> Hashable:
    author, sequence, items = content
    return author, sequence - base.get(author, (0, 0, 0))[0], _items(items, author, base)
