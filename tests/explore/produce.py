"""The main scope: producers, agents that store and append, etcd, leases, the collector, snapshots."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from coordination.chain import KeyState
from coordination.state.levels import COMPANIONS
from objectstore.naming import ChunkId
from tests.explore import check
from tests.explore.agents import AgentMoves, Scope, named, refuse
from tests.explore.keys import Keys
from tests.explore.language import NAMES, RUNS_MAX
from tests.explore.search import Step
from tests.explore.world import Agent, Attempt, Budget, Client, Etcd, Key, Ready, Send, World


class Produce(AgentMoves):
    """All that may happen between producers, agents, etcd and the store."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self._keys = Keys(self.history, self.numbers, scope)
        self._checked: dict[Hashable, list[str]] = {}

    def start(self) -> World:
        """All agents registered, the topic there and known to all."""
        scope = self.scope
        agents = (Agent(),) * scope.agents
        clients = (Client(),) * len(scope.targets)
        world = World(agents, (0,) * scope.agents, clients, Etcd(0, (), 0, 0), (), (), (), Budget())
        for number in range(scope.agents):
            world = self._settled(self.register(world, number))
        topic = Ready(("topic", scope.partitions + scope.companions, ()), (), 0)
        queue = (Ready(("level", COMPANIONS, ()), (), 0), topic) if scope.companions else (topic,)
        world = self._settled(world.with_agent(0, world.agents[0]._replace(queue=queue)))
        return world._replace(
            budget=scope.budget, etcd=world.etcd._replace(trimmed=world.etcd.head, snapshot=world.etcd.head)
        )

    def _settled(self, world: World) -> World:
        """Let agents and etcd finish what they have begun; clients do nothing yet."""
        while True:
            for number, agent in enumerate(world.agents):
                if self.may_append(agent):
                    world = self.send_append(world, number)
                if world.nodes[number] != world.etcd.head:
                    world = self.apply(world, number)[1]
            if world.attempts:
                _, world = next(iter(self._land(world, 0)))
            elif all(node == world.etcd.head for node in world.nodes):
                return world

    def key(self, world: World) -> Hashable:
        """Exact: a number for each part, the same for equal ones."""
        return self._keys.exact(world) if not self.scope.reduced else self._keys.meaning(world)

    def findings(self, world: World) -> list[str]:
        """Rules 1 to 4, 7 and 9, and that nothing stays parked for ever (check.py)."""
        about = (world.etcd.head, world.nodes, world.stored, tuple(each.acked for each in world.clients))
        found = self._checked.get(about)
        if found is None:
            found = self._checked[about] = check.findings(world, self.history, self.scope)
        return found + check.parked_for_ever(world)

    def steps(self, world: World) -> Iterator[Step]:
        """(what happened, the world after it), in an order that is always the same."""
        scope = self.scope
        if scope.reduced:
            at_once = self._storing(world) or self._urgent(world)
            if at_once:
                yield from at_once
                return
        for number in range(len(world.clients)):
            yield from self._client(world, number)
        for at in range(len(world.sends)):
            agent = world.agents[world.sends[at].agent]
            if not (scope.alone and agent.registered and agent.appending):
                yield from self._deliver(world, at)
        for number in range(len(world.agents)):
            yield from self.agent_steps(world, number)
        for at in range(len(world.attempts)):
            yield from self._land(world, at)
        yield from self._misfortunes(world)

    def _storing(self, world: World) -> list[Step]:
        """An agent that has received something receives what goes into the same chunk, and stores it."""
        for number, agent in enumerate(world.agents):
            if agent.received:
                more = [at for at, send in enumerate(world.sends) if send.agent == number]
                delivered = [step for at in more for step in self._deliver(world, at)]
                return [*delivered, *self._put(world, number)]
        return []

    def _urgent(self, world: World) -> list[Step]:
        """Steps that commute with everything else that may happen before them (README.md): taken at once."""
        for number, client in enumerate(world.clients):
            if client.waiting < 0 and client.batch < len(self.scope.targets[number]):
                return list(self._client(world, number))
        for number, agent in enumerate(world.agents):
            if world.nodes[number] != world.etcd.head and (
                self.passes_by(world, number) or self._is_foretold(world, number)
            ):
                return [self.apply(world, number)]
            if not agent.incarnation:
                return [(("{} registers", NAMES[number]), self.register(world, number))]
            if self.may_append(agent):
                return [(("{} sends an append", NAMES[number]), self.send_append(world, number))]
        for number in range(len(world.agents)):
            collected = list(self.collect(world, number))
            if collected:
                return collected
        for at, attempt in enumerate(world.attempts):
            if not self.scope.broken and self._is_vain(world, attempt):
                return list(self._land(world, at))
        live = self.live(world.etcd.head)
        for key in world.etcd.keys:
            if key.incarnation not in live and self._is_left(world, key):
                return [(("the lease of {:x} ends", key.incarnation), _without(world, key))]
        return []

    def _is_foretold(self, world: World, number: int) -> bool:
        """Whether nothing can come between the log and what the agent's next entry answers any more: no
        client gives up, no agent is killed, and the entry does not end the agent's own incarnation."""
        if self.scope.broken or self.trimmed_away(world, number):
            return False
        if any(map(world.may, ("requests", "crashes", "trims"))):
            return False
        applied = self.history[self.history.following(world.nodes[number], world.etcd.head)].applied
        assert applied is not None, "an entry that was not applied"
        agent = world.agents[number]
        return not {agent.incarnation, *(each.incarnation for each in agent.parked)} & set(applied.fenced)

    def _is_vain(self, world: World, attempt: Attempt) -> bool:
        """Whether an attempt can no longer be appended, and nobody waits for its answer."""
        key = next((key for key in world.etcd.keys if key.incarnation == attempt.incarnation), None)
        if key is not None and key.version == attempt.expected:
            return False
        agent = world.agents[attempt.incarnation // RUNS_MAX - 1]
        append = agent.appending if agent.incarnation == attempt.incarnation else None
        return append is None or append.sequence != attempt.sequence

    def _is_left(self, world: World, key: Key) -> bool:
        """Whether nobody writes under this key any more."""
        owner = world.agents[key.incarnation // RUNS_MAX - 1]
        return owner.incarnation != key.incarnation and all(
            each.incarnation != key.incarnation for each in world.attempts
        )

    # -- clients ---------------------------------------------------------------------------------------

    def _client(self, world: World, number: int) -> Iterator[Step]:
        client = world.clients[number]
        if client.batch >= len(self.scope.targets[number]):
            return
        late = client.waiting >= 0
        if late and not world.may("requests"):
            return
        first = not any(each.attempt for each in world.clients)
        if late:
            world = world.spend("requests")
        for agent in range(1 if first and self.scope.reduced else len(world.agents)):
            send = Send(number, client.batch, client.attempt + 1, agent)
            sent = world.with_client(number, client._replace(attempt=send.attempt, waiting=agent))
            why = ", having waited long enough for the other" if late else ""
            said = ("client {} sends batch {} to {}{}", number, client.batch, NAMES[agent], why)
            yield said, sent._replace(sends=tuple(sorted((*world.sends, send))))

    def _deliver(self, world: World, at: int) -> Iterator[Step]:
        send = world.sends[at]
        gone = world._replace(sends=(*world.sends[:at], *world.sends[at + 1 :]))
        name = NAMES[send.agent]
        yield ("{} receives {}", name, named(send)), self._receive(gone, send)
        if world.may("requests"):
            again = self._receive(world.spend("requests"), send)
            yield ("{} receives {}, and it will come again", name, named(send)), again

    def _receive(self, world: World, send: Send) -> World:
        agent = world.agents[send.agent]
        if not agent.registered:
            return refuse(world, (send,))
        return world.with_agent(send.agent, agent._replace(received=(*agent.received, send)))

    # -- etcd ------------------------------------------------------------------------------------------

    def _land(self, world: World, at: int) -> Iterator[Step]:
        """etcd looks at an attempt. Its answer comes, or is lost, or nobody waits for it any more."""
        attempt = world.attempts[at]
        gone = world._replace(attempts=(*world.attempts[:at], *world.attempts[at + 1 :]))
        landed, outcome = self._transaction(gone, attempt)
        number = attempt.incarnation // RUNS_MAX - 1
        agent = world.agents[number]
        append = agent.appending if agent.incarnation == attempt.incarnation else None
        verb = "appends" if isinstance(outcome, int) else "refuses"
        said = f"etcd {verb} entry {attempt.sequence} of {attempt.incarnation:x}"
        if append is None or append.sequence != attempt.sequence or attempt in gone.attempts:
            yield (said + ", and nobody listens",), landed
            return
        self._tell_stories(world, attempt, outcome)
        if (
            self.scope.broken == "retry looks for the entry"
            and isinstance(outcome, KeyState)
            and append.maybe
        ):
            yield (
                (said + ", and {} does not find the entry", NAMES[number]),
                self._append_again(landed, number, outcome),
            )
            return
        yield (said,), self.conclude(landed, number, outcome)
        if world.may("appends"):
            unsure = agent._replace(appending=append._replace(maybe=True))
            lost = self.attempt(landed.spend("appends").with_agent(number, unsure), number)
            yield (said + "; its answer is lost",), lost
            again = self.attempt(world.spend("appends").with_agent(number, unsure), number)
            yield ("{} sends entry {} again: no answer", NAMES[number], attempt.sequence), again

    def _transaction(self, world: World, attempt: Attempt) -> tuple[World, int | KeyState | None]:
        """What the transaction does: compares the key, writes the entry, rewrites the key."""
        etcd = world.etcd
        key = next((key for key in etcd.keys if key.incarnation == attempt.incarnation), None)
        if key is None and self.scope.broken != "no fence":
            return world, None
        if key is not None and key.version != attempt.expected and self.scope.broken != "no compare":
            return world, KeyState(attempt.incarnation, key.sequence, key.version)
        version = attempt.expected + 1 if key is None else key.version + 1
        others = [each for each in etcd.keys if each.incarnation != attempt.incarnation]
        if key is not None:
            others.append(Key(attempt.incarnation, attempt.sequence, version))
        head = self.history.extend(etcd.head, (attempt.incarnation, attempt.sequence, attempt.items))
        return world._replace(etcd=etcd._replace(head=head, keys=tuple(sorted(others)))), version

    def _append_again(self, world: World, number: int, found: KeyState) -> World:
        """A wrong chain's retry: it looks whether the entry is there, and a trimmed one is not (rule 3)."""
        agent = world.agents[number]
        assert agent.appending is not None, "a retry of nothing"
        if world.etcd.trimmed != world.etcd.head:
            return self.conclude(world, number, found)
        return self.attempt(
            world.with_agent(number, agent._replace(chain=(agent.chain[0], found.revision))), number
        )

    def _tell_stories(self, world: World, attempt: Attempt, outcome: int | KeyState | None) -> None:
        """Count the turns that CORRECTNESS §1 asks for."""
        if isinstance(outcome, KeyState):
            self.stories["a retry finds its entry appended"] += 1
            if outcome.sequence == attempt.sequence and self._is_trimmed(world, attempt):
                self.stories["answer lost, entry applied, snapshotted and trimmed, then the retry"] += 1
        if outcome is None and attempt.incarnation not in self.live(world.etcd.head):
            chunks = {each.chunk for each in world.stored}
            own = {ChunkId(attempt.incarnation, item[1]) for item in attempt.items if item[0] == "commit"}
            if own - chunks:
                self.stories["fenced and its chunk collected between PUT and append"] += 1

    def _is_trimmed(self, world: World, attempt: Attempt) -> bool:
        content = (attempt.incarnation, attempt.sequence, attempt.items)
        return content not in self.history.between(world.etcd.trimmed, world.etcd.head)

    # -- misfortunes -----------------------------------------------------------------------------------

    def _misfortunes(self, world: World) -> Iterator[Step]:
        etcd = world.etcd
        for key in etcd.keys:
            owner = world.agents[key.incarnation // RUNS_MAX - 1]
            dead = owner.incarnation != key.incarnation
            if dead or world.may("leases"):
                after = world if dead else world.spend("leases")
                yield ("the lease of {:x} ends", key.incarnation), _without(after, key)
        if world.may("crashes"):
            for number, agent in enumerate(world.agents):
                if agent.incarnation:
                    yield ("{} is killed", NAMES[number]), self._kill(world.spend("crashes"), number)
        if world.may("trims"):
            depths = [self.history[node].depth for node in world.nodes]
            for node in dict.fromkeys(world.nodes):  # one that nobody is behind makes no difference
                if self.history[node].depth > max(self.history[etcd.trimmed].depth, min(depths)):
                    snapshot = etcd.snapshot if self.scope.broken == "trimmed too early" else node
                    behind = etcd._replace(trimmed=node, snapshot=snapshot, older=etcd.snapshot)
                    trimmed = world.spend("trims")._replace(etcd=behind)
                    yield (
                        (
                            "a snapshot is taken at entry {}, and the log trimmed to it",
                            self.history[node].depth,
                        ),
                        trimmed,
                    )

    def _kill(self, world: World, number: int) -> World:
        """Its memory is gone; who waited for it sees the connection close."""
        world = world.with_node(number, world.etcd.snapshot).with_agent(
            number, Agent(world.agents[number].runs)
        )
        for client, each in enumerate(world.clients):
            if each.waiting == number:
                world = refuse(world, (Send(client, each.batch, each.attempt, number),))
        return world


def _without(world: World, key: Key) -> World:
    keys = tuple(each for each in world.etcd.keys if each != key)
    return world._replace(etcd=world.etcd._replace(keys=keys))
