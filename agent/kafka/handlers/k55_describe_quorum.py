"""DescribeQuorum: what stands in for KRaft's quorum, as `kafka-metadata-quorum` asks for it.

Versions 0 to 2.
Behaviour: partition 0 of `__cluster_metadata` is Floe's log in etcd: its high watermark is the newest
entry's revision, every live agent is an observer that has applied as much as it last said. The controller
of Metadata stands as the leader and only voter, since a quorum must have one. Anything else is
UNKNOWN_TOPIC_OR_PARTITION.
Deviations: who votes is etcd's affair: there are no voters of Kafka's kind and no directory ids.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.fetch.planner import RECORDS_EPOCH
from agent.net.wire.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    QuorumTopic,
    ReplicaState,
)
from coordination.kafka_codes import Code
from coordination.state.types import Broker

KEY = 55
VERSIONS = (0, 2)
METADATA_TOPIC = "__cluster_metadata"


async def handle(ctx: Context, request: DescribeQuorumRequest, version: int) -> DescribeQuorumResponse:
    """One answer per partition, in the request's order."""
    await ctx.barrier()
    response = DescribeQuorumResponse(error_message="")
    for topic in request.topics:
        rows = [_partition(ctx, topic.topic_name, each.partition_index) for each in topic.partitions]
        response.topics.append(QuorumTopic(topic.topic_name, rows))
        if any(row.error_code == Code.NONE for row in rows):
            response.nodes = [_node(ctx, broker) for broker in ctx.brokers()]
    return response


def _partition(ctx: Context, name: str, index: int) -> QuorumPartition:
    if (name, index) != (METADATA_TOPIC, 0):
        return QuorumPartition(
            partition_index=index,
            error_code=Code.UNKNOWN_TOPIC_OR_PARTITION,
            error_message="This server does not host this topic-partition.",
        )
    leader = ctx.controller()
    end, now = ctx.state.revision, ctx.state.clock_ms
    return QuorumPartition(
        partition_index=index,
        error_message="",
        leader_id=leader,
        leader_epoch=RECORDS_EPOCH,
        high_watermark=end,
        current_voters=[ReplicaState(leader, log_end_offset=end, last_caught_up_timestamp=now)],
        observers=[_observer(ctx, broker) for broker in ctx.brokers() if broker.node_id != leader],
    )


def _observer(ctx: Context, broker: Broker) -> ReplicaState:
    known = ctx.state.incarnations[broker.incarnation]
    return ReplicaState(
        broker.node_id,
        log_end_offset=known.applied_revision,
        last_fetch_timestamp=known.last_proposed_ms,
        last_caught_up_timestamp=known.last_proposed_ms,
    )


def _node(ctx: Context, broker: Broker) -> QuorumNode:
    endpoint = ctx.endpoint(broker)
    return QuorumNode(broker.node_id, [QuorumListener(endpoint.name, endpoint.host, endpoint.port)])
