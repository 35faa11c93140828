"""AlterPartitionReassignments: move replicas, of which there are none.

Versions 0 to 1.
Behaviour: records are in the object store and any agent serves them, so what is asked for is checked as Kafka
checks it and is then done at once: nothing moves and no reassignment is ever under way. Cancelling one is
NO_REASSIGNMENT_IN_PROGRESS.
Deviations: the named brokers are not remembered; Metadata goes on naming the agents that the hash names.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.handlers.assignment import refusal_of
from agent.kafka.handlers.lookup import find_partition
from agent.net.wire.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from coordination.config_types import shown
from coordination.kafka_codes import Code
from coordination.state.types import Refused

KEY = 45
VERSIONS = (0, 1)


async def handle(
    ctx: Context, request: AlterPartitionReassignmentsRequest, version: int
) -> AlterPartitionReassignmentsResponse:
    """One answer per partition, in the request's order."""
    await ctx.barrier()
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    for topic in request.topics:
        rows = [_answer(ctx, topic.name, each) for each in topic.partitions]
        response.responses.append(ReassignableTopicResponse(topic.name, rows))
    return response


def _answer(ctx: Context, name: str, each: ReassignablePartition) -> ReassignablePartitionResponse:
    refused = _refusal(ctx, name, each)
    if refused is None:
        return ReassignablePartitionResponse(each.partition_index, Code.NONE, None)
    return ReassignablePartitionResponse(each.partition_index, refused.code, refused.message or None)


def _refusal(ctx: Context, name: str, each: ReassignablePartition) -> Refused | None:
    topic = ctx.state.topics.get(name)
    if topic is None:
        return Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {shown(name)}.")
    if find_partition(topic, each.partition_index) is None:
        return Refused(
            Code.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{each.partition_index}."
        )
    if each.replicas is None:
        return Refused(Code.NO_REASSIGNMENT_IN_PROGRESS, "")
    return refusal_of(each.replicas, ctx.state.brokers)
