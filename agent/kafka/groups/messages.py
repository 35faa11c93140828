"""A group's proposals to the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from agent.kafka.groups.members import Member
from coordination.commands import (
    AssignClassicGeneration,
    ClassicMember,
    PutClassicGeneration,
    ReplaceClassicMember,
)


class Generation(Protocol):
    """What a proposal tells of a group (classic.py)."""

    group_id: str
    revision: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None

    @property
    def members(self) -> Mapping[str, Member]:
        """By member id."""
        ...


def put(group: Generation) -> PutClassicGeneration:
    """The group's next generation, with the members that it has now."""
    return PutClassicGeneration(
        group=group.group_id,
        expected_revision=group.revision,
        protocol_type=group.protocol_type or "",
        protocol=group.protocol or "",
        leader=group.leader or "",
        members=[_member(member) for member in group.members.values()],
    )


def assign(group: Generation, given: Mapping[str, bytes]) -> AssignClassicGeneration:
    """The leader's assignments, by member id."""
    return AssignClassicGeneration(
        group=group.group_id,
        expected_revision=group.revision,
        member_id=list(given),
        assignment=list(given.values()),
    )


def replacing(group: Generation, old_id: str, new: Member) -> ReplaceClassicMember:
    """A static member goes on under another member id."""
    return ReplaceClassicMember(
        group=group.group_id, expected_revision=group.revision, member_id=old_id, member=_member(new)
    )


def _member(member: Member) -> ClassicMember:
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=round(member.session_s * 1000),
        rebalance_timeout_ms=round(member.rebalance_s * 1000),
        protocols=[ClassicMember.Protocol(name=name, metadata=data) for name, data in member.protocols],
    )
