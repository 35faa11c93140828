"""The cluster, and partitions page by page."""

from __future__ import annotations

from typing import Any

from agent.kafka.authority import needs
from agent.kafka.authority.needs import Need
from agent.kafka.context import Context
from agent.kafka.guards.rows import Guard, Handle, closed, opened, sorted_out
from agent.net.wire.generated import describe_cluster as dc
from agent.net.wire.generated import describe_topic_partitions as dtp
from coordination.kafka_codes import Code
from coordination.state.acl_types import ResourceType

TOPIC = Code.TOPIC_AUTHORIZATION_FAILED


async def _cluster(ctx: Context, request: dc.DescribeClusterRequest, version: int, handle: Handle) -> Any:
    response: dc.DescribeClusterResponse = await handle(ctx, request, version)
    if request.include_cluster_authorized_operations and not response.error_code:
        response.cluster_authorized_operations = cluster_operations(ctx, needs.DESCRIBE_CLUSTER)
    return response


def cluster_operations(ctx: Context, need: Need) -> int:
    """What the client may do with the cluster; nothing is told to whoever may not describe it."""
    return ctx.operations(ResourceType.CLUSTER) if ctx.may(need) else 0


async def _partitions(
    ctx: Context, request: dtp.DescribeTopicPartitionsRequest, version: int, handle: Handle
) -> Any:
    cursor = request.cursor
    asked = {each.name for each in request.topics}
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        return await handle(ctx, request, version)  # which refuses it
    await ctx.barrier()
    need = needs.DESCRIBE_PARTITIONS if asked else needs.DESCRIBE_PARTITIONS_ALL
    first = cursor.topic_name if cursor is not None else ""
    names = sorted(name for name in asked or ctx.state.topics if name >= first)
    shown, hidden = await sorted_out(ctx, names, lambda each: need, str)
    response = dtp.DescribeTopicPartitionsResponse()
    if shown:
        request.topics = [dtp.TopicRequest(name) for name in shown]
        if cursor is not None and shown[0] != first:
            request.cursor = None
        response = await opened(dtp, await handle(ctx, request, version), version)
        for row in response.topics:
            row.topic_authorized_operations = ctx.operations(ResourceType.TOPIC, row.name or "")
    if asked:
        response.topics.extend(
            dtp.DescribeTopicPartitionsResponseTopic(error_code=TOPIC, name=name) for name in hidden
        )
    return await closed(dtp, response, version, ("topics", "partitions"))


GUARDS: dict[int, Guard] = {60: _cluster, 75: _partitions}
