"""The Kafka requests of `floe group …`, as functions over a Session. Refusals become failures.

Those of a group are for the session of its coordinator (coordinators.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.cli import requests
from agent.cli.failures import after, refused, together
from agent.cli.session import Refusal, Session, check_code, refusal
from agent.net.wire.generated.consumer_group_describe import ConsumerGroupDescribeRequest
from agent.net.wire.generated.delete_groups import DeleteGroupsRequest
from agent.net.wire.generated.describe_groups import DescribeGroupsRequest
from agent.net.wire.generated.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from agent.net.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from agent.net.wire.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from coordination.kafka_codes import Code

NAMES_UNTIL = 9
"""The last OffsetCommit and OffsetFetch versions that name topics; later ones use ids."""

CLASSIC, CONSUMER = "classic", "consumer"
"""Kinds of groups, as ListGroups calls them."""

Place = tuple[str, int]
"""A topic's name and a partition's index."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member, with its partitions where the group's protocol tells them."""

    member_id: str
    client_id: str
    host: str
    partitions: Sequence[Place]


@dataclass(frozen=True, slots=True)
class Group:
    """A group as its coordinator describes it."""

    name: str
    kind: str
    state: str
    members: Sequence[Member]


async def described(session: Session, name: str) -> Group:
    """One group. A Failure tells when there is none."""
    answer = await session.call("DescribeGroups", DescribeGroupsRequest(groups=[name]))
    group = answer.groups[0]
    if group.error_code == Code.GROUP_ID_NOT_FOUND:  # none, or none of the classic protocol
        return await _of_consumer_protocol(session, name)
    check_code(group.error_code, group.error_message, f"group {name!r}")
    # What its members have is known to its clients only.
    members = [Member(each.member_id, each.client_id, each.client_host, ()) for each in group.members]
    return Group(name, CLASSIC, group.group_state, members)


async def _of_consumer_protocol(session: Session, name: str) -> Group:
    """A group of KIP-848."""
    answer = await session.call("ConsumerGroupDescribe", ConsumerGroupDescribeRequest(group_ids=[name]))
    group = answer.groups[0]
    if group.error_code == Code.GROUP_ID_NOT_FOUND:
        raise refused(f"group {name!r} does not exist; `floe group list` shows what does")
    check_code(group.error_code, group.error_message, f"group {name!r}")
    members = [
        Member(
            each.member_id,
            each.client_id,
            each.client_host,
            [(t.topic_name, p) for t in each.assignment.topic_partitions for p in t.partitions],
        )
        for each in group.members
    ]
    return Group(name, CONSUMER, group.group_state, members)


async def positions(session: Session, name: str) -> dict[Place, int]:
    """The group's committed offsets."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, topics=None)], require_stable=True)
    answer = await session.call("OffsetFetch", request, version_max=NAMES_UNTIL)
    group = answer.groups[0]
    check_code(group.error_code, None, f"positions of group {name!r}")
    found = {}
    for topic in group.topics:
        for row in topic.partitions:
            check_code(row.error_code, None, f"positions of group {name!r} in {topic.name}")
            if row.committed_offset >= 0:
                found[topic.name, row.partition_index] = row.committed_offset
    return found


async def ends(session: Session, topics: Sequence[str]) -> dict[Place, requests.Bounds]:
    """The readable offsets of all partitions of the topics that there are."""
    found = {}
    for topic in await requests.topics(session, topics) if topics else ():
        if topic.error_code == Code.NONE:
            for bound in await requests.bounds(session, topic):
                found[topic.name or "", bound.partition] = bound
    return found


async def at_time(session: Session, places: Sequence[Place], stamp_ms: int) -> dict[Place, int]:
    """The first offset of each partition at or after a time, Unix ms; those that have none are left out."""
    by_topic: dict[str, list[int]] = {}
    for name, index in places:
        by_topic.setdefault(name, []).append(index)
    topics = [
        ListOffsetsTopic(name, [ListOffsetsPartition(index, -1, stamp_ms) for index in indexes])
        for name, indexes in by_topic.items()
    ]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=requests.READ_COMMITTED, topics=topics)
    answer = await session.call("ListOffsets", request)
    found = {}
    for topic in answer.topics:
        for row in topic.partitions:
            check_code(row.error_code, None, f"offsets of {topic.name}-{row.partition_index}")
            if row.offset >= 0:
                found[topic.name, row.partition_index] = row.offset
    return found


async def commit(session: Session, name: str, offsets: Mapping[Place, int]) -> None:
    """Set positions of a group that has no members."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        by_topic.setdefault(topic, []).append(OffsetCommitRequestPartition(index, offset))
    rows = [OffsetCommitRequestTopic(name=topic, partitions=found) for topic, found in by_topic.items()]
    request = OffsetCommitRequest(group_id=name, topics=rows)
    answer = await session.call("OffsetCommit", request, version_max=NAMES_UNTIL)
    problems = list[Refusal]()
    for topic in answer.topics:
        for row in topic.partitions:
            what = f"the position of group {name!r} in {topic.name}-{row.partition_index} is not set"
            if problem := refusal(row.error_code, None, what):
                problems.append(problem)
    if problems:
        done = len(offsets) - len(problems)
        failure = after([f"{done} other positions were set"] if done else [], together(problems))
        raise Refusal(problems[0].code, str(failure))


async def delete(session: Session, name: str) -> None:
    """Delete a group with its positions."""
    answer = await session.call("DeleteGroups", DeleteGroupsRequest(groups_names=[name]))
    check_code(answer.results[0].error_code, None, f"group {name!r} is not deleted")
