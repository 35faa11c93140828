"""Groups of KIP-848 as commits and expiry see them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordination.kafka_codes import Code

if TYPE_CHECKING:
    from coordination.state.group_types import Group


@dataclass(slots=True)
class ConsumerGroupData:
    """The members' epochs, by member id."""

    members: dict[str, int] = field(default_factory=dict)


def is_empty(group: Group) -> bool:
    """Whether the group has no members."""
    return group.consumer is None or not group.consumer.members


def subscribes(group: Group, topic: str) -> bool:
    """Whether a member consumes the topic."""
    return not is_empty(group)


def speaks_classic(group: Group, member_id: str) -> bool:
    """Whether the member uses the classic protocol in this group (migration)."""
    return False


def commit_refusal(group: Group, member_id: str, epoch: int) -> Code | None:
    """Why a member's commit is refused; None when it is not (ConsumerGroup.validateOffsetCommit)."""
    known = group.consumer.members.get(member_id) if group.consumer is not None else None
    if known is None:
        return Code.UNKNOWN_MEMBER_ID
    return None if known == epoch else Code.STALE_MEMBER_EPOCH
