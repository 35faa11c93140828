"""ConsumerGroupHeartbeat: joining, staying, moving on, leaving. Pure; the rules are Kafka 4.3's.

Each request is answered from, and changes, a Draft. What it refuses it refuses before it changes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.kafka.groups.consumer.draft import Draft
from agent.kafka.groups.consumer.errors import GroupError
from agent.kafka.groups.consumer.migration import maybe_downgrade
from agent.kafka.groups.consumer.reconcile import Reported
from agent.kafka.groups.consumer.sights import Viewer
from agent.kafka.groups.consumer.topics import same_topics
from coordination.kafka_codes import Code
from coordination.state.consumer_types import (
    LEFT_FOR_A_WHILE,
    ConsumerGroupData,
    ConsumerMember,
    MemberState,
    Owned,
)

FIRST_EPOCH = 1  # of a group that nobody has joined yet
JOIN, LEAVE = 0, -1  # member epochs with a meaning of their own; LEFT_FOR_A_WHILE is the third
MEMBER_MAKES_ITS_ID_SINCE = 1  # version of the request


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One request. None: not said, so it stays as it was."""

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Reported | None = None
    client_id: str = ""
    client_host: str = ""
    viewer: Viewer | None = None  # who sends it, where that decides what a pattern shows

    @property
    def leaves(self) -> bool:
        """Whether the member goes, for good or for a while."""
        return self.epoch in (LEAVE, LEFT_FOR_A_WHILE)

    @property
    def full(self) -> bool:
        """Whether the member says everything: it may have missed an answer and wants its assignment."""
        said = self.rebalance_timeout_ms != -1 and self.owned is not None
        return self.epoch == JOIN or (said and (self.topics is not None or self.regex is not None))


@dataclass(frozen=True, slots=True)
class Answer:
    """`assignment` None: as it was. `hurry`: a target or partitions that it waits for may come soon."""

    member_id: str
    epoch: int
    assignment: Owned | None = None
    hurry: bool = False


def check(request: Heartbeat, version: int, assignors: Sequence[str]) -> None:
    """Refuse what no group would take. Raises GroupError."""
    if version >= MEMBER_MAKES_ITS_ID_SINCE or request.epoch > JOIN or request.epoch == LEAVE:
        _not_empty(request.member_id, "MemberId")
    _not_empty(request.group_id, "GroupId")
    _not_empty(request.instance_id, "InstanceId")
    _not_empty(request.rack, "RackId")
    if request.epoch == JOIN:
        _check_join(request)
    elif request.epoch == LEFT_FOR_A_WHILE:
        _not_empty(request.member_id, "MemberId")
        if request.instance_id is None:
            raise GroupError(Code.INVALID_REQUEST, "InstanceId can't be null.")
    elif request.epoch < LEFT_FOR_A_WHILE:
        raise GroupError(Code.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.assignor is not None and request.assignor not in assignors:
        raise GroupError(
            Code.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )


def _not_empty(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise GroupError(Code.INVALID_REQUEST, f"{name} can't be empty.")


def _check_join(request: Heartbeat) -> None:
    if request.rebalance_timeout_ms == -1:
        raise GroupError(Code.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or any(request.owned.values()):
        raise GroupError(Code.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if request.topics is None and request.regex is None:
        raise GroupError(
            Code.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )


def unchanged(data: ConsumerGroupData, request: Heartbeat) -> Answer | None:
    """The answer when there is nothing to change and nothing to say; None when a Draft must tell."""
    member = data.members.get(request.member_id)
    if (
        member is None
        or request.epoch <= JOIN
        or member.epoch != request.epoch
        or member.classic is not None
        or data.group_epoch != data.assignment_epoch
        or member.epoch != data.assignment_epoch
        or member.state != MemberState.STABLE
        or request.full
        or _said(member, request) != member
    ):
        return None
    return Answer(member.member_id, member.epoch)


def beat(draft: Draft, request: Heartbeat, new_id: str) -> Answer:
    """Take one heartbeat. `new_id` names a member that did not make an id of its own. Raises GroupError."""
    if request.leaves:
        return _leave(draft, request)
    joins = request.epoch == JOIN
    check_room(draft, request.member_id)
    before = _member(draft, request, request.member_id or new_id, joins)
    member = _said(before, request)
    changed = (member.topics, member.regex) != (before.topics, before.regex)
    if member is not draft.data.members.get(member.member_id):
        draft.put(member)
    if changed or draft.data.group_epoch <= FIRST_EPOCH:
        draft.bump()
    draft.retarget()
    member = draft.reconcile(member, request.owned, subscription_changed=changed)
    late = draft.data.group_epoch > draft.data.assignment_epoch
    show = request.full or not same_topics(member.assigned, before.assigned)
    return Answer(
        member.member_id,
        member.epoch,
        member.assigned if show else None,
        hurry=late or member.state == MemberState.UNRELEASED_PARTITIONS,
    )


def _said(member: ConsumerMember, request: Heartbeat) -> ConsumerMember:
    """The member with what the request says of it; the same object when that is nothing new."""
    topics = member.topics if request.topics is None else tuple(sorted(set(request.topics)))
    said = (
        request.instance_id or member.instance_id,
        request.rack or member.rack,
        member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        topics,
        member.regex if request.regex is None else request.regex,
        request.assignor or member.assignor,
        request.client_id,
        request.client_host,
        None,
    )
    known = (
        member.instance_id, member.rack, member.rebalance_timeout_ms, member.topics, member.regex,
        member.assignor, member.client_id, member.client_host, member.classic,
    )  # fmt: skip
    if said == known:
        return member
    instance_id, rack, timeout_ms, topics, regex, assignor, client_id, client_host, classic = said
    return replace(
        member,
        instance_id=instance_id,
        rack=rack,
        rebalance_timeout_ms=timeout_ms,
        topics=topics,
        regex=regex,
        assignor=assignor,
        client_id=client_id,
        client_host=client_host,
        classic=classic,
    )


def check_room(draft: Draft, member_id: str) -> None:
    """Refuse one more member than a group may have. Raises GroupError."""
    members = draft.data.members
    if len(members) >= draft.rules.size_max and member_id not in members:
        raise GroupError(
            Code.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {draft.rules.size_max} members.",
        )


def _member(draft: Draft, request: Heartbeat, member_id: str, joins: bool) -> ConsumerMember:
    """The member that speaks, made or renamed when it joins."""
    members = draft.data.members
    if request.instance_id is None:
        known = members.get(member_id)
        if known is None:
            if not joins:
                raise unknown_member(member_id, draft.group_id)
            return ConsumerMember(member_id, previous_epoch=0)
        check_epoch(known, request)
        return known
    holder = draft.data.static.get(request.instance_id)
    if not joins:
        known = static_member(draft.data, request.instance_id, member_id)
        check_epoch(known, request)
        return known
    if holder is None:
        return members.get(member_id) or ConsumerMember(member_id, previous_epoch=0)
    old = members[holder]
    if holder == member_id:
        return old  # it was fenced, or lost an answer, and begins anew
    if old.classic is None and old.epoch != LEFT_FOR_A_WHILE:
        raise GroupError(
            Code.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {request.instance_id} cannot join the group because "
            f"the instance id is owned by {old.member_id} member.",
        )
    return draft.replace_static(old, member_id)


def unknown_member(member_id: str, group_id: str) -> GroupError:
    """The member is not of this group."""
    return GroupError(Code.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def static_member(data: ConsumerGroupData, instance_id: str, member_id: str) -> ConsumerMember:
    """The member of an instance id. Raises GroupError when that is another one, or none."""
    holder = data.static.get(instance_id)
    if holder is None:
        raise GroupError(Code.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder != member_id:
        raise GroupError(
            Code.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {holder}.",
        )
    return data.members[holder]


def check_epoch(member: ConsumerMember, request: Heartbeat) -> None:
    """Refuse an epoch that is not the member's.

    Two others are taken: the epoch of joining, with which a member says that it owns nothing, and its
    previous one, as the answer that told the new one may have got lost.
    """
    if request.epoch in (member.epoch, JOIN):
        return
    if request.epoch > member.epoch:
        how = "greater"
    else:
        how = "smaller"
        if request.epoch == member.previous_epoch and _is_part(request.owned, member.assigned):
            return
    raise GroupError(
        Code.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {how} member epoch ({request.epoch}) than the one known by the "
        f"group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_part(owned: Reported | None, assigned: Owned) -> bool:
    if owned is None:
        return False
    return all(
        partition in assigned.get(topic_id, ()) for topic_id, row in owned.items() for partition in row
    )


def _leave(draft: Draft, request: Heartbeat) -> Answer:
    if request.instance_id is None:
        member = draft.data.members.get(request.member_id)
        if member is None:
            raise unknown_member(request.member_id, draft.group_id)
    else:
        member = static_member(draft.data, request.instance_id, request.member_id)
    if request.epoch == LEFT_FOR_A_WHILE:
        draft.put(replace(member, epoch=LEFT_FOR_A_WHILE, revoking={}))
    else:
        fence(draft, member.member_id)
    return Answer(request.member_id, request.epoch)


def fence(draft: Draft, member_id: str) -> None:
    """Take a member out: it left, or it was silent, or it did not give partitions back in time."""
    draft.drop(member_id)
    maybe_downgrade(draft)
