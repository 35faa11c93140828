"""Who is in a classic group, and what that means for a request. No time, no I/O."""

from __future__ import annotations

from collections.abc import Callable

from agent.kafka.groups.members import (
    GroupState,
    Join,
    Joined,
    JoinedMember,
    Limits,
    Member,
    Synced,
    candidates,
)
from coordination.kafka_codes import Code
from coordination.state.group_types import Group

PENDING_MAX = 10_000  # member ids given out in one group and not used yet


class MemberTable:
    """The members of a group, its state, its leader and its generation."""

    def __init__(self, group_id: str, limits: Callable[[], Limits]) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.revision = 0
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}  # instance id → member id
        self.pending: dict[str, float] = {}  # ids given out whose owner has not come again → until when
        self._common: set[str] | None = None  # protocols that all members know; None: to be found out
        self._to_sync: dict[str, None] = {}  # who got the generation and has not asked for its assignment
        self._limits = limits

    def take(self, group: Group) -> None:
        """Take over what the log says of the group."""
        self.revision = group.revision
        generation = group.classic
        if generation is None:
            return
        self.generation = generation.generation
        self.protocol_type = generation.protocol_type or None
        self.protocol = generation.protocol or None
        self.leader = generation.leader or None
        for one in generation.members.values():
            self.members[one.member_id] = Member(
                one.member_id,
                one.instance_id,
                one.client_id,
                one.client_host,
                one.session_timeout_ms / 1000,
                one.rebalance_timeout_ms / 1000,
                one.protocols,
                one.assignment,
            )
            if one.instance_id is not None:
                self.static[one.instance_id] = one.member_id

    def refusal(self, member_id: str, instance_id: str | None, generation: int) -> Code | None:
        """Why a member of a generation is not one; None when it is."""
        code = self._member_refusal(member_id, instance_id)
        if code is None and generation != self.generation:
            return Code.ILLEGAL_GENERATION
        return code

    def _member_refusal(self, member_id: str, instance_id: str | None) -> Code | None:
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is not None and known != member_id:
                return Code.FENCED_INSTANCE_ID
            if known is None:
                return Code.UNKNOWN_MEMBER_ID
        return None if member_id in self.members else Code.UNKNOWN_MEMBER_ID

    def _has_room(self, member_id: str) -> bool:
        """Whether group.max.size lets this one join; who waits for a join already is in."""
        most = self._limits().max_size
        known = self.members.get(member_id)
        if not member_id and len(self.pending) >= PENDING_MAX:
            return False
        if self.state is GroupState.EMPTY or len(self.members) < most:
            return True
        if self.state is GroupState.PREPARING:
            waiting = sum(member.joining is not None for member in self.members.values())
            return (known is not None and known.joining is not None) or waiting < most
        return known is not None or len(self.members) < most

    def _supports(self, join: Join) -> bool:
        if self.state is GroupState.EMPTY or not self.members:  # all may have left before it was formed
            return bool(join.protocol_type) and bool(join.protocols)
        if self._common is None:
            self._common = candidates(self.members.values())
        known = any(name in self._common for name, _ in join.protocols)
        return known and self.protocol_type == join.protocol_type

    def _other_protocol(self, protocols: tuple[str | None, str | None]) -> bool:
        own = (self.protocol_type, self.protocol)
        pairs = zip(protocols, own, strict=True)
        return any(said is not None and known is not None and said != known for said, known in pairs)

    def _all_joined(self) -> bool:
        return not self.pending and all(member.joining is not None for member in self.members.values())

    def _rebalance_s(self) -> float:
        return max((member.rebalance_s for member in self.members.values()), default=0.0)

    def _roster(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol))
            for member in self.members.values()
        )

    def _joined(self, member: Member) -> Joined:
        return Joined(
            Code.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            members=self._roster() if member.member_id == self.leader else (),
        )

    def _synced(self, member: Member) -> Synced:
        return Synced(Code.NONE, self.protocol_type, self.protocol, member.assignment)

    def _forget(self, member: Member) -> None:
        del self.members[member.member_id]
        self._common = None
        self._to_sync.pop(member.member_id, None)
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def _swap(self, old: Member, new: Member) -> None:
        self._common = None
        old.answer_join(Joined(Code.FENCED_INSTANCE_ID, old.member_id))
        old.answer_sync(Synced(Code.FENCED_INSTANCE_ID))
        self.members = {
            (new if member is old else member).member_id: new if member is old else member
            for member in self.members.values()
        }
        if new.instance_id is not None:
            self.static[new.instance_id] = new.member_id
        if self.leader == old.member_id:
            self.leader = new.member_id
        if old.member_id in self._to_sync:
            del self._to_sync[old.member_id]
            self._to_sync[new.member_id] = None
