"""From a classic group to one of KIP-848 and back, with live members (group.consumer.migration.policy)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from agent.kafka.groups.consumer.draft import Draft
from agent.kafka.groups.consumer.embedded import (
    PROTOCOL_TYPE,
    BadEmbedded,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from agent.kafka.groups.consumer.errors import GroupError
from agent.kafka.groups.consumer.topics import Topics
from coordination.kafka_codes import Code
from coordination.state.consumer_types import ClassicProtocol, ConsumerGroupData, ConsumerMember
from coordination.state.group_types import ClassicGeneration, ClassicMember


def maybe_downgrade(draft: Draft) -> None:
    """Make the group classic when all that are left speak the classic protocol."""
    members = draft.data.members.values()
    draft.downgraded = (
        draft.rules.downgrade
        and 0 < len(members) <= draft.rules.classic_size_max
        and all(member.classic is not None for member in members)
    )


def classic_generation(draft: Draft) -> ClassicGeneration:
    """The group as a classic one: what its members had as target is what they are assigned."""
    members = draft.data.members
    protocol = _common_protocol(members)
    rows: dict[str, ClassicMember] = {}
    for member in members.values():
        classic = member.classic
        assert classic is not None, f"{member.member_id!r} does not speak the classic protocol"
        metadata = next((data for name, data in classic.protocols if name == protocol), b"")
        rows[member.member_id] = ClassicMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            classic.session_timeout_ms,
            member.rebalance_timeout_ms,
            classic.protocols,
            write_assignment(version_of(metadata), by_name(draft.topics, draft.target_of(member))),
        )
    return ClassicGeneration(draft.data.group_epoch, PROTOCOL_TYPE, protocol, next(iter(rows)), True, rows)


def _common_protocol(members: Mapping[str, ConsumerMember]) -> str:
    """The protocol that most members prefer among those that all know.

    There is one: a member that shares none with the others is refused when it joins.
    """
    lists = [[name for name, _ in m.classic.protocols] for m in members.values() if m.classic is not None]
    common = [name for name in lists[0] if all(name in names for names in lists)]
    votes = Counter(next(name for name in names if name in common) for names in lists if common)
    return max(common, key=lambda name: votes[name], default=lists[0][0])


def version_of(metadata: bytes) -> int:
    """The version that a subscription is written in; 0 when it cannot be told."""
    return max(0, int.from_bytes(metadata[:2], "big", signed=True)) if len(metadata) >= 2 else 0


def by_name(topics: Topics, partitions: Mapping[bytes, object]) -> dict[str, tuple[int, ...]]:
    """Partitions by topic name; of topics that are gone there are none."""
    named: dict[str, tuple[int, ...]] = {}
    for topic_id, numbers in partitions.items():
        name = topics.name_of(topic_id)
        if name is not None:
            named[name] = tuple(sorted(numbers))  # type: ignore[call-overload]  # tuples, or dicts by partition
    return named


def by_id(topics: Topics, partitions: Mapping[str, tuple[int, ...]]) -> dict[bytes, tuple[int, ...]]:
    """Partitions by topic id; of topics that do not exist there are none."""
    found: dict[bytes, tuple[int, ...]] = {}
    for name, numbers in partitions.items():
        topic = topics.find(name)
        if topic is not None:
            found[topic[0]] = tuple(sorted(numbers))
    return found


def upgraded(
    group_id: str, generation: ClassicGeneration, topics: Topics, *, allowed: bool, size_max: int
) -> ConsumerGroupData:
    """A classic group in the form of KIP-848, without the member whose join turns it. Raises GroupError.

    Its members stay, as members that speak the classic protocol. The generation becomes their epoch, and
    their assignment becomes both what they own and their target.
    """
    cannot = f"Cannot upgrade classic group {group_id} to consumer group because "
    if not allowed:
        raise GroupError(Code.GROUP_ID_NOT_FOUND, cannot + "the online upgrade is disabled.")
    if generation.protocol_type != PROTOCOL_TYPE:
        raise GroupError(
            Code.GROUP_ID_NOT_FOUND, cannot + "the group does not use the consumer embedded protocol."
        )
    if len(generation.members) > size_max:
        raise GroupError(
            Code.GROUP_ID_NOT_FOUND, cannot + "the group size exceeds the consumer group maximum size."
        )
    data = ConsumerGroupData(generation.generation, generation.generation)
    try:
        for member in generation.members.values():
            new = _as_consumer_member(member, generation, topics)
            data.put(new)
            data.targets[new.member_id] = {key: tuple(row) for key, row in new.assigned.items()}
    except ValueError as error:  # no subscription, no assignment, or one partition given twice
        raise GroupError(
            Code.GROUP_ID_NOT_FOUND, cannot + "the embedded consumer protocol is malformed."
        ) from error
    return data


def _as_consumer_member(
    member: ClassicMember, generation: ClassicGeneration, topics: Topics
) -> ConsumerMember:
    said = read_subscription(member.metadata(generation.protocol) or b"")
    if said.user_data:
        raise BadEmbedded("user data of an assignor of the members' own would be lost")
    epoch = generation.generation
    assigned = by_id(topics, read_assignment(member.assignment))
    return ConsumerMember(
        member.member_id,
        member.instance_id,
        said.rack,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        tuple(sorted(set(said.topics))),
        classic=ClassicProtocol(member.session_timeout_ms, member.protocols),
        epoch=epoch,
        previous_epoch=epoch,
        assigned={topic_id: dict.fromkeys(row, epoch) for topic_id, row in assigned.items()},
    )


def subscription_of(protocols: tuple[tuple[str, bytes], ...]) -> Subscription:
    """What a joining classic member says; all its protocols say the same. Raises GroupError."""
    try:
        return read_subscription(protocols[0][1])
    except BadEmbedded as error:
        raise GroupError(
            Code.UNKNOWN_SERVER_ERROR, f"Malformed embedded consumer protocol: {error}"
        ) from error
