"""Consumer groups: who is a member of which generation, decided here and nowhere else.

A coordinator is a hint: any agent may believe that it coordinates a group. Each of these commands names the
revision at which its author saw the group, and is refused when the group changed since, so of two
coordinators one wins and the other learns it. Codes are Kafka's (GroupMetadataManager).
"""

from __future__ import annotations

from dataclasses import replace

from coordination.commands import (
    AssignClassicGeneration,
    DeleteGroups,
    PutClassicGeneration,
    ReplaceClassicMember,
)
from coordination.commands import ClassicMember as MemberMessage
from coordination.kafka_codes import Code
from coordination.state import bounds, consumer_groups
from coordination.state.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from coordination.state.data import StateData
from coordination.state.group_types import (
    CLASSIC,
    CONSUMER,
    ClassicGeneration,
    ClassicMember,
    Group,
)
from coordination.state.types import At, Done, Refused, Result

GROUPS_MAX = 100_000  # of the cluster
GENERATION_BYTES_MAX = 16 * 1024 * 1024  # metadata and assignments of one generation


def revision_of(state: StateData, group_id: str) -> int:
    """What a command on the group must expect; 0 when it does not exist or never had members."""
    group = state.groups.get(group_id)
    return 0 if group is None else group.revision


def is_empty(group: Group) -> bool:
    """Whether the group has no members in the log."""
    if group.kind == CONSUMER:
        return consumer_groups.is_empty(group)
    return group.classic is None or not group.classic.members


def subscribed(group: Group) -> frozenset[str] | None:
    """The topics that a classic group is known to consume; None when that is not known (other protocols)."""
    generation = group.classic
    if generation is None or generation.protocol_type != PROTOCOL_TYPE:
        return None
    topics: list[str] = []
    for member in generation.members.values():
        named = subscribed_topics(member.metadata(generation.protocol) or b"")
        if named is None:
            return None
        topics += named
    return frozenset(topics)


def subscribes(group: Group, topic: str) -> bool:
    """Whether the group's members consume the topic, as far as that is known."""
    if group.kind == CONSUMER:
        return consumer_groups.subscribes(group, topic)
    known = subscribed(group)
    if known is None:  # members whose subscriptions cannot be read may consume anything
        return group.classic is not None and group.classic.protocol_type == PROTOCOL_TYPE
    return topic in known


def open_group(state: StateData, group_id: str) -> Group | Refused:
    """The group, made when it does not exist."""
    group = state.groups.get(group_id)
    if group is None:
        if len(state.groups) >= GROUPS_MAX:
            return Refused(Code.POLICY_VIOLATION, f"the cluster has {GROUPS_MAX} groups, the most it takes")
        group = state.groups[group_id] = Group(group_id)
    return group


def changed_refusal(state: StateData, group_id: str, expected: int) -> Refused | None:
    """Why a change that expects the group at a revision is refused; None when it is not."""
    found = revision_of(state, group_id)
    if found == expected:
        return None
    return Refused(Code.NOT_COORDINATOR, f"group {group_id!r} changed at {found}, after {expected}")


def put_classic_generation(state: StateData, message: PutClassicGeneration, at: At) -> Result:
    """Begin the group's next generation. Done's value: its number, and the group's revision.

    Refused when the group changed since (NOT_COORDINATOR) or has members of KIP-848.
    """
    refused = changed_refusal(state, message.group, message.expected_revision) or _malformed(message)
    if refused is not None:
        return refused
    group = open_group(state, message.group)
    if isinstance(group, Refused):
        return group
    if group.kind == CONSUMER and not is_empty(group):
        return Refused(Code.INCONSISTENT_GROUP_PROTOCOL, f"group {message.group!r} has members of KIP-848")
    number = _next_generation(group)
    members = {member.member_id: _member(member) for member in message.members}
    group.classic = ClassicGeneration(
        number, message.protocol_type, message.protocol, message.leader, not members, members
    )
    _moved(group, at)
    return Done((number, at.revision))


def _next_generation(group: Group) -> int:
    """The number after the group's generation; behind the highest, 1 again."""
    last = group.classic.generation if group.classic is not None else 0
    return last + 1 if bounds.GENERATION.hold(last + 1) else 1


def _malformed(message: PutClassicGeneration) -> Refused | None:
    ids = [member.member_id for member in message.members]
    if len(dict.fromkeys(ids)) != len(ids) or "" in ids:
        return Refused(Code.INVALID_REQUEST, f"group {message.group!r}: member ids must be unique")
    if ids and message.leader not in ids:
        return Refused(Code.INVALID_REQUEST, f"leader {message.leader!r} is no member of {message.group!r}")
    size = sum(len(one.metadata) for member in message.members for one in member.protocols)
    return _size_refusal(message.group, size)


def _size_refusal(group_id: str, size: int) -> Refused | None:
    if size <= GENERATION_BYTES_MAX:
        return None
    return Refused(
        Code.UNKNOWN_SERVER_ERROR,
        f"group {group_id!r}: metadata or assignments of {size} bytes, at most {GENERATION_BYTES_MAX}",
    )


def _member(message: MemberMessage, assignment: bytes = b"") -> ClassicMember:
    return ClassicMember(
        message.member_id,
        message.instance_id if message.HasField("instance_id") else None,
        message.client_id,
        message.client_host,
        message.session_timeout_ms,
        message.rebalance_timeout_ms,
        tuple((one.name, one.metadata) for one in message.protocols),
        assignment,
    )


def _moved(group: Group, at: At) -> None:
    """The membership changed, and is that of a classic group now."""
    group.kind = CLASSIC
    group.consumer = None
    group.revision = at.revision
    group.state_ms = at.now_ms
    at.groups.append((group.group_id, ()))


def assign_classic_generation(state: StateData, message: AssignClassicGeneration, at: At) -> Result:
    """Give the generation its leader's assignments: it is stable. Done's value as above."""
    refused = changed_refusal(state, message.group, message.expected_revision)
    refused = refused or _size_refusal(message.group, sum(map(len, message.assignment)))
    if refused is not None:
        return refused
    group = state.groups.get(message.group)
    generation = group.classic if group is not None else None
    if group is None or generation is None or len(message.member_id) != len(message.assignment):
        return Refused(Code.INVALID_REQUEST, f"group {message.group!r}: no generation to assign, or columns")
    given = dict(zip(message.member_id, message.assignment, strict=True))
    members = {
        name: replace(member, assignment=given.get(name, b"")) for name, member in generation.members.items()
    }
    group.classic = replace(generation, assigned=True, members=members)
    _moved(group, at)
    return Done((generation.generation, at.revision))


def replace_classic_member(state: StateData, message: ReplaceClassicMember, at: At) -> Result:
    """Let a static member go on under a new member id (KIP-345). Done's value as above."""
    refused = changed_refusal(state, message.group, message.expected_revision)
    if refused is not None:
        return refused
    group = state.groups.get(message.group)
    generation = group.classic if group is not None else None
    old = generation.members.get(message.member_id) if generation is not None else None
    if group is None or generation is None or old is None:
        return Refused(Code.UNKNOWN_MEMBER_ID, f"{message.member_id!r} is no member of {message.group!r}")
    new = _member(message.member, old.assignment)
    if new.member_id in generation.members or not new.member_id:
        return Refused(Code.INVALID_REQUEST, f"group {message.group!r}: member ids must be unique")
    members = {
        new.member_id if name == old.member_id else name: new if name == old.member_id else member
        for name, member in generation.members.items()
    }
    leader = new.member_id if generation.leader == old.member_id else generation.leader
    group.classic = replace(generation, leader=leader, members=members)
    _moved(group, at)
    return Done((generation.generation, at.revision))


def delete_groups(state: StateData, message: DeleteGroups, at: At) -> Result:
    """Delete groups without members, with their positions. Done's value: an error code per group.

    Positions that wait for a transaction go too, as in Kafka: its end does not bring the group back.
    """
    codes: list[int] = []
    for group_id in message.group:
        group = state.groups.get(group_id)
        if group is None:
            codes.append(int(Code.GROUP_ID_NOT_FOUND))
        elif not is_empty(group):
            codes.append(int(Code.NON_EMPTY_GROUP))
        else:
            del state.groups[group_id]
            state.pending_offsets.pop(group_id, None)
            codes.append(0)
    return Done(tuple(codes))
