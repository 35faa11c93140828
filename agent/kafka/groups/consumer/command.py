"""What planners changed in a Draft, as a command of the log."""

from __future__ import annotations

from agent.kafka.groups.consumer.draft import Draft
from agent.kafka.groups.consumer.migration import classic_generation
from coordination.commands import (
    ChangeConsumerGroup,
    ClassicMember,
    ConsumerAssignment,
    ConsumerTarget,
    DowngradeConsumerGroup,
    GivenPartitions,
)
from coordination.commands import ConsumerMember as MemberMessage
from coordination.state.consumer_types import Assignment, ConsumerGroupData, ConsumerMember, Owned


def command_of(
    draft: Draft, known: ConsumerGroupData, expected_revision: int
) -> ChangeConsumerGroup | DowngradeConsumerGroup | None:
    """The one command that turns the group in the state into the draft; None when nothing changed.

    `known` is the group as the state holds it. It differs from the draft's `before` when a classic group is
    being upgraded: `before` is then that group in the form of KIP-848, which the state does not have.
    """
    if draft.downgraded:
        return _downgrade(draft, expected_revision)
    data = draft.data
    change = ChangeConsumerGroup(
        group=draft.group_id,
        expected_revision=expected_revision,
        group_epoch=data.group_epoch,
        assignment_epoch=data.assignment_epoch,
        assignment_ms=data.assignment_ms,
        metadata_hash=data.metadata_hash,
        removed=[name for name in known.members if name not in data.members],
    )
    for name, member in data.members.items():
        before = known.members.get(name)
        if before is member:
            continue
        if before is None or _said(before) != _said(member):
            change.members.append(_member(member))
        if before is None or _stands(before) != _stands(member):
            change.assignments.append(_assignment(member))
    for name, target in data.targets.items():
        before_target = known.targets.get(name)
        if before_target is not target and before_target != target:
            change.targets.append(ConsumerTarget(member_id=name, partitions=_rows(target)))
    heads = ("group_epoch", "assignment_epoch", "assignment_ms", "metadata_hash")
    same = all(getattr(known, name) == getattr(data, name) for name in heads)
    if same and not (change.removed or change.members or change.assignments or change.targets):
        return None
    return change


def _said(member: ConsumerMember) -> tuple[object, ...]:
    return (
        member.instance_id, member.rack, member.client_id, member.client_host, member.rebalance_timeout_ms,
        member.topics, member.regex, member.assignor, member.classic,
    )  # fmt: skip


def _stands(member: ConsumerMember) -> tuple[object, ...]:
    return (member.epoch, member.previous_epoch, member.state, member.assigned, member.revoking)


def _member(member: ConsumerMember) -> MemberMessage:
    message = MemberMessage(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack=member.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=member.topics,
        regex=member.regex,
        assignor=member.assignor,
    )
    if member.classic is not None:
        message.classic = True
        message.session_timeout_ms = member.classic.session_timeout_ms
        message.protocols.extend(_protocols(member.classic.protocols))
    return message


def _protocols(protocols: tuple[tuple[str, bytes], ...]) -> list[ClassicMember.Protocol]:
    return [ClassicMember.Protocol(name=name, metadata=metadata) for name, metadata in protocols]


def _assignment(member: ConsumerMember) -> ConsumerAssignment:
    return ConsumerAssignment(
        member_id=member.member_id,
        epoch=member.epoch,
        previous_epoch=member.previous_epoch,
        state=member.state,
        assigned=_given(member.assigned),
        revoking=_given(member.revoking),
    )


def _given(owned: Owned) -> list[GivenPartitions]:
    return [
        GivenPartitions(topic_id=key, partition=row.keys(), given_at=row.values())
        for key, row in owned.items()
    ]


def _rows(target: Assignment) -> list[GivenPartitions]:
    return [GivenPartitions(topic_id=key, partition=row) for key, row in target.items()]


def _downgrade(draft: Draft, expected_revision: int) -> DowngradeConsumerGroup:
    generation = classic_generation(draft)
    return DowngradeConsumerGroup(
        group=draft.group_id,
        expected_revision=expected_revision,
        generation=generation.generation,
        protocol=generation.protocol,
        leader=generation.leader,
        members=[
            ClassicMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                session_timeout_ms=member.session_timeout_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                protocols=_protocols(member.protocols),
                assignment=member.assignment,
            )
            for member in generation.members.values()
        ],
    )
