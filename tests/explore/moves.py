"""What may happen next in a World: every step of every agent, client and server, and every misfortune."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from coordination.backoff import Backoff
from coordination.chain import AppendChain, KeyState
from coordination.commands import CommitChunk, FenceIncarnation, RegisterAgent, command
from coordination.log import Fenced
from coordination.state import ChunkCommitted, State
from objectstore.collect import Standing, judge
from objectstore.naming import ChunkId, chunk_key
from objectstore.store import ObjectMeta
from tests.explore.history import NOW_MS, History, entry
from tests.explore.world import Agent, Append, Attempt, Client, Key, Parked, Ready, Send, Stored, World

BATCH_BYTES = 100
FIRST_POSITION = 64
RUNS_MAX = 16  # incarnations of one agent
Step = tuple[str, World]
T = TypeVar("T", Send, Key, Attempt, Stored)


@dataclass(frozen=True)
class Scope:
    """How much there is to explore. `targets`: per client the partition of each of its batches."""

    agents: int = 2
    partitions: int = 2
    targets: tuple[tuple[int, ...], ...] = ((0, 0), (1, 0))
    broken: str = ""  # a negative control of tests.explore.controls
    state: type[State] = field(default=State)


class Moves:
    """The steps from a world. Pure but for the memory of `history`."""

    def __init__(self, scope: Scope, history: History) -> None:
        self.scope = scope
        self.history = history

    def steps(self, world: World) -> Iterator[Step]:
        """(what happened, the world after it), in an order that is always the same."""
        for number in range(len(world.clients)):
            yield from self._client(world, number)
        for at in range(len(world.sends)):
            yield from self._deliver(world, at)
        for number in range(len(world.agents)):
            yield from self._agent(world, number)
        for at in range(len(world.attempts)):
            yield from self._land(world, at)
        yield from self._misfortunes(world)

    # -- clients ---------------------------------------------------------------------------------------

    def _client(self, world: World, number: int) -> Iterator[Step]:
        client = world.clients[number]
        if client.batch >= len(self.scope.targets[number]):
            return
        if client.waiting >= 0:
            if not world.budget.late:
                return
            world = world.spend("late")
        for agent in range(len(world.agents)):
            said = f"client {number} sends batch {client.batch} to {world.agents[agent].name}"
            if client.waiting >= 0:
                said += ", having waited long enough for the other"
            send = Send(number, client.batch, client.attempt + 1, agent)
            sent = world.with_client(number, client._replace(attempt=send.attempt, waiting=agent))
            yield said, sent._replace(sends=_sorted((*world.sends, send)))

    def _deliver(self, world: World, at: int) -> Iterator[Step]:
        send = world.sends[at]
        gone = world._replace(sends=(*world.sends[:at], *world.sends[at + 1 :]))
        said = f"{world.agents[send.agent].name} receives {_named(send)}"
        yield said, self._receive(gone, send)
        if world.budget.twice:
            yield f"{said}, and it will come again", self._receive(world.spend("twice"), send)

    def _receive(self, world: World, send: Send) -> World:
        agent = world.agents[send.agent]
        if not agent.registered:
            return _refuse(world, (send,))
        return world.with_agent(send.agent, agent._replace(received=(*agent.received, send)))

    # -- agents ----------------------------------------------------------------------------------------

    def _agent(self, world: World, number: int) -> Iterator[Step]:
        agent = world.agents[number]
        if agent.node != world.etcd.head:
            yield self._apply(world, number)
        if not agent.incarnation:
            if agent.runs < RUNS_MAX:
                yield f"{agent.name} registers", self._register(world, number)
            return
        if agent.received:
            yield from self._put(world, number)
        if agent.queue and agent.appending is None and (agent.registered or agent.chain[0] == 0):
            yield f"{agent.name} sends an append", self._send_append(world, number)
        yield from self._fence(world, number)
        yield from self._collect(world, number)

    def _register(self, world: World, number: int) -> World:
        agent, etcd = world.agents[number], world.etcd
        revision, run = etcd.revision + 1, agent.runs + 1
        incarnation = (number + 1) * RUNS_MAX + run
        info = RegisterAgent(name=agent.name, node_id=-1, feature_min=1, feature_max=1)
        first = Ready(command(info).SerializeToString(), (), 0)
        agent = agent._replace(
            runs=run, incarnation=incarnation, chain=(0, revision), queue=(first, *agent.queue)
        )
        keys = _sorted((*etcd.keys, Key(incarnation, 0, revision)))
        return world.with_agent(number, agent)._replace(etcd=etcd._replace(revision=revision, keys=keys))

    def _put(self, world: World, number: int) -> Iterator[Step]:
        """All that was received goes into one chunk, and its commit into the queue."""
        agent = world.agents[number]
        chunk, sends = ChunkId(agent.incarnation, agent.next_chunk), agent.received
        ready = Ready(self._commit(chunk, sends), sends, agent.incarnation)
        after = agent._replace(received=(), next_chunk=agent.next_chunk + 1)
        stored = Stored(chunk, tuple((send.client, send.batch) for send in sends), True)
        done = world._replace(stored=_sorted((*world.stored, stored)))
        said = f"{agent.name} stores chunk {chunk.number} with {', '.join(map(_named, sends))}"
        queued = done.with_agent(number, after._replace(queue=(*agent.queue, ready)))
        yield said, queued
        if self.scope.broken == "ack-before-put":
            early = self._acknowledge_early(world, number, sends)
            yield f"{agent.name} acknowledges before it stores", early
        if world.budget.puts_failed:
            failed = _refuse(done.spend("puts_failed").with_agent(number, after), sends)
            yield f"{said}, is told that it failed, and says so", failed

    def _acknowledge_early(self, world: World, number: int, sends: tuple[Send, ...]) -> World:
        """A wrong agent's answer: it guesses the offsets."""
        partitions = self.history[world.agents[number].node].state.partitions
        for send in sends:
            partition = partitions[self.scope.targets[send.client][send.batch]]
            assert partition is not None, "topics are not deleted here"
            world = _answer(world, send, partition.high_watermark)
        return world.with_agent(number, world.agents[number]._replace(received=()))

    def _commit(self, chunk: ChunkId, sends: tuple[Send, ...]) -> bytes:
        targets = [self.scope.targets[send.client][send.batch] for send in sends]
        message = CommitChunk(
            number=chunk.number,
            size=FIRST_POSITION + BATCH_BYTES * len(sends),
            first_position=FIRST_POSITION,
            partition=targets,
            length=[BATCH_BYTES] * len(sends),
            offsets=[1] * len(sends),
            max_timestamp_ms=[NOW_MS] * len(sends),
        )
        if self.scope.broken != "no-dedup":
            message.producer_id.extend([send.client for send in sends])
            message.producer_epoch.extend([0] * len(sends))
            message.base_sequence.extend([self._sequence(send) for send in sends])
        return command(message).SerializeToString()

    def _sequence(self, send: Send) -> int:
        """How many batches of its client went to the same partition before."""
        targets = self.scope.targets[send.client]
        return targets[: send.batch].count(targets[send.batch])

    def _send_append(self, world: World, number: int) -> World:
        """As Author.run and Proposals.take: the registration alone, else everything; stale ones are refused."""
        agent = world.agents[number]
        count = 1 if agent.chain[0] == 0 and not agent.registered else len(agent.queue)
        taken = agent.queue[:count]
        stale = [each for each in taken if each.incarnation not in (0, agent.incarnation)]
        ready = tuple(each for each in taken if each not in stale)
        for each in stale:
            world = _refuse(world, each.sends)
        rest = agent.queue[count:]
        if not ready:
            return world.with_agent(number, agent._replace(queue=rest))
        sequence = agent.chain[0] + 1
        applied = self.history[agent.node].state.revision
        payload = entry(agent.incarnation, sequence, applied, [each.command for each in ready])
        parked = (*agent.parked, Parked(agent.incarnation, sequence, ready))
        agent = agent._replace(queue=rest, appending=Append(sequence, payload, False), parked=parked)
        return self._attempt(world.with_agent(number, agent), number)

    def _attempt(self, world: World, number: int) -> World:
        agent = world.agents[number]
        assert agent.appending is not None, "an attempt without an append"
        attempt = Attempt(agent.incarnation, agent.appending.sequence, agent.chain[1], agent.appending.entry)
        return world._replace(attempts=_sorted((*world.attempts, attempt)))

    # -- etcd ------------------------------------------------------------------------------------------

    def _land(self, world: World, at: int) -> Iterator[Step]:
        """etcd looks at an attempt. Its answer comes, or is lost, or nobody waits for it any more."""
        attempt = world.attempts[at]
        gone = world._replace(attempts=(*world.attempts[:at], *world.attempts[at + 1 :]))
        landed, outcome = self._transaction(gone, attempt)
        number = attempt.incarnation // RUNS_MAX - 1
        agent = world.agents[number]
        waiting = agent.appending is not None and agent.incarnation == attempt.incarnation
        waiting = waiting and agent.appending is not None and agent.appending.sequence == attempt.sequence
        said = f"etcd {'appends' if isinstance(outcome, int) else 'refuses'} entry {attempt.sequence} of "
        said += f"{attempt.incarnation:x}"
        if not waiting or attempt in gone.attempts:  # an older try: the newest one is waited for
            yield f"{said}, unheard", landed
            return
        yield said, self._conclude(landed, number, outcome)
        if world.budget.answers_lost:
            unsure = agent._replace(appending=agent.appending and agent.appending._replace(maybe=True))
            lost = landed.spend("answers_lost").with_agent(number, unsure)
            yield f"{said}; its answer is lost", self._attempt(lost, number)
        if world.budget.timeouts:
            unsure = agent._replace(appending=agent.appending and agent.appending._replace(maybe=True))
            again = self._attempt(world.spend("timeouts").with_agent(number, unsure), number)
            yield f"{agent.name} waits no longer for entry {attempt.sequence} and sends it again", again

    def _transaction(self, world: World, attempt: Attempt) -> tuple[World, int | KeyState | None]:
        etcd = world.etcd
        key = next((key for key in etcd.keys if key.incarnation == attempt.incarnation), None)
        if key is None and self.scope.broken != "no-fence":
            return world, None
        if key is not None and key.revision != attempt.expected and self.scope.broken != "no-compare":
            return world, KeyState(attempt.incarnation, key.sequence, key.revision)
        revision = etcd.revision + 1
        head = self.history.extend(etcd.head, revision, attempt.entry)
        others = [each for each in etcd.keys if each.incarnation != attempt.incarnation]
        if key is not None:
            others.append(Key(attempt.incarnation, attempt.sequence, revision))
        after = etcd._replace(revision=revision, head=head, keys=_sorted(tuple(others)))
        return world._replace(etcd=after), revision

    def _conclude(self, world: World, number: int, outcome: int | KeyState | None) -> World:
        """What the product's chain makes of an answer, and what its Author does then."""
        agent = world.agents[number]
        append = agent.appending
        assert append is not None, "an answer that nobody waits for"
        chain = _Chain(agent.incarnation, *agent.chain)
        try:
            revision = chain.conclude(outcome, append.sequence, append.maybe)
        except Fenced as fenced:
            return self._lost(world, number, definite=not fenced.maybe_appended)
        after = agent._replace(chain=(append.sequence, revision), appending=None)
        world = world.with_agent(number, after)
        if self.scope.broken == "ack-before-apply":
            for parked in after.parked:
                for ready in parked.ready:
                    world = self._acknowledge_early(world, number, ready.sends)
        return world

    def _lost(self, world: World, number: int, definite: bool) -> World:
        """The incarnation is over: what is not sent is refused, what may have landed stays parked."""
        agent = world.agents[number]
        own = agent.incarnation
        refused = [each for each in agent.queue if each.incarnation == own]
        parked = agent.parked
        if definite and agent.appending is not None:
            failed = [each for each in parked if each[:2] == (own, agent.appending.sequence)]
            parked = tuple(each for each in parked if each not in failed)
            refused += [ready for each in failed for ready in each.ready]
        after = agent._replace(
            incarnation=0, registered=False, appending=None, received=(), next_chunk=1, parked=parked,
            queue=tuple(each for each in agent.queue if each.incarnation != own and each.incarnation),
        )  # fmt: skip
        world = _refuse(world.with_agent(number, after), agent.received)
        for ready in refused:
            world = _refuse(world, ready.sends)
        return world

    # -- apply -----------------------------------------------------------------------------------------

    def _apply(self, world: World, number: int) -> Step:
        """The next entry, or a snapshot when that entry is trimmed."""
        agent, etcd = world.agents[number], world.etcd
        if self.history[agent.node].depth < self.history[etcd.trimmed].depth:
            world = world.with_agent(number, agent._replace(node=etcd.trimmed))
            return f"{agent.name} loads the snapshot", self._look(self._reloaded(world, number), number)
        node = self.history.following(agent.node, etcd.head)
        applied = self.history[node].applied
        assert applied is not None, "an entry that was not applied"
        parked = [e for e in agent.parked if e[:2] == (applied.incarnation, applied.sequence)]
        left = tuple(each for each in agent.parked if each not in parked)
        world = world.with_agent(number, agent._replace(node=node, parked=left))
        for each in parked:
            for ready, result in zip(each.ready, applied.results, strict=True):
                world = _settle(world, ready, result)
        for incarnation in applied.fenced:
            world = self._fenced(world, number, incarnation)
        said = f"{agent.name} applies entry {applied.sequence} of {applied.incarnation:x}"
        return said, self._look(world, number)

    def _fenced(self, world: World, number: int, incarnation: int) -> World:
        """Nothing more of it counts: definite for what was not applied."""
        agent = world.agents[number]
        over = [each for each in agent.parked if each.incarnation == incarnation]
        kept = tuple(each for each in agent.parked if each not in over)
        world = world.with_agent(number, agent._replace(parked=kept))
        for each in over:
            for ready in each.ready:
                world = _refuse(world, ready.sends)
        return world

    def _reloaded(self, world: World, number: int) -> World:
        """As Proposals.reloaded: what the snapshot covers has an unknown outcome."""
        state = self.history[world.agents[number].node].state
        for each in world.agents[number].parked:
            author = state.incarnations.get(each.incarnation)
            if author is not None and (author.sequence >= each.sequence or not author.live):
                agent = world.agents[number]
                kept = tuple(other for other in agent.parked if other != each)
                world = world.with_agent(number, agent._replace(parked=kept))
                for ready in each.ready:
                    world = _refuse(world, ready.sends)
        return world

    def _look(self, world: World, number: int) -> World:
        """Begin to write once the registration counts; notice the end of the own incarnation."""
        agent = world.agents[number]
        known = self.history[agent.node].state.incarnations.get(agent.incarnation)
        if known is None or not agent.incarnation:
            return world
        if not known.live:
            return self._lost(world, number, definite=False)
        return world.with_agent(number, agent._replace(registered=True))

    def _fence(self, world: World, number: int) -> Iterator[Step]:
        """Propose the end of incarnations whose key is gone."""
        agent = world.agents[number]
        if not agent.registered:
            return
        keys = {key.incarnation for key in world.etcd.keys}
        for other in self.history[agent.node].state.incarnations.values():
            wanted = Ready(_fence_command(other.incarnation), (), 0)
            waiting = {*agent.queue, *(ready for parked in agent.parked for ready in parked.ready)}
            if other.live and other.incarnation not in keys and wanted not in waiting:
                after = agent._replace(queue=(*agent.queue, wanted))
                said = f"{agent.name} finds the key of {other.incarnation:x} gone"
                yield said, world.with_agent(number, after)

    def _collect(self, world: World, number: int) -> Iterator[Step]:
        """Delete garbage, behind a read barrier, without any grace."""
        agent = world.agents[number]
        if agent.node != world.etcd.head and self.scope.broken != "collect-without-barrier":
            return
        view = _View(self.history[agent.node].state, self.scope.broken == "collect-of-the-living")
        garbage = [
            stored
            for stored in world.stored
            if stored.there and judge(_meta(stored.chunk), view, NOW_MS, 0).garbage
        ]
        if garbage:
            left = tuple(s._replace(there=False) if s in garbage else s for s in world.stored)
            said = f"{agent.name} deletes {', '.join(f'{s.chunk[0]:x}/{s.chunk[1]}' for s in garbage)}"
            yield said, world._replace(stored=left)

    # -- misfortunes -----------------------------------------------------------------------------------

    def _misfortunes(self, world: World) -> Iterator[Step]:
        etcd = world.etcd
        for key in etcd.keys:
            owner = world.agents[key.incarnation // RUNS_MAX - 1]
            dead = owner.incarnation != key.incarnation
            if dead or world.budget.leases:
                after = world if dead else world.spend("leases")
                keys = tuple(each for each in etcd.keys if each != key)
                ended = etcd._replace(revision=etcd.revision + 1, keys=keys)
                yield f"the lease of {key.incarnation:x} ends", after._replace(etcd=ended)
        if world.budget.crashes:
            for number, agent in enumerate(world.agents):
                if agent.incarnation:
                    new = Agent(agent.name, agent.runs, node=etcd.trimmed)
                    yield f"{agent.name} is killed", world.spend("crashes").with_agent(number, new)
        if world.budget.trims:
            for agent in world.agents:
                if agent.registered and agent.node != etcd.trimmed:
                    trimmed = world.spend("trims")._replace(etcd=etcd._replace(trimmed=agent.node))
                    yield f"{agent.name} takes a snapshot, and the log is trimmed to it", trimmed


class _Chain(AppendChain):
    """The product's chain with nothing below it."""

    def __init__(self, incarnation: int, sequence: int, revision: int) -> None:
        super().__init__(incarnation, incarnation, revision, 1 << 20, Backoff(1, 1, lambda: 0.0))
        self._sequence = sequence

    def conclude(self, outcome: int | KeyState | None, sequence: int, maybe: bool) -> int:
        """What an answer means."""
        return self._conclude(outcome, sequence, maybe)

    async def _attempt(self, sequence: int, payload: bytes, expected: int) -> int | KeyState | None:
        raise AssertionError("attempts are steps of the world")

    def abandon(self) -> None:
        """Leases end by steps of the world."""

    async def close(self) -> None:
        """Nothing is open."""


class _View:
    """A state as the collector looks at it."""

    def __init__(self, state: State, careless: bool) -> None:
        self._state = state
        self._careless = careless
        self._referenced = {chunk.id for chunk in state.chunks.by_serial.values()}

    async def catch_up(self) -> None:
        """Whoever asks has done it."""

    def standing(self, incarnation: int) -> Standing:
        known = self._state.incarnations.get(incarnation)
        if known is None:
            return Standing.UNKNOWN
        return Standing.LIVE if known.live and not self._careless else Standing.FENCED

    def is_referenced(self, chunk: ChunkId) -> bool:
        return chunk in self._referenced

    def released(self) -> dict[ChunkId, int]:
        return dict(self._state.chunks.garbage)


def _meta(chunk: ChunkId) -> ObjectMeta:
    return ObjectMeta(chunk_key(chunk), 1, "", NOW_MS)


def _fence_command(incarnation: int) -> bytes:
    return command(FenceIncarnation(incarnation=incarnation)).SerializeToString()


def _settle(world: World, ready: Ready, result: object) -> World:
    """Answer what hangs on a command, by what apply decided."""
    if not isinstance(result, ChunkCommitted):
        return _refuse(world, ready.sends)
    for send, error, base in zip(ready.sends, result.errors, result.base_offsets, strict=True):
        world = _refuse(world, (send,)) if error else _answer(world, send, base)
    return world


def _answer(world: World, send: Send, base: int) -> World:
    """An acknowledgement reaches the client, if it still waits for this very request."""
    client = world.clients[send.client]
    if (client.attempt, client.batch) != (send.attempt, send.batch) or client.waiting != send.agent:
        return world
    return world.with_client(
        send.client, Client(client.batch + 1, client.attempt, -1, (*client.acked, base))
    )


def _refuse(world: World, sends: tuple[Send, ...]) -> World:
    """An error reaches the clients; with no budget left they give up for good."""
    for send in sends:
        client = world.clients[send.client]
        if (client.attempt, client.batch) == (send.attempt, send.batch) and client.waiting == send.agent:
            if world.budget.refused:
                world = world.spend("refused").with_client(send.client, client._replace(waiting=-1))
            else:
                world = world.with_client(send.client, client._replace(waiting=-1, batch=1 << 30))
    return world


def _named(send: Send) -> str:
    return f"{send.client}.{send.batch}#{send.attempt}"


def _sorted(items: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(sorted(items))
