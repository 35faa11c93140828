"""Groups of KIP-848 as sections of a snapshot, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coordination.proto import snapshot_pb2 as pb
from coordination.state.consumer_types import (
    Assignment,
    ClassicProtocol,
    ConsumerGroupData,
    ConsumerMember,
    MemberState,
    Owned,
)

MEMBERS_PER_SECTION = 64


def consumer_group(data: ConsumerGroupData) -> pb.ConsumerGroup:
    """The group without its members."""
    return pb.ConsumerGroup(
        group_epoch=data.group_epoch,
        assignment_epoch=data.assignment_epoch,
        assignment_ms=data.assignment_ms,
        metadata_hash=data.metadata_hash,
    )


def member_sections(data: ConsumerGroupData) -> Iterator[pb.Section]:
    """The members with their targets."""
    members = list(data.members.values())
    for first in range(0, len(members), MEMBERS_PER_SECTION):
        rows = [_member(one, data.targets) for one in members[first : first + MEMBERS_PER_SECTION]]
        yield pb.Section(consumer_members=pb.ConsumerMembers(members=rows))


def _member(member: ConsumerMember, targets: dict[str, Assignment]) -> pb.ConsumerMember:
    target = targets.get(member.member_id)
    message = pb.ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack=member.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=member.topics,
        regex=member.regex,
        assignor=member.assignor,
        epoch=member.epoch,
        previous_epoch=member.previous_epoch,
        state=member.state,
        assigned=_given(member.assigned),
        revoking=_given(member.revoking),
        targeted=target is not None,
        target=[pb.GivenPartitions(topic_id=key, partition=row) for key, row in (target or {}).items()],
    )
    if member.classic is not None:
        message.classic = True
        message.session_timeout_ms = member.classic.session_timeout_ms
        message.protocols.extend(
            pb.ClassicMember.Protocol(name=name, metadata=metadata)
            for name, metadata in member.classic.protocols
        )
    return message


def _given(owned: Owned) -> list[pb.GivenPartitions]:
    return [
        pb.GivenPartitions(topic_id=key, partition=row.keys(), given_at=row.values())
        for key, row in owned.items()
    ]


def thaw_consumer_group(message: pb.ConsumerGroup) -> ConsumerGroupData:
    """The group that a section tells of, without members."""
    return ConsumerGroupData(
        message.group_epoch, message.assignment_epoch, message.assignment_ms, message.metadata_hash
    )


def thaw_members(data: ConsumerGroupData, message: pb.ConsumerMembers) -> Iterator[None]:
    """Add a section's members, one a step. Raises ValueError for partitions of two owners, bad columns."""
    for row in message.members:
        yield
        data.put(_thawed(row))
        if row.targeted:
            data.targets[row.member_id] = {one.topic_id: tuple(one.partition) for one in row.target}


def _thawed(row: pb.ConsumerMember) -> ConsumerMember:
    classic = None
    if row.classic:
        protocols = tuple((one.name, one.metadata) for one in row.protocols)
        classic = ClassicProtocol(row.session_timeout_ms, protocols)
    return ConsumerMember(
        row.member_id,
        row.instance_id if row.HasField("instance_id") else None,
        row.rack if row.HasField("rack") else None,
        row.client_id,
        row.client_host,
        row.rebalance_timeout_ms,
        tuple(row.topics),
        row.regex,
        row.assignor if row.HasField("assignor") else None,
        classic,
        row.epoch,
        row.previous_epoch,
        MemberState(row.state),
        _owned(row.assigned),
        _owned(row.revoking),
    )


def _owned(rows: Iterable[pb.GivenPartitions]) -> Owned:
    return {row.topic_id: dict(zip(row.partition, row.given_at, strict=True)) for row in rows}
