"""OffsetFetch: the positions that groups committed.

Versions 1 to 10.
Behaviour: answered after a read barrier, so that an acknowledged commit is seen on any agent, and by any
agent, whoever coordinates the group. -1 and no error where nothing was committed, also for a group that
does not exist. No topics (null): all of the group's positions. From version 8 on several groups at once;
from 9 on members of KIP-848 say who they are; from 10 on topics are named by id. Who requires stable
positions (version 7 on) gets UNSTABLE_OFFSET_COMMIT for one that a transaction under way may change
(KIP-447).
Deviations: Kafka says NOT_COORDINATOR where another broker coordinates the group. Coordination moves when
agents come and go, librdkafka tells applications of that error, and members hear of the move by their
next heartbeat. Without an answer from the log COORDINATOR_NOT_AVAILABLE, in versions 2 to 7 with
NOT_COORDINATOR at every partition: aiokafka reads nothing else there, and with an empty answer begins
anew where its auto.offset.reset says. What is named again is answered once: a partition of a group, and a
group with the same topics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.kafka.context import Context
from agent.kafka.handlers.lookup import find_partition, find_topic
from agent.net.wire.api import Encoded
from agent.net.wire.generated import offset_fetch
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
from agent.net.wire.steps import Pace, encoded
from coordination.kafka_codes import Code
from coordination.state import consumer_groups
from coordination.state.group_types import CONSUMER, CommittedOffset, Group, OffsetTable
from coordination.state.pending_offsets import pending_of
from coordination.state.types import Topic

KEY = 9
VERSIONS = (1, 10)
GROUP_ERROR_SINCE, BATCHED_SINCE, MEMBERS_SINCE, IDS_SINCE = 2, 8, 9, 10


@dataclass(frozen=True, slots=True)
class _Moment:
    """A group's positions as they were at one time, while its answer is made in steps."""

    offsets: OffsetTable
    unstable: frozenset[int]
    """Handles whose positions a transaction under way may change, where those are not to be told."""

    def row(self, index: int, handle: int | None) -> OffsetFetchResponsePartitions:
        """A partition's answer; `handle`: None where it does not exist."""
        if handle in self.unstable:
            row = _row(index, None)
            row.error_code = Code.UNSTABLE_OFFSET_COMMIT
            return row
        return _row(index, None if handle is None else self.offsets.get(handle))


async def handle(ctx: Context, request: OffsetFetchRequest, version: int) -> Encoded:
    """The positions of each group, in the request's order."""
    asked = request.groups
    if version < BATCHED_SINCE:
        topics = request.topics
        named = None if topics is None else [
            OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in topics
        ]  # fmt: skip
        asked = [OffsetFetchRequestGroup(group_id=request.group_id, topics=named)]
    fresh = await ctx.barrier()
    pace = Pace()
    groups = [
        await _answer(ctx, each, version, fresh, request.require_stable, pace) for each in _each_once(asked)
    ]
    if version >= BATCHED_SINCE:
        response = OffsetFetchResponse(groups=groups)
        return await encoded(offset_fetch, response, version, "groups", "topics", "partitions")
    return await encoded(offset_fetch, await _old(groups[0], version, pace), version, "topics", "partitions")


def _each_once(asked: Sequence[OffsetFetchRequestGroup]) -> Iterator[OffsetFetchRequestGroup]:
    """The groups without those that are there already with the same topics."""
    if len(asked) == 1:
        yield asked[0]
        return
    seen = set()
    for each in asked:
        key = each.group_id, None if each.topics is None else tuple(
            (topic.name, topic.topic_id, *topic.partition_indexes) for topic in each.topics
        )  # fmt: skip
        if key not in seen:
            seen.add(key)
            yield each


async def _old(group: OffsetFetchResponseGroup, version: int, pace: Pace) -> OffsetFetchResponse:
    """One group's answer in the form before version 8; before 2 a group's error stands at every partition."""
    response = OffsetFetchResponse(error_code=group.error_code)
    spread = group.error_code
    if version >= GROUP_ERROR_SINCE and spread == Code.COORDINATOR_NOT_AVAILABLE:
        spread = Code.NOT_COORDINATOR
    for topic in group.topics:
        rows = []
        for row in topic.partitions:
            rows.append(
                OffsetFetchResponsePartition(
                    row.partition_index,
                    row.committed_offset,
                    row.committed_leader_epoch,
                    row.metadata,
                    spread or row.error_code,
                )
            )
            await pace.row()
        response.topics.append(OffsetFetchResponseTopic(topic.name, rows))
    return response


async def _answer(
    ctx: Context, asked: OffsetFetchRequestGroup, version: int, fresh: bool, stable: bool, pace: Pace
) -> OffsetFetchResponseGroup:
    await pace.row()
    group = ctx.state.groups.get(asked.group_id)
    code = _refusal(ctx, group, asked, version, fresh)
    answer = OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code or Code.NONE)
    if code is not None:
        if version < GROUP_ERROR_SINCE or (
            version < BATCHED_SINCE and code is Code.COORDINATOR_NOT_AVAILABLE
        ):
            answer.topics = _nothing(asked.topics or ())
        return answer
    moment = _moment(ctx, asked, stable)
    if asked.topics is None:
        answer.topics = await _everything(ctx, moment, pace)
    else:
        answer.topics = await _named(ctx, asked.topics, moment, version >= IDS_SINCE, pace)
    return answer


def _moment(ctx: Context, asked: OffsetFetchRequestGroup, stable: bool) -> _Moment:
    group = ctx.state.groups.get(asked.group_id)
    offsets = OffsetTable() if group is None else group.offsets
    unstable = pending_of(ctx.state, asked.group_id) if stable else frozenset[int]()
    return _Moment(offsets.copy(), unstable)


def _refusal(
    ctx: Context, group: Group | None, asked: OffsetFetchRequestGroup, version: int, fresh: bool
) -> Code | None:
    if not fresh or not ctx.services.replica.ready:
        return Code.COORDINATOR_NOT_AVAILABLE
    member = version >= MEMBERS_SINCE and asked.member_id is not None and asked.member_epoch >= 0
    if member and group is not None and group.kind == CONSUMER:
        return consumer_groups.commit_refusal(group, asked.member_id or "", asked.member_epoch)
    return None


async def _named(
    ctx: Context, asked: Sequence[OffsetFetchRequestTopics], moment: _Moment, by_id: bool, pace: Pace
) -> list[OffsetFetchResponseTopics]:
    """The positions of these partitions, each once."""
    # A set per topic: one of all partitions would grow by 5 ms at once where there are 50,000.
    seen: defaultdict[str | bytes, set[int]] = defaultdict(set)
    topics: list[OffsetFetchResponseTopics] = []
    named = set()
    for each in asked:
        key = each.topic_id if by_id else each.name
        answer = OffsetFetchResponseTopics(name=each.name, topic_id=each.topic_id)
        for index in each.partition_indexes:
            if index not in seen[key]:
                seen[key].add(index)
                topic = find_topic(ctx.state, each.name, each.topic_id, by_id)
                partition = find_partition(topic, index)
                row = moment.row(index, None if partition is None else partition.handle)
                if by_id and topic is None:
                    row.error_code = Code.UNKNOWN_TOPIC_ID
                answer.partitions.append(row)
            await pace.row()
        if answer.partitions or key not in named:
            topics.append(answer)
        named.add(key)
    return topics


def _nothing(topics: list[OffsetFetchRequestTopics] | tuple[()]) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(name=each.name, partitions=[_row(i, None) for i in each.partition_indexes])
        for each in topics
    ]


def _row(index: int, position: CommittedOffset | None) -> OffsetFetchResponsePartitions:
    if position is None:
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=position.offset,
        committed_leader_epoch=position.leader_epoch,
        metadata=position.metadata,
    )


async def _everything(ctx: Context, moment: _Moment, pace: Pace) -> list[OffsetFetchResponseTopics]:
    """All positions of the group, by topic."""
    topics: dict[str, OffsetFetchResponseTopics] = {}
    for handle in moment.offsets:
        await pace.row()
        partition = ctx.state.partitions[handle] if handle < len(ctx.state.partitions) else None
        if partition is None:
            continue
        topic: Topic = partition.topic
        answer = topics.get(topic.name)
        if answer is None:
            answer = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id)
            topics[topic.name] = answer
        answer.partitions.append(moment.row(partition.index, handle))
    return list(topics.values())
