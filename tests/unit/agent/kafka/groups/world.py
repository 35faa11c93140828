"""A world in one thread: agents that believe what they like, a log that decides, members that carry on.

Time is a number, chance is a seeded generator, the log is the real apply. An agent may crash, be drained, or
go on believing that it coordinates the group after another one took over; answers are lost with it. Only
then: whoever else gives the group up answers every question, once. Members behave as clients do: they keep id
and generation until they are told otherwise, or begin anew.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agent.kafka.groups.classic import ClassicGroup
from agent.kafka.groups.members import Join, Joined, Limits, Synced
from coordination.commands import CommitOffsets, ExpireOffsets
from coordination.kafka_codes import Code
from coordination.state import Done, Refused, Result
from coordination.state.groups import revision_of
from tests.equipment.group_members import subscription
from tests.unit.coordination.kit import Script

GROUP, PARTITIONS = "g", 5
SESSION_S, REBALANCE_S = 10.0, 20.0
LIMITS = Limits(initial_delay_s=1.0)
GIVE_UP = {Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.FENCED_INSTANCE_ID}


@dataclass(eq=False)
class Agent:
    """One agent's table of the group, if it runs it; what is on its way to the log."""

    number: int
    group: ClassicGroup | None = None
    replies: set[int] = field(default_factory=set)  # owed to whoever asked the group, by number
    outgoing: list[tuple[ClassicGroup, Any]] = field(default_factory=list)
    commits: list[tuple[CommitOffsets, Callable[[Result], None]]] = field(default_factory=list)


@dataclass(eq=False)
class Actor:
    """One member. `asked` numbers its questions: the answer to an older one is not listened to."""

    name: str
    instance: str | None = None
    member_id: str = ""
    generation: int = -1
    owned: dict[int, int] = field(default_factory=dict)  # partition → position
    asked: int = 0
    waiting: bool = False
    to_sync: Callable[[], None] | None = None  # its SyncGroup, while that is on its way


class World:
    """Runs `step` by step; what must hold is asserted in every one."""

    def __init__(self, seed: int, agents: int = 3, actors: int = 4) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.script = Script()
        self.agents = [Agent(101 + number) for number in range(agents)]
        for agent in self.agents:
            self.script.register(agent.number)
        self.handles = self.script.topic(101, "t", PARTITIONS)
        self.actors = [Actor(f"m{n}", f"i{n}" if n % 2 else None) for n in range(actors)]
        self.coordinator = self.agents[0]
        self.owners: dict[tuple[int, int], str] = {}  # (generation, partition) → actor
        self.highest = 0  # generation seen in the log
        self.acknowledged = dict.fromkeys(self.handles, -1)
        self.ids = 0
        self.questions = 0  # that groups were asked, each with a reply of its own
        self.log_back_at = 0.0  # nothing reaches the log before
        self.shared = 0  # times that an actor got partitions
        self.commits = 0

    # The log.

    def deliver(self, agent: Agent) -> None:
        """The agent's oldest proposal reaches the log; the agent hears of it if it still runs the group."""
        group, proposal = agent.outgoing.pop(0)
        result = self.script.one(agent.number, proposal)
        self.check_log()
        if agent.group is not group:
            return
        if isinstance(result, Refused):
            self.drop(agent, result.code)
            return
        assert isinstance(result, Done)
        generation, revision = result.value  # type: ignore[misc]  # Done's value is any object
        group.decided(self.now, generation, revision)
        self.follow_up(agent)

    def follow_up(self, agent: Agent) -> None:
        """Send what the table wants to be decided."""
        group = agent.group
        if group is not None and group.proposal is not None:
            agent.outgoing.append((group, group.proposal))
            group.proposal = None

    def check_log(self) -> None:
        """Generations never go back, but in a group that was forgotten; positions never."""
        group = self.script.state.groups.get(GROUP)
        if group is None:
            assert set(self.acknowledged.values()) == {-1}
            self.highest = 0
            self.owners.clear()
            return
        if group.classic is not None:
            assert group.classic.generation >= self.highest
            self.highest = group.classic.generation
        for handle, least in self.acknowledged.items():
            position = group.offsets.get(handle)
            assert (position.offset if position is not None else -1) >= least

    # Agents.

    def running(self, agent: Agent) -> ClassicGroup:
        """The agent's table, loaded when it is not there or when the log shows that another one won."""
        group = agent.group
        revision = revision_of(self.script.state, GROUP)
        if group is not None and not group.busy and group.revision != revision:
            self.drop(agent, Code.NOT_COORDINATOR)
        if agent.group is None:
            agent.group = ClassicGroup(GROUP, lambda: LIMITS)
            known = self.script.state.groups.get(GROUP)
            if known is not None:
                agent.group.load(known, self.now)
        return agent.group

    def drop(self, agent: Agent, code: Code) -> None:
        """The agent stops running the group, and tells whoever waits."""
        group, agent.group = agent.group, None
        if group is not None:
            group.abandon(code)
            assert not agent.replies, f"{len(agent.replies)} who asked the group hear nothing of its end"
            assert not group.busy, "a group that nobody runs waits for the log"

    def owed(self, agent: Agent, hear: Callable[[Any], None]) -> Callable[[Any], None]:
        """A reply that the agent's group must call once, unless the agent falls."""
        self.questions += 1
        number = self.questions
        agent.replies.add(number)

        def reply(answer: Any) -> None:
            assert number in agent.replies, "a question is answered twice"
            agent.replies.remove(number)
            hear(answer)

        return reply

    def crash(self, agent: Agent) -> None:
        """The agent is gone, with whatever it had not sent; who waited hears nothing."""
        agent.group = None
        agent.replies.clear()
        for held in (agent.outgoing, agent.commits):
            del held[self.chance.randint(0, len(held)) :]
        for actor in self.actors:
            if actor.waiting and self.chance.random() < 0.7:
                self.give_up(actor)

    def believer(self) -> Agent:
        """Whom a member asks: mostly the coordinator, sometimes another one that believes it is."""
        return self.coordinator if self.chance.random() < 0.8 else self.chance.choice(self.agents)

    def settle(self, agent: Agent) -> None:
        """An administrator wants to know when nothing of the group is under way."""
        group = self.running(agent)
        tell = self.owed(agent, lambda _: None)
        group.when_settled(lambda: tell(None))

    def log_away(self) -> None:
        """The log does not answer for a while; agents that waited for it may give up."""
        self.log_back_at = self.now + self.chance.random() * 2 * REBALANCE_S

    def log_back(self) -> None:
        """It answers again."""
        self.log_back_at = 0.0
        for agent in self.agents:
            if agent.outgoing and self.chance.random() < 0.5:
                self.drop(agent, Code.COORDINATOR_NOT_AVAILABLE)

    # Members.

    def listen(self, actor: Actor, hear: Callable[[Any], None]) -> Callable[[Any], None]:
        """A reply that counts only while the actor waits for it."""
        actor.asked += 1
        actor.waiting = True
        number = actor.asked

        def reply(answer: Any) -> None:
            if actor.asked == number:
                actor.waiting = False
                hear(answer)

        return reply

    def give_up(self, actor: Actor) -> None:
        """The actor listens no more for the answer that it waits for."""
        actor.asked += 1
        actor.waiting = False
        actor.to_sync = None

    def join(self, actor: Actor) -> None:
        agent = self.believer()
        group = self.running(agent)
        self.ids += 1
        join = Join(
            actor.member_id,
            actor.instance,
            actor.name,
            "/h",
            SESSION_S,
            REBALANCE_S,
            "consumer",
            (("range", subscription(["t"])),),
            f"{actor.name}-{self.ids}",
            skips_assignment=True,
        )
        hear = self.listen(actor, lambda joined: self.joined(actor, agent, joined))
        group.join(self.now, join, self.owed(agent, hear))
        self.follow_up(agent)

    def joined(self, actor: Actor, agent: Agent, joined: Joined) -> None:
        if joined.code is Code.MEMBER_ID_REQUIRED:
            actor.member_id = joined.member_id
        elif joined.code is not Code.NONE:
            self.refused(actor, joined.code)
        else:
            actor.member_id = joined.member_id
            ids = sorted(member.member_id for member in joined.members)
            given = [(name, bytes(range(PARTITIONS))[place :: len(ids)]) for place, name in enumerate(ids)]
            told = [] if joined.skip_assignment else given
            actor.to_sync = partial(self.sync, actor, agent, joined.generation, told)
            if self.chance.random() < 0.8:
                self.send_sync(actor)

    def send_sync(self, actor: Actor) -> None:
        """The actor's SyncGroup arrives."""
        send, actor.to_sync = actor.to_sync, None
        assert send is not None
        send()

    def restart(self, actor: Actor) -> None:
        """The member begins anew, and knows nothing of its id."""
        self.give_up(actor)
        actor.generation, actor.owned, actor.member_id = -1, {}, ""

    def sync(self, actor: Actor, agent: Agent, generation: int, given: list[tuple[str, bytes]]) -> None:
        group = agent.group
        if group is None:  # the answer to a join came as its agent fell
            return
        hear = self.listen(actor, lambda synced: self.synced(actor, generation, synced))
        member, protocols = (actor.member_id, actor.instance), ("consumer", "range")
        group.sync(self.now, *member, generation, protocols, given, self.owed(agent, hear))
        self.follow_up(agent)

    def synced(self, actor: Actor, generation: int, synced: Synced) -> None:
        if synced.code is not Code.NONE:
            self.refused(actor, synced.code)
            return
        actor.generation = generation
        actor.owned = {}
        self.shared += bool(synced.assignment)
        for partition in synced.assignment:
            owner = self.owners.setdefault((generation, partition), actor.name)
            assert owner == actor.name, f"{owner} and {actor.name} own {partition} in {generation}"
            group = self.script.state.groups[GROUP]
            position = group.offsets.get(self.handles[partition])
            found = position.offset if position is not None else -1
            assert found >= self.acknowledged[self.handles[partition]], "an acknowledged commit is lost"
            actor.owned[partition] = found

    def refused(self, actor: Actor, code: Code) -> None:
        if code is Code.REBALANCE_IN_PROGRESS:
            actor.generation = -1
        elif code in GIVE_UP:
            actor.generation, actor.owned, actor.member_id = -1, {}, ""

    def heartbeat(self, actor: Actor) -> None:
        agent = self.believer()
        group = self.running(agent)
        code = group.heartbeat(self.now, actor.member_id, actor.instance, actor.generation)
        self.refused(actor, code)

    def commit(self, actor: Actor) -> None:
        """Positions only rise. An agent may hold a commit back, and its sender may not wait for it."""
        partition = self.chance.choice(sorted(actor.owned))
        offset = actor.owned[partition] + self.chance.randint(0, 3)
        message = CommitOffsets(
            group=GROUP,
            generation=actor.generation,
            member_id=actor.member_id,
            instance_id=actor.instance,
            partition=[self.handles[partition]],
            offset=[offset],
            seen_revision=self.script.state.revision,
        )
        agent = self.chance.choice(self.agents)
        hear = self.listen(actor, lambda result: self.committed(actor, partition, offset, result))
        agent.commits.append((message, hear))
        if self.chance.random() < 0.7:
            while agent.commits:
                self.deliver_commit(agent)
        else:
            self.give_up(actor)

    def deliver_commit(self, agent: Agent) -> None:
        """The agent's oldest commit reaches the log."""
        message, hear = agent.commits.pop(0)
        result = self.script.one(agent.number, message)
        self.check_log()
        self.commits += isinstance(result, Done)
        hear(result)

    def committed(self, actor: Actor, partition: int, offset: int, result: Result) -> None:
        if isinstance(result, Refused):
            self.refused(actor, result.code)
        else:
            actor.owned[partition] = offset
            self.acknowledged[self.handles[partition]] = offset

    def leave(self, actor: Actor) -> None:
        agent = self.believer()
        group = self.running(agent)
        reply = self.owed(agent, lambda codes: None)
        group.leave(self.now, [(actor.member_id, actor.instance)], reply)
        self.follow_up(agent)
        actor.generation, actor.owned, actor.member_id = -1, {}, ""

    # Steps.

    def act(self) -> None:
        """Something happens to somebody."""
        actor = self.chance.choice(self.actors)
        roll = self.chance.random()
        if actor.waiting:
            if roll < 0.02:  # it has waited long enough
                self.give_up(actor)
        elif actor.to_sync is not None:
            self.send_sync(actor)
        elif actor.generation < 0:
            self.join(actor)
        elif roll < 0.4:
            self.heartbeat(actor)
        elif roll < 0.97 and actor.owned:
            self.commit(actor)
        elif roll > 0.99:
            self.leave(actor)
        elif roll > 0.98:
            self.restart(actor)

    def step(self) -> None:
        """Time passes, a proposal lands, a timer fires, an agent falls, somebody acts."""
        self.now += self.chance.random() * 0.6
        roll = self.chance.random()
        if self.log_back_at and self.log_back_at <= self.now:
            self.log_back()
        sending = [agent for agent in self.agents if agent.outgoing and not self.log_back_at]
        holding = [agent for agent in self.agents if agent.commits]
        if sending and roll < 0.5:
            self.deliver(self.chance.choice(sending))
        elif holding and roll < 0.505:
            self.deliver_commit(self.chance.choice(holding))
        elif roll < 0.52:
            self.coordinator = self.chance.choice(self.agents)
        elif roll < 0.525:
            self.crash(self.chance.choice(self.agents))
        elif roll < 0.53:
            self.drop(self.chance.choice(self.agents), Code.NOT_COORDINATOR)
        elif roll < 0.535:
            self.script.now_ms += 1000
            self.script.one(101, ExpireOffsets(retention_ms=1 << 40, group=[GROUP]))
            self.check_log()
        elif roll < 0.54:
            self.settle(self.chance.choice(self.agents))
        elif roll < 0.545 and not self.log_back_at:
            self.log_away()
        else:
            self.act()
        for agent in self.agents:
            if agent.group is not None and agent.group.wake_at <= self.now:
                self.running(agent).tick(self.now)
                self.follow_up(agent)
