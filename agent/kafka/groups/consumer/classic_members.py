"""Members that still speak the classic protocol, in a group of KIP-848: JoinGroup, SyncGroup and the rest.

Their generation is their member epoch, their leader is nobody: assignments come from the coordinator. Pure;
the rules are Kafka 4.3's (classicGroupJoinToConsumerGroup and its neighbours).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.kafka.groups.consumer.draft import Draft
from agent.kafka.groups.consumer.embedded import PROTOCOL_TYPE, write_assignment
from agent.kafka.groups.consumer.errors import GroupError
from agent.kafka.groups.consumer.heartbeat import check_room, static_member, unknown_member
from agent.kafka.groups.consumer.migration import (
    by_id,
    by_name,
    maybe_downgrade,
    subscription_of,
    version_of,
)
from agent.kafka.groups.consumer.topics import Topics
from agent.kafka.groups.members import Join, Joined, Synced
from coordination.kafka_codes import Code
from coordination.state.consumer_types import (
    ClassicProtocol,
    ConsumerGroupData,
    ConsumerMember,
    MemberState,
)


@dataclass(frozen=True, slots=True)
class HandOver:
    """The group is no longer one of KIP-848: ask the classic coordinator."""


def join(draft: Draft, request: Join) -> Joined | HandOver:
    """Take a JoinGroup. Raises GroupError."""
    member_id = request.member_id or request.new_id
    check_room(draft, member_id)
    _check_protocols(draft.data, request, member_id)
    if not request.member_id and request.instance_id is None and request.id_required:
        return Joined(Code.MEMBER_ID_REQUIRED, member_id)
    if request.instance_id is not None and _replaces_last(draft, request.instance_id):
        return HandOver()
    said = subscription_of(request.protocols)
    before = _member(draft, request, member_id)
    member = replace(
        before,
        instance_id=request.instance_id or before.instance_id,
        rack=said.rack or before.rack,
        rebalance_timeout_ms=round(request.rebalance_s * 1000),
        topics=tuple(sorted(set(said.topics))),
        regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicProtocol(round(request.session_s * 1000), request.protocols),
    )
    changed = (member.topics, member.regex) != (before.topics, before.regex)
    if member != draft.data.members.get(member_id):
        draft.put(member)
    if changed:
        draft.bump()
    draft.retarget()
    member = draft.reconcile(member, by_id(draft.topics, said.owned), subscription_changed=changed)
    return Joined(Code.NONE, member_id, member.epoch, PROTOCOL_TYPE, request.protocols[0][0], leader="")


def named(request: Join) -> tuple[str, ...]:
    """The topics that a JoinGroup names; none when it cannot be read, which `join` refuses."""
    try:
        return subscription_of(request.protocols).topics if request.protocols else ()
    except GroupError:
        return ()


def _check_protocols(data: ConsumerGroupData, request: Join, member_id: str) -> None:
    lists = [
        [name for name, _ in member.classic.protocols]
        for member in data.members.values()
        if member.classic is not None
    ]
    offered = [name for name, _ in request.protocols]
    if request.protocol_type != PROTOCOL_TYPE or not any(
        all(name in names for names in lists) for name in offered
    ):
        raise GroupError(
            Code.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported."
        )


def _replaces_last(draft: Draft, instance_id: str) -> bool:
    """Whether the joining one takes the place of the last member of KIP-848; then that one is out."""
    holder = draft.data.static.get(instance_id)
    if holder is None or draft.data.members[holder].classic is not None or not draft.rules.downgrade:
        return False
    if any(m.classic is None for m in draft.data.members.values() if m.member_id != holder):
        return False
    draft.drop(holder)
    maybe_downgrade(draft)
    return True


def _member(draft: Draft, request: Join, member_id: str) -> ConsumerMember:
    if request.instance_id is None:
        return draft.data.members.get(member_id) or ConsumerMember(member_id, previous_epoch=0)
    if request.member_id:
        return static_member(draft.data, request.instance_id, member_id)
    holder = draft.data.static.get(request.instance_id)
    if holder is None:
        return ConsumerMember(member_id, previous_epoch=0)
    return draft.replace_static(draft.data.members[holder], member_id)


def sync(
    data: ConsumerGroupData,
    topics: Topics,
    member_id: str,
    instance_id: str | None,
    generation: int,
    protocols: tuple[str | None, str | None],
    group_id: str,
) -> Synced:
    """Answer a SyncGroup: what the member has. Raises GroupError."""
    member = classic_member(data, group_id, member_id, instance_id)
    classic = _spoken(member)
    _check_generation(member, generation)
    kind, name = protocols
    if (kind or PROTOCOL_TYPE) != PROTOCOL_TYPE or (name or classic.protocols[0][0]) != classic.protocols[0][
        0
    ]:
        raise GroupError(Code.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id} names another protocol.")
    if data.group_epoch > member.epoch and member.state != MemberState.UNREVOKED_PARTITIONS:
        raise GroupError(
            Code.REBALANCE_IN_PROGRESS,
            f"A new rebalance is triggered in group {group_id} and member {member_id} should rejoin to "
            "catch up.",
        )
    version = version_of(classic.protocols[0][1])
    return Synced(Code.NONE, kind, name, write_assignment(version, by_name(topics, member.assigned)))


def heartbeat(
    data: ConsumerGroupData, group_id: str, member_id: str, instance_id: str | None, generation: int
) -> Code:
    """NONE, or REBALANCE_IN_PROGRESS when the member must join again. Raises GroupError."""
    member = classic_member(data, group_id, member_id, instance_id)
    _spoken(member)
    _check_generation(member, generation)
    again = (
        member.epoch < data.group_epoch
        or member.state == MemberState.UNREVOKED_PARTITIONS
        or (member.state == MemberState.UNRELEASED_PARTITIONS and not _waits(data, member))
    )
    return Code.REBALANCE_IN_PROGRESS if again else Code.NONE


def _waits(data: ConsumerGroupData, member: ConsumerMember) -> bool:
    """Whether others hold any of what the member shall have."""
    return any(
        data.owner(topic_id, partition) not in (None, member.member_id)
        for topic_id, row in data.targets.get(member.member_id, {}).items()
        for partition in row
    )


def leave(draft: Draft, member_id: str, instance_id: str | None) -> str:
    """Take a member out that LeaveGroup names; its id. Raises GroupError.

    An administrator names members of the consumer protocol too, as Kafka allows.
    """
    if instance_id is not None and not member_id:  # an administrator names the instance alone
        holder = draft.data.static.get(instance_id)
        if holder is None:
            raise GroupError(Code.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        member_id = holder
    member = classic_member(draft.data, draft.group_id, member_id, instance_id)
    draft.drop(member.member_id)
    maybe_downgrade(draft)
    return member.member_id


def classic_member(
    data: ConsumerGroupData, group_id: str, member_id: str, instance_id: str | None
) -> ConsumerMember:
    """The member that a classic request names. Raises GroupError."""
    if instance_id is not None:
        return static_member(data, instance_id, member_id)
    member = data.members.get(member_id)
    if member is None:
        raise unknown_member(member_id, group_id)
    return member


def _spoken(member: ConsumerMember) -> ClassicProtocol:
    if member.classic is None:
        raise GroupError(
            Code.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol."
        )
    return member.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if member.epoch != generation:
        raise GroupError(
            Code.ILLEGAL_GENERATION,
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of "
            f"member {member.member_id}.",
        )
