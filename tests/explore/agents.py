"""What an agent does, a step at a time: register, store, append, apply, fence, collect, reload.

The chain that concludes what an answer of etcd means, the verdict on garbage and the state are the product's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from coordination.backoff import Backoff
from coordination.chain import AppendChain, KeyState
from coordination.clock import ManualClock
from coordination.log import Fenced
from coordination.state import ChunkCommitted, State
from objectstore.collect import Standing, judge
from objectstore.naming import ChunkId, chunk_key
from objectstore.store import ObjectMeta
from tests.explore.history import NOW_MS, History, Node, Numbers
from tests.explore.language import NAMES, RUNS_MAX, Commits
from tests.explore.search import Step
from tests.explore.world import (
    Agent,
    Append,
    Attempt,
    Budget,
    Client,
    Key,
    Parked,
    Ready,
    Send,
    Stored,
    World,
)


@dataclass(frozen=True)
class Scope:
    """How much there is to explore. `targets`: per client the partition of each of its batches.

    `reduced`: leave out orders that make no difference (README.md); `alone`: those too in which several
    commands are in one entry. `companions`: each batch goes with another one in one more partition, the last.
    `broken`: a negative control.
    """

    budget: Budget
    agents: int = 2
    partitions: int = 2
    targets: tuple[tuple[int, ...], ...] = ((0, 0), (0, 1))
    reduced: bool = True
    alone: bool = False
    companions: bool = False
    broken: str = ""
    state: type[State] = field(default=State)


class AgentMoves:
    """Agents' steps from a world. Pure but for what it remembers of states."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.stories: Counter[str] = Counter()
        self.numbers = Numbers()
        self.language = Commits(
            scope.targets,
            dedup=scope.broken != "no dedup",
            exact=not scope.reduced,
            companions=scope.partitions if scope.companions else -1,
        )
        self.history = History(self.language, self.numbers, scope.state)
        self._live: dict[int, tuple[int, ...]] = {}
        self._verdicts: dict[tuple[int, ChunkId, bool], bool] = {}

    def live(self, node: int) -> tuple[int, ...]:
        """The incarnations that count after an entry."""
        known = self._live.get(node)
        if known is None:
            incarnations = self.history[node].state.incarnations.values()
            known = self._live[node] = tuple(each.incarnation for each in incarnations if each.live)
        return known

    def agent_steps(self, world: World, number: int) -> Iterator[Step]:
        """What one agent may do next."""
        agent = world.agents[number]
        if world.nodes[number] != world.etcd.head:
            yield self.apply(world, number)
            if self.trimmed_away(world, number):
                yield from self._load_older(world, number)
        if not agent.incarnation:
            yield ("{} registers", NAMES[number]), self.register(world, number)
            return
        if agent.received:
            yield from self._put(world, number)
        if self.may_append(agent):
            yield ("{} sends an append", NAMES[number]), self.send_append(world, number)
        if agent.registered:
            yield from self._fence(world, number)
        yield from self.collect(world, number)

    def register(self, world: World, number: int) -> World:
        """A new incarnation: its key, and its registration ahead of the queue."""
        agent, etcd = world.agents[number], world.etcd
        run = agent.runs + 1
        assert run < RUNS_MAX, "so many incarnations need more room in their numbers"
        incarnation = (number + 1) * RUNS_MAX + run
        first = Ready(("register", number, ()), (), 0)
        agent = agent._replace(runs=run, incarnation=incarnation, chain=(0, 0), queue=(first, *agent.queue))
        keys = tuple(sorted((*etcd.keys, Key(incarnation, 0, 0))))
        return world.with_agent(number, agent)._replace(etcd=etcd._replace(keys=keys))

    # -- produce ---------------------------------------------------------------------------------------

    def _put(self, world: World, number: int) -> Iterator[Step]:
        """All that was received goes into one chunk, and its commit into the queue."""
        agent = world.agents[number]
        chunk, sends = ChunkId(agent.incarnation, agent.next_chunk), agent.received
        records = tuple((send.client, send.batch) for send in sends)
        ready = Ready(("commit", chunk.number, records), sends, agent.incarnation)
        after = agent._replace(received=(), next_chunk=agent.next_chunk + 1)
        stored = Stored(chunk, self.language.held(records))
        done = world._replace(stored=tuple(sorted((*world.stored, stored))))
        name, names = NAMES[number], ", ".join(map(named, sends))
        queued = done.with_agent(number, after._replace(queue=(*agent.queue, ready)))
        self._tell_put(world, agent, chunk)
        yield ("{} stores {} as chunk {}", name, names, chunk.number), queued
        if self.scope.broken == "ack before PUT":
            early = self._acknowledge_early(world, number, sends)
            yield ("{} acknowledges {} before it is stored", name, names), early.with_agent(number, after)
        if world.may("puts_failed"):
            failed = refuse(done.spend("puts_failed").with_agent(number, after), sends)
            yield ("{} stores {}, is told that it failed, and says so", name, names), failed

    def _tell_put(self, world: World, agent: Agent, chunk: ChunkId) -> None:
        """Count a PUT that succeeds after one that failed after one that succeeded."""
        if chunk.number < 3 or not self.scope.budget.puts_failed:
            return
        parked = [
            ready for each in agent.parked for ready in each.ready if each.incarnation == chunk.incarnation
        ]
        named = {ready.item[1] for ready in (*agent.queue, *parked) if ready.item[0] == "commit"}
        committed = self.history[world.etcd.head].notes or {}
        before, between = (
            number in named or ChunkId(chunk.incarnation, number) in committed
            for number in (chunk.number - 2, chunk.number - 1)
        )
        if before and not between:
            self.stories["a PUT fails between two that succeed"] += 1

    def _acknowledge_early(self, world: World, number: int, sends: tuple[Send, ...]) -> World:
        """A wrong agent's answer: it guesses the offsets."""
        partitions = self.history[world.nodes[number]].state.partitions
        for send in sends:
            partition = partitions[self.scope.targets[send.client][send.batch]]
            assert partition is not None, "topics are not deleted here"
            world = answer(world, send, partition.high_watermark)
        return world

    # -- append ----------------------------------------------------------------------------------------

    def may_append(self, agent: Agent) -> bool:
        """Whether Author.run would append now: the registration travels alone."""
        return bool(agent.queue) and agent.appending is None and (agent.registered or agent.chain[0] == 0)

    def send_append(self, world: World, number: int) -> World:
        """As Author.run and Proposals.take: the registration alone, else all; stale ones are refused."""
        agent = world.agents[number]
        count = 1 if agent.chain[0] == 0 and not agent.registered else len(agent.queue)
        taken, rest = agent.queue[:count], agent.queue[count:]
        ready = tuple(each for each in taken if each.incarnation in (0, agent.incarnation))
        for each in taken:
            if each not in ready:
                world = refuse(world, each.sends)
        if not ready:
            return world.with_agent(number, agent._replace(queue=rest))
        sequence = agent.chain[0] + 1
        items = tuple(each.item for each in ready)
        parked = (*agent.parked, Parked(agent.incarnation, sequence, ready))
        agent = agent._replace(queue=rest, appending=Append(sequence, items, False), parked=parked)
        return self.attempt(world.with_agent(number, agent), number)

    def attempt(self, world: World, number: int) -> World:
        """Send the append to etcd, again or for the first time."""
        agent = world.agents[number]
        assert agent.appending is not None, "an attempt without an append"
        made = Attempt(agent.incarnation, agent.appending.sequence, agent.chain[1], agent.appending.items)
        return world._replace(attempts=tuple(sorted((*world.attempts, made))))

    def conclude(self, world: World, number: int, outcome: int | KeyState | None) -> World:
        """What the product's chain makes of an answer, and what its Author does then."""
        agent = world.agents[number]
        append = agent.appending
        assert append is not None, "an answer that nobody waits for"
        chain = _Chain(agent.incarnation, *agent.chain)
        try:
            version = chain.conclude(outcome, append.sequence, append.maybe)
        except Fenced as fenced:
            return self._lost(world, number, definite=not fenced.maybe_appended)
        after = agent._replace(chain=(append.sequence, version), appending=None)
        world = world.with_agent(number, after)
        if self.scope.broken == "ack before apply":
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
        world = refuse(world, agent.received)
        for ready in refused:
            world = refuse(world, ready.sends)
        after = Agent(agent.runs, next_chunk=1, parked=parked)
        return world.with_agent(number, after)

    # -- apply -----------------------------------------------------------------------------------------

    def trimmed_away(self, world: World, number: int) -> bool:
        """Whether the agent's next entry is gone from the log."""
        return self.history[world.nodes[number]].depth < self.history[world.etcd.trimmed].depth

    def apply(self, world: World, number: int) -> Step:
        """The next entry, or a snapshot when that entry is trimmed."""
        agent, etcd, name = world.agents[number], world.etcd, NAMES[number]
        if self.trimmed_away(world, number):
            covered = self.history[etcd.snapshot].depth >= self.history[etcd.trimmed].depth
            assert covered, f"{name} fails: the log is trimmed, and no snapshot is that new (ReplicaFailed)"
            world = self._reloaded(world.with_node(number, etcd.snapshot), number)
            return ("{} loads the snapshot", name), self._look(world, number)
        node = self.history.following(world.nodes[number], etcd.head)
        applied = self.history[node].applied
        assert applied is not None, "an entry that was not applied"
        own = [each for each in agent.parked if each[:2] == (applied.incarnation, applied.sequence)]
        world = world.with_node(number, node)
        if own:
            left = tuple(each for each in agent.parked if each not in own)
            world = world.with_agent(number, agent._replace(parked=left))
        for each in own:
            for ready, result in zip(each.ready, applied.results, strict=True):
                world = settle(world, ready, result)
        for incarnation in applied.fenced:
            world = self._fenced(world, number, incarnation)
        said = ("{} applies entry {} of {:x}", name, applied.sequence, applied.incarnation)
        return said, self._look(world, number)

    def _load_older(self, world: World, number: int) -> Iterator[Step]:
        """It looked for a snapshot before the log was trimmed again, and loads the one that it found."""
        older = world.etcd.older
        if self.history[older].depth > self.history[world.nodes[number]].depth:
            self.stories["a snapshot is loaded while the log is trimmed behind it"] += 1
            loaded = self._reloaded(world.with_node(number, older), number)
            yield ("{} loads the snapshot before the newest", NAMES[number]), self._look(loaded, number)

    def passes_by(self, world: World, number: int) -> bool:
        """Whether applying the next entry changes nothing about the agent but the state that it has."""
        agent = world.agents[number]
        if self.trimmed_away(world, number):
            return False
        applied = self.history[self.history.following(world.nodes[number], world.etcd.head)].applied
        assert applied is not None, "an entry that was not applied"
        if applied.incarnation == agent.incarnation or agent.incarnation in applied.fenced:
            return False
        return all(
            each[:2] != (applied.incarnation, applied.sequence) and each.incarnation not in applied.fenced
            for each in agent.parked
        )

    def _fenced(self, world: World, number: int, incarnation: int) -> World:
        """Nothing more of it counts: definite for what was not applied."""
        agent = world.agents[number]
        over = [each for each in agent.parked if each.incarnation == incarnation]
        if not over:
            return world
        kept = tuple(each for each in agent.parked if each not in over)
        world = world.with_agent(number, agent._replace(parked=kept))
        for each in over:
            for ready in each.ready:
                world = refuse(world, ready.sends)
        return world

    def _reloaded(self, world: World, number: int) -> World:
        """As Proposals.reloaded: what the snapshot covers has an unknown outcome."""
        state = self.history[world.nodes[number]].state
        for each in world.agents[number].parked:
            author = state.incarnations.get(each.incarnation)
            if author is not None and (author.sequence >= each.sequence or not author.live):
                agent = world.agents[number]
                kept = tuple(other for other in agent.parked if other != each)
                world = world.with_agent(number, agent._replace(parked=kept))
                for ready in each.ready:
                    world = refuse(world, ready.sends)
        return world

    def _look(self, world: World, number: int) -> World:
        """Begin to write once the registration counts; notice the end of the own incarnation."""
        agent = world.agents[number]
        if not agent.incarnation:
            return world
        node: Node = self.history[world.nodes[number]]
        known = node.state.incarnations.get(agent.incarnation)
        if known is None:
            return world
        if not known.live:
            return self._lost(world, number, definite=False)
        if agent.registered:
            return world
        return self._superseded(world.with_agent(number, agent._replace(registered=True)), number)

    def _superseded(self, world: World, number: int) -> World:
        """As Proposals.superseded: no older entry of this agent comes any more."""
        agent = world.agents[number]
        older = [each for each in agent.parked if each.incarnation != agent.incarnation]
        if not older:
            return world
        self.stories["an incarnation that never counted leaves an entry parked"] += 1
        if self.scope.broken == "older entries stay parked":
            return world
        kept = tuple(each for each in agent.parked if each not in older)
        world = world.with_agent(number, agent._replace(parked=kept))
        for ready in [ready for each in older for ready in each.ready]:
            world = refuse(world, ready.sends)
        return world

    # -- background ------------------------------------------------------------------------------------

    def _fence(self, world: World, number: int) -> Iterator[Step]:
        """Propose the end of incarnations whose key is gone; the own one finds out by a heartbeat."""
        agent = world.agents[number]
        keys = {key.incarnation for key in world.etcd.keys}
        gone = [each for each in self.live(world.nodes[number]) if each not in keys]
        if not gone:
            return
        waiting = {*agent.queue, *(ready for parked in agent.parked for ready in parked.ready)}
        for other in gone:
            if other == agent.incarnation:
                if agent.queue or agent.appending is not None:
                    continue
                wanted = Ready(("heartbeat", 0, ()), (), other)
            else:
                wanted = Ready(("fence", other, ()), (), 0)
            if wanted not in waiting:
                after = agent._replace(queue=(*agent.queue, wanted))
                yield ("{} finds the key of {:x} gone", NAMES[number], other), world.with_agent(number, after)

    def collect(self, world: World, number: int) -> Iterator[Step]:
        """Delete garbage, behind a read barrier, without any grace."""
        broken = self.scope.broken
        careless = broken == "collect by lease, no barrier"
        node = world.nodes[number]
        if not world.stored or (node != world.etcd.head and not careless):
            return
        keys = {key.incarnation for key in world.etcd.keys}
        garbage = [
            chunk
            for chunk, _ in world.stored
            if self._is_garbage(
                node,
                chunk,
                broken == "collect of the living" or (careless and chunk.incarnation not in keys),
            )
        ]
        if garbage:
            left = tuple(each for each in world.stored if each.chunk not in garbage)
            names = ", ".join(f"{incarnation:x}/{chunk}" for incarnation, chunk in garbage)
            yield ("{} deletes {}", NAMES[number], names), world._replace(stored=left)

    def _is_garbage(self, node: int, chunk: ChunkId, dead: bool) -> bool:
        known = self._verdicts.get((node, chunk, dead))
        if known is None:
            view = _View(self.history[node].state, dead)
            meta = ObjectMeta(chunk_key(chunk), 1, "", NOW_MS)
            known = self._verdicts[node, chunk, dead] = judge(meta, view, NOW_MS, 0).garbage
        return known


class _Chain(AppendChain):
    """The product's chain with nothing below it."""

    def __init__(self, incarnation: int, sequence: int, version: int) -> None:
        super().__init__(incarnation, incarnation, version, 1 << 20, Backoff(ManualClock()))
        self._sequence = sequence

    def conclude(self, outcome: int | KeyState | None, sequence: int, maybe: bool) -> int:
        """What an answer means."""
        return self._conclude(outcome, sequence, maybe)

    async def _attempt(self, sequence: int, payload: bytes, expected: int) -> int | KeyState | None:
        raise AssertionError("attempts are steps of the world")

    async def _key(self) -> KeyState | None:
        raise AssertionError("no log of the world is full")

    def abandon(self) -> None:
        """Leases end by steps of the world."""

    async def close(self) -> None:
        """Nothing is open."""


class _View:
    """A state as the collector looks at it. `dead`: a wrong collector's belief about who lives."""

    def __init__(self, state: State, dead: bool) -> None:
        self._state = state
        self._dead = dead
        self._referenced = {chunk.id for chunk in state.chunks.by_serial.values()}

    async def catch_up(self) -> None:
        """Whoever asks has done it."""

    def standing(self, incarnation: int) -> Standing:
        known = self._state.incarnations.get(incarnation)
        if known is None:
            return Standing.UNKNOWN
        return Standing.LIVE if known.live and not self._dead else Standing.FENCED

    def is_referenced(self, chunk: ChunkId) -> bool:
        return chunk in self._referenced

    def released(self) -> dict[ChunkId, int]:
        return dict(self._state.chunks.garbage)


def settle(world: World, ready: Ready, result: object) -> World:
    """Answer what hangs on a command, by what apply decided."""
    if not isinstance(result, ChunkCommitted):
        return refuse(world, ready.sends)
    count = len(ready.sends)  # behind these their companions stand, of whom nobody is told
    for send, error, base in zip(
        ready.sends, result.errors[:count], result.base_offsets[:count], strict=True
    ):
        world = refuse(world, (send,)) if error else answer(world, send, base)
    return world


def _waits_for(client: Client, send: Send) -> bool:
    return client.waiting == send.agent and (client.attempt, client.batch) == (send.attempt, send.batch)


def answer(world: World, send: Send, base: int) -> World:
    """An acknowledgement reaches the client, if it still waits for this very request."""
    client = world.clients[send.client]
    if not _waits_for(client, send):
        return world
    return world.with_client(send.client, Client(client.batch + 1, client.attempt, -1, (*client.acked, base)))


def refuse(world: World, sends: tuple[Send, ...]) -> World:
    """An error reaches the clients; with no budget left they give up for good."""
    for send in sends:
        client = world.clients[send.client]
        if _waits_for(client, send):
            if world.may("refused"):
                world = world.spend("refused").with_client(send.client, client._replace(waiting=-1))
            else:
                world = world.with_client(send.client, client._replace(waiting=-1, batch=1 << 30))
    return world


def named(send: Send) -> str:
    """client.batch, and which try it is."""
    return f"{send.client}.{send.batch}#{send.attempt}"
