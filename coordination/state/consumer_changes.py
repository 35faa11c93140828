"""Groups of KIP-848: the change that a coordinator planned takes effect here, or does not.

The plan is made by pure code outside (agent/kafka/groups/consumer): who is a member, the epochs, who shall
have what and who has it. Apply takes it only for the revision of the group it was made on, and only when no
partition gets a second owner and no epoch goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from coordination.commands import (
    ChangeConsumerGroup,
    ConsumerAssignment,
    DowngradeConsumerGroup,
    GivenPartitions,
)
from coordination.commands import ConsumerMember as MemberMessage
from coordination.kafka_codes import Code
from coordination.state.consumer_types import (
    LEFT_FOR_A_WHILE,
    Assignment,
    ClassicProtocol,
    ConsumerGroupData,
    ConsumerMember,
    MemberState,
    Owned,
)
from coordination.state.data import StateData
from coordination.state.group_types import CLASSIC, CONSUMER, ClassicGeneration, ClassicMember
from coordination.state.groups import changed_refusal, open_group
from coordination.state.levels import INSTANCES_ONCE
from coordination.state.types import At, Done, Refused, Result

MEMBERS_MAX = 10_000  # of one group
PROTOCOL_TYPE = "consumer"


def change_consumer_group(state: StateData, message: ChangeConsumerGroup, at: At) -> Result:
    """Take a planned change. Done's value: None. NOT_COORDINATOR when the group changed since the plan."""
    refused = changed_refusal(state, message.group, message.expected_revision)
    if refused is not None:
        return refused
    known = state.groups.get(message.group)
    data = known.consumer if known is not None and known.kind == CONSUMER else None
    if data is None:
        data = ConsumerGroupData()
    changed = _changed(data, message)
    if isinstance(changed, Refused):
        return changed
    refused = _refusal(data, message, changed)
    if refused is None and state.feature_level >= INSTANCES_ONCE:
        refused = _shared_instance(data, message, changed)
    if refused is not None:
        return refused
    group = open_group(state, message.group)
    if isinstance(group, Refused):
        return group
    _take(data, message, changed)
    group.kind = CONSUMER
    group.classic = None
    group.consumer = data
    group.revision = at.revision
    group.state_ms = at.now_ms
    at.groups.append((message.group, tuple(changed)))
    return Done()


def _changed(data: ConsumerGroupData, message: ChangeConsumerGroup) -> dict[str, ConsumerMember] | Refused:
    """The members that the change adds or alters, as they will be."""
    changed: dict[str, ConsumerMember] = {}
    for said in message.members:
        changed[said.member_id] = _with_said(data.members.get(said.member_id), said)
    for row in message.assignments:
        member = changed.get(row.member_id) or data.members.get(row.member_id)
        if member is None:
            return Refused(Code.UNKNOWN_MEMBER_ID, f"group {message.group!r}: no member {row.member_id!r}")
        why = _unreadable(row)
        if why is not None:
            return _wrong(message, why)
        changed[row.member_id] = _with_assignment(member, row)
    return changed


def _unreadable(row: ConsumerAssignment) -> str | None:
    """Why nobody can tell what the row says of a member; None when one can."""
    if row.state not in tuple(MemberState):
        return f"member {row.member_id!r} would be in state {row.state}"
    for given in (*row.assigned, *row.revoking):
        if len(given.partition) != len(given.given_at):
            columns = f"{len(given.partition)} partitions but {len(given.given_at)} epochs"
            return f"member {row.member_id!r} has {columns} of topic {given.topic_id.hex()}"
    return None


def _with_said(known: ConsumerMember | None, said: MemberMessage) -> ConsumerMember:
    classic = None
    if said.classic:
        protocols = tuple((one.name, one.metadata) for one in said.protocols)
        classic = ClassicProtocol(said.session_timeout_ms, protocols)
    return replace(
        known or ConsumerMember(said.member_id),
        instance_id=said.instance_id if said.HasField("instance_id") else None,
        rack=said.rack if said.HasField("rack") else None,
        client_id=said.client_id,
        client_host=said.client_host,
        rebalance_timeout_ms=said.rebalance_timeout_ms,
        topics=tuple(said.topics),
        regex=said.regex,
        assignor=said.assignor if said.HasField("assignor") else None,
        classic=classic,
    )


def _with_assignment(member: ConsumerMember, row: ConsumerAssignment) -> ConsumerMember:
    return replace(
        member,
        epoch=row.epoch,
        previous_epoch=row.previous_epoch,
        state=MemberState(row.state),
        assigned=_owned(row.assigned),
        revoking=_owned(row.revoking),
    )


def _owned(rows: Iterable[GivenPartitions]) -> Owned:
    return {row.topic_id: dict(zip(row.partition[:], row.given_at[:], strict=True)) for row in rows}


def _assignment(rows: Iterable[GivenPartitions]) -> Assignment:
    return {
        row.topic_id: tuple(row.partition[:]) for row in rows
    }  # a slice is quicker than the repeated field


def _refusal(
    data: ConsumerGroupData, message: ChangeConsumerGroup, changed: Mapping[str, ConsumerMember]
) -> Refused | None:
    """Why a change must not be taken although the group is as its author saw it: the plan is wrong."""
    leaving = frozenset(message.removed)
    if message.group_epoch < data.group_epoch or message.assignment_epoch < data.assignment_epoch:
        return _wrong(message, "an epoch goes back")
    if not leaving <= data.members.keys() or leaving & changed.keys():
        return _wrong(message, "it removes who is no member, or stays")
    if len(data.members) - len(leaving) + len(changed.keys() - data.members.keys()) > MEMBERS_MAX:
        return Refused(Code.GROUP_MAX_SIZE_REACHED, f"{message.group!r}: at most {MEMBERS_MAX} members")
    for name, member in changed.items():
        before = data.members.get(name)
        if before is not None and LEFT_FOR_A_WHILE != member.epoch < before.epoch:
            return _wrong(message, f"the epoch of member {name!r} goes back")
    twice = _held_twice(data, changed, leaving)
    if twice is not None:
        return _wrong(message, twice)
    if len(leaving) < len(message.removed):
        return _wrong(message, "it removes a member twice")
    return None


def _held_twice(
    data: ConsumerGroupData, changed: Mapping[str, ConsumerMember], leaving: frozenset[str]
) -> str | None:
    """Which partition would have two owners, or None. Looks only into topics with several holders."""
    holders: dict[bytes, list[tuple[str, Mapping[int, int]]]] = {}
    for name, member in changed.items():
        for topic_id, partitions in (*member.assigned.items(), *member.revoking.items()):
            holders.setdefault(topic_id, []).append((name, partitions))
    for topic_id, tables in holders.items():
        others = data.owners.get(topic_id, {})
        if len(tables) == 1 and not others:
            continue
        owners: dict[int, str] = {}
        for name, partitions in tables:
            for partition in partitions:
                stays = others.get(partition)
                if stays is None or stays in changed or stays in leaving:
                    stays = owners.setdefault(partition, name)
                if stays != name:
                    return f"partition {partition} of topic {topic_id.hex()} belongs to {stays!r}"
    return None


def _shared_instance(
    data: ConsumerGroupData, message: ChangeConsumerGroup, changed: Mapping[str, ConsumerMember]
) -> Refused | None:
    """The refusal of a change after which two members would have one instance id; None for any other.

    Which of the two is found by it would depend on who changed last, and a snapshot does not say that.
    """
    holders: dict[str, str] = {}
    for name, member in changed.items():
        instance_id = member.instance_id
        if instance_id is None:
            continue
        holder = data.static.get(instance_id, name)
        stays = holder not in changed and holder not in message.removed
        if holders.setdefault(instance_id, name) != name or (stays and holder != name):
            return _wrong(message, f"instance id {instance_id!r} would be of two members")
    return None


def _wrong(message: ChangeConsumerGroup, why: str) -> Refused:
    return Refused(Code.UNKNOWN_SERVER_ERROR, f"change of group {message.group!r} is not possible: {why}")


def _take(
    data: ConsumerGroupData, message: ChangeConsumerGroup, changed: Mapping[str, ConsumerMember]
) -> None:
    data.group_epoch = message.group_epoch
    data.assignment_epoch = message.assignment_epoch
    data.assignment_ms = message.assignment_ms
    data.metadata_hash = message.metadata_hash
    for member_id in message.removed:
        data.drop(member_id)
    data.put_all(changed.values())
    for target in message.targets:
        if target.member_id in data.members:
            data.targets[target.member_id] = _assignment(target.partitions)


def downgrade_consumer_group(state: StateData, message: DowngradeConsumerGroup, at: At) -> Result:
    """Let those who still speak the classic protocol go on as a classic group. Done's value: the generation.

    Refused when the group changed since (NOT_COORDINATOR), or is none of KIP-848.
    """
    refused = changed_refusal(state, message.group, message.expected_revision)
    if refused is not None:
        return refused
    group = state.groups.get(message.group)
    if group is None or group.kind != CONSUMER:
        return Refused(Code.GROUP_ID_NOT_FOUND, f"group {message.group!r} is none of KIP-848")
    members = {
        one.member_id: ClassicMember(
            one.member_id,
            one.instance_id if one.HasField("instance_id") else None,
            one.client_id,
            one.client_host,
            one.session_timeout_ms,
            one.rebalance_timeout_ms,
            tuple((protocol.name, protocol.metadata) for protocol in one.protocols),
            one.assignment,
        )
        for one in message.members
    }
    if message.leader not in members:
        return Refused(Code.INVALID_REQUEST, f"leader {message.leader!r} is no member of {message.group!r}")
    group.classic = ClassicGeneration(
        message.generation, PROTOCOL_TYPE, message.protocol, message.leader, True, members
    )
    group.kind = CLASSIC
    group.consumer = None
    group.revision = at.revision
    group.state_ms = at.now_ms
    at.groups.append((message.group, ()))
    return Done(message.generation)
