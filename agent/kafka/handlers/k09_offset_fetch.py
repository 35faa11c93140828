"""OffsetFetch: the positions that groups committed.

Versions 1 to 10.
Behaviour: answered after a read barrier, so that an acknowledged commit is seen on any agent. -1 and no
error where nothing was committed, also for a group that does not exist. No topics (null): all of the
group's positions. From version 8 on several groups at once; from 9 on members of KIP-848 say who they are;
from 10 on topics are named by id. Who requires stable positions (version 7 on) gets UNSTABLE_OFFSET_COMMIT
for one that a transaction under way may change (KIP-447).
Deviations: without an answer from the log COORDINATOR_NOT_AVAILABLE. In versions 2 to 7 a group that is not
this agent's is said at every partition as well (NOT_COORDINATOR): aiokafka reads nothing else there, and with
an empty answer begins anew where its auto.offset.reset says.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.handlers.lookup import find_partition, find_topic
from agent.net.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from coordination.kafka_codes import Code
from coordination.state import consumer_groups
from coordination.state.group_types import CONSUMER, CommittedOffset, Group
from coordination.state.pending_offsets import is_pending
from coordination.state.types import Partition, Topic

KEY = 9
VERSIONS = (1, 10)
ELSEWHERE = (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE)
GROUP_ERROR_SINCE, BATCHED_SINCE, MEMBERS_SINCE, IDS_SINCE = 2, 8, 9, 10


async def handle(ctx: Context, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    """The positions of each group, in the request's order."""
    asked = request.groups
    if version < BATCHED_SINCE:
        topics = request.topics
        named = None if topics is None else [
            OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in topics
        ]  # fmt: skip
        asked = [OffsetFetchRequestGroup(group_id=request.group_id, topics=named)]
    fresh = await ctx.barrier()
    groups = [_answer(ctx, each, version, fresh) for each in asked]
    if request.require_stable:
        for group in groups:
            _mark_unstable(ctx, group)
    if version >= BATCHED_SINCE:
        return OffsetFetchResponse(groups=groups)
    return _old(groups[0], version)


def _mark_unstable(ctx: Context, group: OffsetFetchResponseGroup) -> None:
    """Name the positions that a transaction under way may change, in place of their values."""
    if group.group_id not in ctx.state.pending_offsets:
        return
    for topic in group.topics:
        known = find_topic(ctx.state, topic.name, topic.topic_id, not topic.name)
        for row in topic.partitions:
            partition = find_partition(known, row.partition_index)
            if partition is not None and is_pending(ctx.state, group.group_id, partition.handle):
                row.error_code = Code.UNSTABLE_OFFSET_COMMIT
                row.committed_offset = row.committed_leader_epoch = -1
                row.metadata = ""


def _old(group: OffsetFetchResponseGroup, version: int) -> OffsetFetchResponse:
    """One group's answer in the form before version 8; before 2 a group's error stands at every partition."""
    response = OffsetFetchResponse(error_code=group.error_code)
    spread = group.error_code
    if version >= GROUP_ERROR_SINCE and spread in ELSEWHERE:
        spread = Code.NOT_COORDINATOR
    for topic in group.topics:
        rows = [
            OffsetFetchResponsePartition(
                row.partition_index,
                row.committed_offset,
                row.committed_leader_epoch,
                row.metadata,
                spread or row.error_code,
            )
            for row in topic.partitions
        ]
        response.topics.append(OffsetFetchResponseTopic(topic.name, rows))
    return response


def _answer(
    ctx: Context, asked: OffsetFetchRequestGroup, version: int, fresh: bool
) -> OffsetFetchResponseGroup:
    group = ctx.state.groups.get(asked.group_id)
    code = _refusal(ctx, group, asked, version, fresh)
    answer = OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code or Code.NONE)
    if code is not None:
        if version < GROUP_ERROR_SINCE or (version < BATCHED_SINCE and code in ELSEWHERE):
            answer.topics = _nothing(asked.topics or ())
        return answer
    if asked.topics is None:
        answer.topics = _everything(ctx, group)
    else:
        answer.topics = [_topic(ctx, group, each, version >= IDS_SINCE) for each in asked.topics]
    return answer


def _refusal(
    ctx: Context, group: Group | None, asked: OffsetFetchRequestGroup, version: int, fresh: bool
) -> Code | None:
    if not fresh:
        return Code.COORDINATOR_NOT_AVAILABLE
    code = ctx.services.groups.refusal(asked.group_id)
    member = version >= MEMBERS_SINCE and asked.member_id is not None and asked.member_epoch >= 0
    if code is None and member and group is not None and group.kind == CONSUMER:
        return consumer_groups.commit_refusal(group, asked.member_id or "", asked.member_epoch)
    return code


def _topic(
    ctx: Context, group: Group | None, each: OffsetFetchRequestTopics, by_id: bool
) -> OffsetFetchResponseTopics:
    topic = find_topic(ctx.state, each.name, each.topic_id, by_id)
    answer = OffsetFetchResponseTopics(name=each.name, topic_id=each.topic_id)
    for index in each.partition_indexes:
        row = _row(index, _position(group, find_partition(topic, index)))
        if by_id and topic is None:
            row.error_code = Code.UNKNOWN_TOPIC_ID
        answer.partitions.append(row)
    return answer


def _nothing(topics: list[OffsetFetchRequestTopics] | tuple[()]) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(name=each.name, partitions=[_row(i, None) for i in each.partition_indexes])
        for each in topics
    ]


def _position(group: Group | None, partition: Partition | None) -> CommittedOffset | None:
    return None if group is None or partition is None else group.offsets.get(partition.handle)


def _row(index: int, position: CommittedOffset | None) -> OffsetFetchResponsePartitions:
    if position is None:
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=position.offset,
        committed_leader_epoch=position.leader_epoch,
        metadata=position.metadata,
    )


def _everything(ctx: Context, group: Group | None) -> list[OffsetFetchResponseTopics]:
    """All positions of the group, by topic."""
    topics: dict[str, OffsetFetchResponseTopics] = {}
    for handle in group.offsets if group is not None else ():
        partition = ctx.state.partitions[handle] if handle < len(ctx.state.partitions) else None
        if partition is None:
            continue
        topic: Topic = partition.topic
        answer = topics.get(topic.name)
        if answer is None:
            answer = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id)
            topics[topic.name] = answer
        answer.partitions.append(_row(partition.index, _position(group, partition)))
    return list(topics.values())
