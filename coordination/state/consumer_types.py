"""What a group of the consumer protocol (KIP-848) is in the state. Readers may look, never touch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

LEFT_FOR_A_WHILE = -2  # the epoch of a static member that left and is expected back

Assignment = Mapping[bytes, tuple[int, ...]]  # topic id → partitions, rising
Owned = Mapping[bytes, Mapping[int, int]]  # topic id → partition → member epoch at which it was given
Owners = dict[bytes, dict[int, str]]  # topic id → partition → member id; no topic without partitions


class MemberState(IntEnum):
    """Where a member stands on its way to its target assignment."""

    STABLE = 0  # it has all of the target of its epoch
    UNREVOKED_PARTITIONS = 1  # it must give partitions back before it moves on
    UNRELEASED_PARTITIONS = 2  # it waits for partitions that others hold


@dataclass(frozen=True, slots=True)
class ClassicProtocol:
    """What a member that still speaks the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # name and embedded metadata, in the order of its preference


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member. `topics` are sorted names; `regex` empty: none; times are ms."""

    member_id: str
    instance_id: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] = ()
    regex: str = ""
    assignor: str | None = None  # the server assignor that it prefers
    classic: ClassicProtocol | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)  # still its own until it says that it gave them back

    def holds(self, topic_id: bytes, partition: int) -> bool:
        """Whether nobody else may own the partition."""
        return partition in self.assigned.get(topic_id, ()) or partition in self.revoking.get(topic_id, ())

    def given_at(self, topic_id: bytes, partition: int) -> int | None:
        """The member epoch at which it got the partition; None when it does not hold it."""
        found = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if found is None else found


@dataclass(slots=True)
class ConsumerGroupData:
    """The members, the target and the epochs. `owners` and `static` follow from `members`.

    `assignment_ms`: stamp of the proposer when the target was computed. `metadata_hash`: of the subscribed
    topics as the group epoch knows them (agent/kafka/groups/consumer/topics.py).
    """

    group_epoch: int = 0
    assignment_epoch: int = 0
    assignment_ms: int = 0
    metadata_hash: bytes = b""
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, Assignment] = field(default_factory=dict)
    owners: Owners = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)

    def reindex(self) -> None:
        """Derive `owners` and `static` anew. Raises ValueError when two members hold one partition."""
        self.owners = {}
        self.static = {}
        for member in self.members.values():
            claim(self.owners, member)
            if member.instance_id is not None:
                self.static[member.instance_id] = member.member_id

    def copy(self) -> ConsumerGroupData:
        """One whose tables can be changed without changing this one's."""
        return ConsumerGroupData(
            self.group_epoch,
            self.assignment_epoch,
            self.assignment_ms,
            self.metadata_hash,
            dict(self.members),
            dict(self.targets),
            {topic_id: dict(row) for topic_id, row in self.owners.items()},
            dict(self.static),
        )

    def note(self) -> ConsumerGroupData:
        """What a snapshot says of the group, safe from later changes."""
        noted = ConsumerGroupData(
            self.group_epoch, self.assignment_epoch, self.assignment_ms, self.metadata_hash
        )
        noted.members, noted.targets = dict(self.members), dict(self.targets)
        return noted

    def owner(self, topic_id: bytes, partition: int) -> str | None:
        """The member that holds the partition, or has still to give it back."""
        return self.owners.get(topic_id, {}).get(partition)

    def owned(self) -> int:
        """How many partitions have an owner."""
        return sum(map(len, self.owners.values()))

    def put(self, member: ConsumerMember) -> None:
        """Add or replace a member. Raises ValueError when another one holds a partition of it."""
        self.put_all((member,))

    def put_all(self, members: Iterable[ConsumerMember]) -> None:
        """Add or replace members; what one of them gives back another one may take."""
        added = tuple(members)
        for member in added:
            before = self.members.get(member.member_id)
            if before is not None:
                release(self.owners, before)
                self._forget_instance(before)
        for member in added:
            claim(self.owners, member)
            self.members[member.member_id] = member
            if member.instance_id is not None:
                self.static[member.instance_id] = member.member_id

    def drop(self, member_id: str) -> None:
        """Remove a member and its target."""
        member = self.members.pop(member_id)
        self.targets.pop(member_id, None)
        release(self.owners, member)
        self._forget_instance(member)

    def _forget_instance(self, member: ConsumerMember) -> None:
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]


def claim(owners: Owners, member: ConsumerMember) -> None:
    """Note what a member holds. Raises ValueError when another one holds it."""
    for table in (member.assigned, member.revoking):
        for topic_id, partitions in table.items():
            row = owners.get(topic_id)
            if row is None:  # a first member has 100,000 of them
                if partitions:
                    owners[topic_id] = dict.fromkeys(partitions, member.member_id)
                continue
            for partition in partitions:
                owner = row.setdefault(partition, member.member_id)
                if owner != member.member_id:
                    raise ValueError(
                        f"partition {partition} of topic {topic_id.hex()} belongs to {owner!r} and "
                        f"would go to {member.member_id!r}"
                    )


def release(owners: Owners, member: ConsumerMember) -> None:
    """Forget what a member holds."""
    for table in (member.assigned, member.revoking):
        for topic_id, partitions in table.items():
            row = owners.get(topic_id)
            if row is None:
                continue
            for partition in partitions:
                if row.get(partition) == member.member_id:
                    del row[partition]
            if not row:
                del owners[topic_id]
