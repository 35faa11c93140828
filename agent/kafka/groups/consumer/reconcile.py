"""From what a member has to what it shall have, one step at a time (KIP-848, member reconciliation).

A member gives partitions back before it gets others or a new epoch, and gets only what nobody holds. So a
partition never has two owners, however late a member hears of anything.

    STABLE ─────────── new target, something to give back ──────────► UNREVOKED_PARTITIONS
      ▲ │                                                                 │ given back
      │ └─ new target, nothing to give back ─┐                            ▼
      │                                      ├──► next epoch: takes what is free
      └── all of the target is there ────────┘        │ some is not free
                                                      ▼
                                          UNRELEASED_PARTITIONS (tries again)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from coordination.state.consumer_types import Assignment, ConsumerMember, MemberState, Owned

Reported = Mapping[bytes, Collection[int]]  # what a member says that it owns: topic id → partitions
OwnerOf = Callable[[bytes, int], str | None]


def reconciled(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    subscribed: Callable[[bytes], bool],
    owner_of: OwnerOf,
    reported: Reported | None,
    *,
    subscription_changed: bool = False,
) -> ConsumerMember:
    """The member's next state; the same object when there is nothing to do.

    `reported` is None when the member did not say what it owns. `subscribed` tells which topics the member
    wants now: a topic it dropped is taken from it even before the target knows.
    """
    if member.state == MemberState.STABLE and member.epoch == target_epoch:
        return _without_dropped(member, subscribed, reported) if subscription_changed else member
    if member.state == MemberState.UNREVOKED_PARTITIONS and _owns(reported, member.revoking):
        return _without_dropped(member, subscribed, reported) if subscription_changed else member
    return _towards(member, target_epoch, target, subscribed, owner_of, reported)


def _owns(reported: Reported | None, partitions: Owned) -> bool:
    """Whether the member may still own any of them."""
    if reported is None:
        return True
    for topic_id, held in partitions.items():
        owned = reported.get(topic_id)
        if owned and any(partition in held for partition in owned):
            return True
    return False


def _towards(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    subscribed: Callable[[bytes], bool],
    owner_of: OwnerOf,
    reported: Reported | None,
) -> ConsumerMember:
    keeps: dict[bytes, dict[int, int]] = {}
    gives: dict[bytes, dict[int, int]] = {}
    takes: dict[bytes, list[int]] = {}
    waits = False
    for topic_id in dict.fromkeys((*target, *member.assigned)):
        wanted = target.get(topic_id, ()) if subscribed(topic_id) else ()
        wanted_set = frozenset(wanted)
        for partition, epoch in member.assigned.get(topic_id, {}).items():
            (keeps if partition in wanted_set else gives).setdefault(topic_id, {})[partition] = epoch
        kept = keeps.get(topic_id, {})
        for partition in wanted:
            if partition in kept:
                continue
            if owner_of(topic_id, partition) in (None, member.member_id):
                takes.setdefault(topic_id, []).append(partition)
            else:
                waits = True
    if gives and _owns(reported, gives):
        return replace(member, state=MemberState.UNREVOKED_PARTITIONS, assigned=keeps, revoking=gives)
    for topic_id, partitions in takes.items():
        row = keeps.setdefault(topic_id, {})
        row.update(dict.fromkeys(partitions, target_epoch))
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return at_epoch(replace(member, state=state, assigned=keeps, revoking={}), target_epoch)


def at_epoch(member: ConsumerMember, epoch: int) -> ConsumerMember:
    """The member in an epoch; the one it leaves is remembered for an answer that got lost."""
    if member.epoch == epoch:
        return member
    return replace(member, epoch=epoch, previous_epoch=member.epoch)


def _without_dropped(
    member: ConsumerMember, subscribed: Callable[[bytes], bool], reported: Reported | None
) -> ConsumerMember:
    """The member without topics that it no longer wants; it stays in its epoch."""
    dropped = [topic_id for topic_id in member.assigned if not subscribed(topic_id)]
    if not dropped:
        return member
    assigned = {topic_id: row for topic_id, row in member.assigned.items() if topic_id not in dropped}
    revoking = dict(member.revoking)
    for topic_id in dropped:
        revoking[topic_id] = {**revoking.get(topic_id, {}), **member.assigned[topic_id]}
    if _owns(reported, revoking):
        return replace(member, state=MemberState.UNREVOKED_PARTITIONS, assigned=assigned, revoking=revoking)
    return replace(member, assigned=assigned)
