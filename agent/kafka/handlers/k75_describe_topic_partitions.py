"""DescribeTopicPartitions: partitions of topics, page by page (KIP-966).

Versions 0.
Behaviour: topics in the order of their names, partitions by index, at most the limit per answer; the cursor
says where the next page begins. No names means all topics. A cursor to a topic that is not asked for,
or before partition 0, is INVALID_REQUEST. Answered after a read barrier.
Deviations: every replica is a zone's leader, always eligible: the eligible and last known leaders are empty.
"""

from __future__ import annotations

from agent.cluster.hints import NO_BROKER
from agent.kafka.context import Context
from agent.kafka.handlers.lookup import TOPIC_OPERATIONS
from agent.net.wire.api import Encoded
from agent.net.wire.generated import describe_topic_partitions
from agent.net.wire.generated.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from agent.net.wire.steps import Pace, encoded
from coordination import broker_configs
from coordination.kafka_codes import Code
from coordination.state.topics import name_refusal
from coordination.state.types import Partition, Topic

KEY = 75
VERSIONS = (0, 0)


async def handle(
    ctx: Context, request: DescribeTopicPartitionsRequest, version: int
) -> DescribeTopicPartitionsResponse | Encoded:
    """One page."""
    await ctx.barrier()
    asked = {each.name for each in request.topics}
    if request.cursor is not None and not _sound(request.cursor, asked):
        rows = [
            DescribeTopicPartitionsResponseTopic(error_code=Code.INVALID_REQUEST, name=name)
            for name in sorted(asked)
        ]
        return DescribeTopicPartitionsResponse(topics=rows)
    names = sorted(asked or ctx.state.topics)
    first, start = "", 0
    if request.cursor is not None:
        first, start = request.cursor.topic_name, request.cursor.partition_index
    limit = broker_configs.integer(ctx.state.cluster_configs, "max.request.partition.size.limit")
    room = max(1, min(request.response_partition_limit, limit))
    response, pace = DescribeTopicPartitionsResponse(), Pace()
    for name in names:
        await pace.row()
        if name < first:
            continue
        if room == 0:
            response.next_cursor = Cursor(name, 0)
            break
        begin = start if name == first else 0
        topic = ctx.state.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        chosen = topic.partitions[begin : begin + room]
        room -= len(chosen)
        response.topics.append(_topic(ctx, topic, chosen))
        if begin + len(chosen) < len(topic.partitions):
            response.next_cursor = Cursor(name, begin + len(chosen))
            break
        await pace.row(len(chosen))
    return await encoded(describe_topic_partitions, response, version, "topics", "partitions")


def _sound(cursor: Cursor, asked: set[str]) -> bool:
    """Whether a page can begin there: at a partition's place, in a topic that is asked for."""
    return cursor.partition_index >= 0 and (not asked or cursor.topic_name in asked)


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = Code.INVALID_TOPIC_EXCEPTION if name_refusal(name) else Code.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


def _topic(ctx: Context, topic: Topic, partitions: list[Partition]) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_partition(ctx, partition) for partition in partitions],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(ctx: Context, partition: Partition) -> DescribeTopicPartitionsResponsePartition:
    replicas = list(ctx.replicas(partition.handle))
    return DescribeTopicPartitionsResponsePartition(
        error_code=Code.NONE if replicas else Code.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=replicas[0] if replicas else NO_BROKER,
        leader_epoch=ctx.state.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[],
    )
