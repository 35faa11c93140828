"""DescribeProducers: the idempotent producers that a partition remembers (KIP-664).

Versions 0.
Behaviour: answered after a read barrier, by producer id.
Deviations: the last timestamp is that of the proposal, as the log has it. No transactions yet: those are -1.
"""

from __future__ import annotations

from agent.context import Context
from agent.handlers.lookup import find_partition
from agent.wire.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from coordination.kafka_codes import Code
from coordination.state.types import Topic

KEY = 61
VERSIONS = (0, 0)


async def handle(ctx: Context, request: DescribeProducersRequest, version: int) -> DescribeProducersResponse:
    """One answer per partition, in the request's order."""
    await ctx.barrier()
    topics = ctx.state.topics
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=each.name,
                partitions=[_partition(topics.get(each.name), index) for index in each.partition_indexes],
            )
            for each in request.topics
        ]
    )


def _partition(topic: Topic | None, index: int) -> PartitionResponse:
    answer = PartitionResponse(partition_index=index)
    partition = find_partition(topic, index)
    if partition is None:
        answer.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    answer.active_producers = [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=-1,
        )
        for producer_id, entry in sorted(partition.producers.items())
    ]
    return answer
