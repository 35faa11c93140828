"""Groups of KIP-848 under random joins, leaves, silence, lost answers, two coordinators and changing topics.

The planners are the real ones, so is apply. Clients behave as clients do: they give back what they are not
assigned, say so with their next heartbeat, and begin anew when they are fenced. After every step no two
clients own one partition, no epoch and no acknowledged position has gone back; left alone, the group comes to
its target, which is balanced, and stays there. What is broken on purpose below is caught by the same checks.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent.kafka.groups.consumer import draft as drafts
from agent.kafka.groups.consumer import reconcile
from agent.kafka.groups.consumer.command import command_of
from agent.kafka.groups.consumer.draft import Draft, Rules
from agent.kafka.groups.consumer.errors import GroupError
from agent.kafka.groups.consumer.heartbeat import FIRST_EPOCH, Answer, Heartbeat, beat
from agent.kafka.groups.consumer.runner import StateTopics
from agent.kafka.groups.consumer.work import Work, fencing, plan_all
from coordination.commands import CommitOffsets, CreatePartitions, DeleteTopic
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest, decode, encode
from coordination.state import Done, Refused, consumer_groups, group_offsets
from coordination.state.consumer_types import ConsumerGroupData, ConsumerMember
from tests.unit.coordination.kit import Script

AGENT, OTHER, GROUP = 101, 102, "g"
RULES = Rules(size_max=50, assignment_interval_ms=500)
STEPS, CALM_ROUNDS = 400, 12
SEEDS = range(40)


class Topics(StateTopics):
    """The state's topics, with patterns matched at once."""

    def matching(self, regex: str, view: Hashable = None) -> tuple[str, ...]:
        return tuple(sorted(name for name in self._state.topics if re.fullmatch(regex, name)))


@dataclass
class Client:
    """A consumer. `owned` is what it really reads; it tells that truthfully."""

    member_id: str
    topics: tuple[str, ...]
    regex: str = ""
    instance_id: str | None = None
    epoch: int = 0
    owned: dict[bytes, set[int]] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)  # by handle of what it owns
    says_all: bool = True  # after a lost answer, and when it joins

    def request(self) -> Heartbeat:
        said = self.says_all or self.epoch == 0
        return Heartbeat(
            GROUP,
            self.member_id,
            self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=60_000 if said else -1,
            topics=self.topics if said else None,
            regex=self.regex if said else None,
            owned={topic_id: sorted(row) for topic_id, row in self.owned.items()},
        )

    def follow(self, answer: Answer) -> None:
        self.epoch, self.says_all = answer.epoch, False
        if answer.assignment is not None:
            self.owned = {topic_id: set(row) for topic_id, row in answer.assignment.items()}

    def fenced(self) -> None:
        self.epoch, self.owned, self.says_all = 0, {}, True
        self.positions = {}


class World:
    """One log, coordinators that may look at an old state, and the clients."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.script = Script()
        self.script.register(AGENT)
        self.script.register(OTHER)
        self.held: dict[int, list[CommitOffsets]] = {AGENT: [], OTHER: []}
        self.acknowledged: dict[int, int] = {}  # position by handle
        self.commits = 0
        self.clients: list[Client] = []
        self.numbers = 0
        self.epochs: dict[str, int] = {}
        self.topic("a", 5)
        self.topic("b", 3)

    # The cluster.

    def topic(self, name: str, partitions: int) -> None:
        self.script.topic(AGENT, name, partitions)

    @property
    def data(self) -> ConsumerGroupData:
        group = self.script.state.groups.get(GROUP)
        return group.consumer if group is not None and group.consumer is not None else ConsumerGroupData()

    def plan(self, *works: Work, stale: bool = False) -> bool:
        """Plan on the state as it is, or as it was for another coordinator; whether the log took it."""
        state = self.script.state
        known = state.groups.get(GROUP)
        before = known.consumer if known is not None and known.consumer is not None else None
        base = before or ConsumerGroupData(group_epoch=FIRST_EPOCH)
        draft = Draft(GROUP, base, Topics(state, {}), RULES, self.script.now_ms)
        if before is not None and before.members:
            draft.refresh()
        revision = known.revision if known is not None else 0
        plan_all(draft, list(works), before is not None)
        change = command_of(draft, base, revision)
        if change is None:
            return True
        if stale:  # meanwhile the other coordinator planned something
            self.plan(Work(fencing("nobody", lambda: True)), Work(_touch))
            result = self.script.one(AGENT, change)
            assert isinstance(result, Refused)
            assert result.code is Code.NOT_COORDINATOR
            return False
        assert isinstance(self.script.one(AGENT, change), Done), "a plan that apply refuses"
        return True

    # Steps.

    def heartbeat(self, client: Client, *, lost: bool = False) -> None:
        work = Work(lambda draft: beat(draft, client.request(), "unused"), creates=client.epoch == 0)
        self.plan(work)
        self.check_epochs()
        if lost:
            client.says_all = True
        elif isinstance(work.outcome, GroupError):
            if work.outcome.code is Code.UNRELEASED_INSTANCE_ID:
                return
            assert work.outcome.code in (
                Code.FENCED_MEMBER_EPOCH,
                Code.UNKNOWN_MEMBER_ID,
                Code.FENCED_INSTANCE_ID,
            )
            client.fenced()
        else:
            client.follow(work.outcome)
            self.take_over(client)

    # Positions.

    def position(self, handle: int) -> int:
        """What the log has; it never is less than what was acknowledged."""
        group = self.script.state.groups.get(GROUP)
        known = group.offsets.get(handle) if group is not None else None
        found = known.offset if known is not None else -1
        assert found >= self.acknowledged.get(handle, -1), "an acknowledged position went back"
        return found

    def handles_of(self, client: Client) -> list[int]:
        """The partitions that it owns, of those that still exist."""
        topics = self.script.state.topics_by_id
        return [
            partition.handle
            for topic_id, row in client.owned.items()
            for partition in (topics[topic_id].partitions if topic_id in topics else ())
            if partition.index in row
        ]

    def take_over(self, client: Client) -> None:
        """It reads on where the group was in what it got, and forgets what it gave back."""
        handles = self.handles_of(client)
        client.positions = {
            handle: client.positions[handle] if handle in client.positions else self.position(handle)
            for handle in handles
        }

    def commit(self, client: Client) -> None:
        """It reads on and commits. An agent may hold that back, and the client may not wait for it."""
        known = [handle for handle in self.handles_of(client) if handle in client.positions]
        if not known:
            return
        handle = self.random.choice(known)
        client.positions[handle] = max(client.positions[handle], 0) + self.random.randint(0, 3)
        message = CommitOffsets(
            group=GROUP,
            generation=client.epoch,
            member_id=client.member_id,
            instance_id=client.instance_id,
            member_epochs_known=True,
            partition=[handle],
            offset=[client.positions[handle]],
            seen_revision=self.script.state.revision,
        )
        author = self.random.choice([AGENT, OTHER])
        self.held[author].append(message)
        if self.random.random() < 0.7:
            while self.held[author]:
                self.deliver(author)

    def deliver(self, author: int) -> None:
        """The oldest commit that an agent holds reaches the log."""
        message = self.held[author].pop(0)
        result = self.script.one(author, message)
        for handle in self.acknowledged:
            self.position(handle)
        handle = message.partition[0]
        if result == Done() and self.script.state.partitions[handle] is not None:
            self.commits += 1
            self.acknowledged[handle] = message.offset[0]

    def join(self) -> None:
        self.numbers += 1
        topics, regex = self.random.choice([(("a",), ""), (("a", "b"), ""), (("b", "c"), ""), ((), "[ab].*")])
        instance = f"i{self.numbers % 3}" if self.random.random() < 0.3 else None
        if instance is not None and any(client.instance_id == instance for client in self.clients):
            return
        client = Client(f"m{self.numbers}", topics, regex, instance)
        self.clients.append(client)
        self.heartbeat(client)

    def leave(self, client: Client) -> None:
        if client.epoch == 0:  # it is not in yet, or again: nobody hears it go
            self.silence(client)
            return
        self.clients.remove(client)
        request = Heartbeat(GROUP, client.member_id, -1, instance_id=client.instance_id)
        self.plan(Work(lambda draft: beat(draft, request, "")))

    def silence(self, client: Client) -> None:
        """It crashes, and its session ends."""
        self.clients.remove(client)
        late = self.data.static.get(client.instance_id or "", client.member_id)
        self.plan(Work(fencing(late, lambda: True)))

    def restart(self, client: Client) -> None:
        """A static member goes for a while and comes back under another id."""
        gone = Heartbeat(GROUP, client.member_id, -2, instance_id=client.instance_id)
        self.plan(Work(lambda draft: beat(draft, gone, "")))
        self.numbers += 1
        client.member_id = f"m{self.numbers}"
        client.fenced()

    def subscribe(self, client: Client) -> None:
        client.topics = self.random.choice([("a",), ("a", "b"), ("b",), ("c", "a"), ()])
        client.says_all = True

    def change_topics(self) -> None:
        state = self.script.state
        name = self.random.choice("abc")
        if name not in state.topics:
            self.topic(name, self.random.randint(1, 6))
        elif self.random.random() < 0.4:
            self.script.one(AGENT, DeleteTopic(name=name))
        else:
            total = len(state.topics[name].partitions) + 1
            self.script.one(AGENT, CreatePartitions(topic=name, total=total))

    def step(self) -> None:
        self.script.now_ms += self.random.randint(0, 400)
        chance = self.random.random()
        if chance < 0.08 and len(self.clients) < 8:
            self.join()
        elif chance < 0.11:
            self.change_topics()
        elif chance < 0.12:
            self.script.through_snapshot()
        elif chance < 0.13:
            holding = [author for author, held in self.held.items() if held]
            if holding:
                self.deliver(self.random.choice(holding))
        elif self.clients:
            self.step_of(self.random.choice(self.clients), self.random.random())

    def step_of(self, client: Client, chance: float) -> None:
        if chance < 0.03:
            self.leave(client)
        elif chance < 0.06:
            self.silence(client)
        elif chance < 0.09:
            self.subscribe(client)
        elif chance < 0.12 and client.instance_id is not None and client.epoch > 0:
            self.restart(client)
        elif chance < 0.15:
            self.plan(
                Work(lambda draft: beat(draft, client.request(), ""), creates=client.epoch == 0), stale=True
            )
            client.says_all = True
        elif chance < 0.17:  # its session ends although it lives, and it does not know
            self.plan(Work(fencing(client.member_id, lambda: True)))
        elif chance < 0.5:
            self.commit(client)
        else:
            self.heartbeat(client, lost=chance > 0.95)

    # Checks.

    def check_owners(self) -> None:
        owned = Counter(
            (topic_id, number)
            for client in self.clients
            if client.member_id in self.data.members
            for topic_id, row in client.owned.items()
            for number in row
        )
        assert all(count == 1 for count in owned.values()), "a partition with two owners"

    def check_epochs(self) -> None:
        now = {"group": self.data.group_epoch, "assignment": self.data.assignment_epoch}
        now |= {name: member.epoch for name, member in self.data.members.items() if member.epoch >= 0}
        for name, epoch in now.items():
            assert epoch >= self.epochs.get(name, 0), f"the epoch of {name} went back"
        self.epochs |= now

    def calm(self) -> None:
        """Nothing happens any more but heartbeats."""
        for _ in range(CALM_ROUNDS):
            self.script.now_ms += RULES.assignment_interval_ms
            for client in self.clients:
                self.heartbeat(client)
                self.check_owners()

    def check_target(self) -> None:
        """Every partition that anybody wants has one owner who wants it; nobody could be relieved."""
        topics = Topics(self.script.state, {})
        wants = {
            client.member_id: {*client.topics, *(topics.matching(client.regex) if client.regex else ())}
            for client in self.clients
        }
        owner: dict[tuple[str, int], str] = {}
        for client in self.clients:
            for topic_id, row in client.owned.items():
                owner |= {(topics.name_of(topic_id) or "gone", number): client.member_id for number in row}
        existing = self.script.state.topics
        wanted = {name for names in wants.values() for name in names if name in existing}
        assert owner.keys() == {(n, i) for n in wanted for i in range(len(existing[n].partitions))}
        sizes = Counter(owner.values())
        for (name, _), member_id in owner.items():
            assert name in wants[member_id]
            for other, names in wants.items():
                assert name not in names or sizes[member_id] - sizes[other] < 2, "unbalanced"


def _touch(draft: Draft) -> None:
    """What another coordinator may have done: anything that changes the group."""
    draft.bump()
    draft.retarget()


def live(seed: int) -> World:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
        world.check_owners()
        world.check_epochs()
    return world


def live_all() -> None:
    for seed in SEEDS:
        live(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_partition_has_one_owner_and_the_group_comes_to_its_target(seed: int) -> None:
    world = live(seed)
    world.join()
    world.calm()
    world.check_target()
    assert {client.epoch for client in world.clients} == {world.data.group_epoch}
    entries, targets = len(world.script.entries), dict(world.data.targets)
    world.calm()
    assert (len(world.script.entries), world.data.targets) == (entries, targets), "it does not rest"
    assert world.commits
    state, other = world.script.state, world.script.replayed()
    assert canonical_digest(decode(encode(state))) == canonical_digest(state) == canonical_digest(other)


def test_the_same_seed_makes_the_same_log() -> None:
    first, second = live(3), live(3)
    assert [entry.payload for entry in first.script.entries] == [e.payload for e in second.script.entries]


def test_a_partition_given_before_it_is_given_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a planner that does not wait for what others hold."""
    real = reconcile.reconciled

    def careless(*said: Any, **more: Any) -> ConsumerMember:
        member, epoch, target, wants, _, reported = said
        return real(member, epoch, target, wants, lambda topic_id, number: None, reported, **more)

    monkeypatch.setattr(drafts, "reconciled", careless)
    with pytest.raises((AssertionError, ValueError), match=r"two owners|refuses|belongs to"):
        live_all()


def test_a_member_that_is_believed_to_have_given_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a planner that does not ask what a member still owns."""
    monkeypatch.setattr(reconcile, "_owns", lambda reported, partitions: False)
    with pytest.raises(AssertionError, match="two owners"):
        live_all()


def test_commits_that_an_agent_held_back_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a coordinator of before overwrites what the next one has acknowledged."""
    monkeypatch.setattr(group_offsets, "_overtaken", lambda *_: False)
    with pytest.raises(AssertionError, match="went back"):
        live_all()


def test_commits_of_former_owners_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: nobody looks whether the partition is still the member's."""
    monkeypatch.setattr(consumer_groups, "commit_refusal", lambda *_: None)
    with pytest.raises(AssertionError, match="went back"):
        live_all()
