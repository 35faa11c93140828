"""Groups of KIP-848 as commits and expiry see them."""

from __future__ import annotations

from collections.abc import Iterable

from coordination.kafka_codes import Code
from coordination.state.group_types import Group


def is_empty(group: Group) -> bool:
    """Whether the group has no members."""
    return group.consumer is None or not group.consumer.members


def subscribes(group: Group, topic: str) -> bool:
    """Whether a member names the topic, or has a pattern, which apply does not resolve."""
    members = group.consumer.members.values() if group.consumer is not None else ()
    return any(topic in member.topics or member.regex for member in members)


def speaks_classic(group: Group, member_id: str) -> bool:
    """Whether the member uses the classic protocol in this group (migration)."""
    member = group.consumer.members.get(member_id) if group.consumer is not None else None
    return member is not None and member.classic is not None


def commit_refusal(
    group: Group, member_id: str, epoch: int, partitions: Iterable[tuple[bytes, int]] = ()
) -> Code | None:
    """Why a member's commit is refused; None when it is not (ConsumerGroup.validateOffsetCommit).

    An epoch before the member's is good for partitions (topic id, number) that it has held ever since
    (KIP-1251); without partitions it must be the member's.
    """
    member = group.consumer.members.get(member_id) if group.consumer is not None else None
    if member is None:
        return Code.UNKNOWN_MEMBER_ID
    if epoch == member.epoch:
        return None
    stale = Code.ILLEGAL_GENERATION if member.classic is not None else Code.STALE_MEMBER_EPOCH
    rows = tuple(partitions)
    if epoch > member.epoch or epoch < 0 or not rows:
        return stale
    for topic_id, partition in rows:
        given = member.given_at(topic_id, partition)
        if given is None or epoch < given:
            return stale
    return None
