"""Consumer groups as sections of a snapshot, and back."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from coordination.proto import snapshot_pb2 as pb
from coordination.state.freeze_consumers import consumer_group, member_sections, thaw_consumer_group
from coordination.state.group_types import ClassicGeneration, ClassicMember, Group, OffsetTable

OFFSETS_PER_SECTION = 4096

FrozenGroup = Group
"""A group with columns of its own; what it shares with the state is never changed in place."""


def note_group(group: Group) -> FrozenGroup:
    """What a snapshot says of the group, safe from later changes."""
    return Group(
        group.group_id,
        group.kind,
        group.revision,
        group.state_ms,
        group.offsets.copy(),
        group.classic,
        group.consumer.note() if group.consumer is not None else None,
        group.committer,
        group.committed_revision,
    )


def group_sections(group: FrozenGroup) -> Iterator[pb.Section]:
    """The sections of one group: itself, then its positions."""
    message = pb.Group(
        group_id=group.group_id,
        kind=group.kind,
        revision=group.revision,
        state_ms=group.state_ms,
        committer=group.committer,
        committed_revision=group.committed_revision,
    )
    if group.classic is not None:
        message.classic.CopyFrom(_generation(group.classic))
    if group.consumer is not None:
        message.consumer.CopyFrom(consumer_group(group.consumer))
    yield pb.Section(group=message)
    if group.consumer is not None:
        yield from member_sections(group.consumer)
    for first in range(0, len(group.offsets), OFFSETS_PER_SECTION):
        yield pb.Section(group_offsets=_offsets(group.offsets, first, first + OFFSETS_PER_SECTION))


def _generation(generation: ClassicGeneration) -> pb.ClassicGeneration:
    return pb.ClassicGeneration(
        generation=generation.generation,
        protocol_type=generation.protocol_type,
        protocol=generation.protocol,
        leader=generation.leader,
        assigned=generation.assigned,
        members=[_member(member) for member in generation.members.values()],
    )


def _member(member: ClassicMember) -> pb.ClassicMember:
    return pb.ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=[pb.ClassicMember.Protocol(name=n, metadata=m) for n, m in member.protocols],
        assignment=member.assignment,
    )


def _offsets(table: OffsetTable, first: int, end: int) -> pb.GroupOffsets:
    handles = table.handles[first:end]
    with_metadata = [handle for handle in handles if handle in table.metadata]
    expiring = [handle for handle in handles if handle in table.expires]
    return pb.GroupOffsets(
        partition=handles,
        offset=table.offsets[first:end],
        leader_epoch=table.epochs[first:end],
        committed_ms=table.committed_ms[first:end],
        metadata_of=with_metadata,
        metadata=[table.metadata[handle] for handle in with_metadata],
        expiring=expiring,
        expire_ms=[table.expires[handle] for handle in expiring],
    )


def thaw_group(message: pb.Group) -> Group:
    """The group that a section tells of, without positions."""
    group = Group(
        message.group_id,
        message.kind,
        message.revision,
        message.state_ms,
        committer=message.committer,
        committed_revision=message.committed_revision,
    )
    if message.HasField("classic"):
        told = message.classic
        members = {member.member_id: _thawed(member) for member in told.members}
        group.classic = ClassicGeneration(
            told.generation, told.protocol_type, told.protocol, told.leader, told.assigned, members
        )
    if message.HasField("consumer"):
        group.consumer = thaw_consumer_group(message.consumer)
    return group


def _thawed(member: pb.ClassicMember) -> ClassicMember:
    return ClassicMember(
        member.member_id,
        member.instance_id if member.HasField("instance_id") else None,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        tuple((one.name, one.metadata) for one in member.protocols),
        member.assignment,
    )


def thaw_offsets(group: Group, message: pb.GroupOffsets) -> None:
    """Add the positions of a section to the group. Raises ValueError for columns that do not fit."""
    total = len(message.partition)
    if not total == len(message.offset) == len(message.leader_epoch) == len(message.committed_ms):
        raise ValueError(f"positions of group {group.group_id!r}: columns of different lengths")
    table = group.offsets
    table.handles += array("I", message.partition)
    table.offsets += array("q", message.offset)
    table.epochs += array("i", message.leader_epoch)
    table.committed_ms += array("q", message.committed_ms)
    table.metadata.update(zip(message.metadata_of, message.metadata, strict=True))
    table.expires.update(zip(message.expiring, message.expire_ms, strict=True))
