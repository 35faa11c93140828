"""Members of a classic group, what they ask for and what they are told. Times are seconds of one clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from coordination.kafka_codes import Code

NO_TIME = float("inf")


class GroupState(Enum):
    """States of a classic group, under Kafka's names. A group that is gone (Dead) has no object."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class Limits:
    """The broker configs that the machine needs, under Kafka's names; seconds."""

    initial_delay_s: float = 3.0  # group.initial.rebalance.delay.ms
    max_size: int = (1 << 31) - 1  # group.max.size
    new_member_s: float = 300.0  # group.new.member.join.timeout: a fixed five minutes, as in Kafka


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """One member as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to JoinGroup."""

    code: Code
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class Synced:
    """The answer to SyncGroup."""

    code: Code
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


JoinReply = Callable[[Joined], None]
SyncReply = Callable[[Synced], None]


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup as the machine takes it. `new_id`: the id that it gets when it has none."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_s: float
    rebalance_s: float
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    new_id: str
    id_required: bool = True  # JoinGroup 4 and later: come again with the id (KIP-394)
    skips_assignment: bool = False  # JoinGroup 9 and later (KIP-814)


@dataclass(slots=True, eq=False)
class Member:
    """A member in the table. `deadline`: when its session ends unless it is heard of."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_s: float
    rebalance_s: float
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    deadline: float = NO_TIME
    is_new: bool = False  # has not got the answer to its first JoinGroup
    joining: JoinReply | None = field(default=None, repr=False)
    syncing: SyncReply | None = field(default=None, repr=False)

    def metadata(self, protocol: str | None) -> bytes:
        """What it says under a protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """Its first protocol among the candidates."""
        return next(name for name, _ in self.protocols if name in candidates)

    def answer_join(self, answer: Joined) -> None:
        """Answer its parked JoinGroup, if there is one."""
        reply, self.joining = self.joining, None
        if reply is not None:
            reply(answer)

    def answer_sync(self, answer: Synced) -> None:
        """Answer its parked SyncGroup, if there is one."""
        reply, self.syncing = self.syncing, None
        if reply is not None:
            reply(answer)

    def parked(self) -> bool:
        """Whether it waits for an answer, so that its silence means nothing."""
        return self.joining is not None or self.syncing is not None


def member_of(join: Join, member_id: str, reply: JoinReply | None) -> Member:
    """The member that a JoinGroup makes."""
    return Member(
        member_id,
        join.instance_id,
        join.client_id,
        join.client_host,
        join.session_s,
        join.rebalance_s,
        join.protocols,
        joining=reply,
    )


def candidates(members: Iterable[Member]) -> set[str]:
    """The protocols that all members know."""
    known = [{name for name, _ in member.protocols} for member in members]
    return set.intersection(*known) if known else set()


def choice(members: Sequence[Member]) -> str | None:
    """The protocol that most members like best; None when they have none in common."""
    common = candidates(members)
    if not common:
        return None
    votes = Counter(member.vote(common) for member in members)
    return votes.most_common(1)[0][0]
