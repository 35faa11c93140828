"""A consumer group as it will be once the log has taken the change that is being planned.

Planners work on a Draft one after the other; what all of them changed becomes one command. The command
is valid only for the revision of the group it was planned on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent.kafka.groups.consumer.assignors import ASSIGNORS, Subscriber
from agent.kafka.groups.consumer.reconcile import Reported, reconciled
from agent.kafka.groups.consumer.topics import Subscriptions, Topics
from coordination.state.consumer_types import Assignment, ConsumerGroupData, ConsumerMember


@dataclass(frozen=True, slots=True)
class Rules:
    """The configs that planning depends on. `assignors`: the first is the default."""

    size_max: int
    assignment_interval_ms: int
    assignors: tuple[str, ...] = ("uniform", "range")
    classic_size_max: int = 2**31 - 1
    upgrade: bool = True  # group.consumer.migration.policy
    downgrade: bool = True


def _unknown(member_id: str) -> float:
    return 0.0


class Draft:
    """`data` is the planner's own: it may change it. `downgraded`: the group became a classic one.

    `expected` tells when a member will be heard next, as far as that is known.
    """

    def __init__(
        self,
        group_id: str,
        before: ConsumerGroupData,
        topics: Topics,
        rules: Rules,
        now_ms: int,
        expected: Callable[[str], float] = _unknown,
    ) -> None:
        self.group_id = group_id
        self.before = before
        self.data = before.copy()
        self.topics = topics
        self.rules = rules
        self.now_ms = now_ms
        self.expected = expected
        self.wanted = Subscriptions(topics)
        self.downgraded = False

    @property
    def assignor(self) -> str:
        """The name of the assignor that most members prefer; the default when none says."""
        return preferred_assignor(self.data, self.rules.assignors)

    def put(self, member: ConsumerMember) -> None:
        """Add or replace a member."""
        self.data.put(member)

    def drop(self, member_id: str) -> None:
        """Remove a member; the group goes to its next epoch."""
        self.data.drop(member_id)
        self.bump()

    def bump(self) -> None:
        """Begin the group's next epoch: a new target is due."""
        self.data.group_epoch += 1
        self.data.metadata_hash = self.wanted.metadata_hash(self.data.members.values())

    def refresh(self, *, sights_changed: bool = False) -> None:
        """Begin the next epoch when the topics changed that the group wants, or that a member sees."""
        if sights_changed or self.wanted.metadata_hash(self.data.members.values()) != self.data.metadata_hash:
            self.bump()

    def retarget(self) -> None:
        """Compute the target of the group's epoch, unless the last one is too fresh (KIP-1263)."""
        data = self.data
        if data.group_epoch <= data.assignment_epoch:
            return
        age_ms = self.now_ms - data.assignment_ms
        if 0 <= age_ms < self.rules.assignment_interval_ms and data.assignment_epoch:
            return
        members = [
            Subscriber(
                m.member_id,
                m.instance_id,
                self.wanted.of(m),
                data.targets.get(m.member_id, {}),
                self.expected(m.member_id),
            )
            for m in data.members.values()
        ]
        found = ASSIGNORS[self.assignor](members, self.wanted.sizes)
        for member_id, target in found.items():
            before = data.targets.get(member_id)
            data.targets[member_id] = target if before is None or before != target else before
        data.assignment_epoch = data.group_epoch
        data.assignment_ms = self.now_ms

    def target_of(self, member: ConsumerMember) -> Assignment:
        """What a member shall have in the assignment epoch."""
        return self.data.targets.get(member.member_id, {})

    def reconcile(
        self, member: ConsumerMember, reported: Reported | None, *, subscription_changed: bool
    ) -> ConsumerMember:
        """Take the member's next step towards its target, and note it."""
        after = reconciled(
            member,
            self.data.assignment_epoch,
            self.target_of(member),
            lambda topic_id: self.wanted.wants(member, topic_id),
            self.data.owner,
            reported,
            subscription_changed=subscription_changed,
        )
        if after is not self.data.members.get(after.member_id):
            self.put(after)
        return after

    def replace_static(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """A static member under its new id: it keeps partitions and target, and begins at epoch 0."""
        new = replace(old, member_id=member_id, epoch=0, previous_epoch=0)
        target = self.target_of(old)
        self.data.drop(old.member_id)
        self.data.targets[member_id] = target
        self.put(new)
        return new


def preferred_assignor(data: ConsumerGroupData, known: Sequence[str]) -> str:
    """The name of the assignor that most members prefer; the first among equals."""
    votes = Counter(member.assignor for member in data.members.values() if member.assignor in known)
    return max(known, key=lambda name: votes[name])
