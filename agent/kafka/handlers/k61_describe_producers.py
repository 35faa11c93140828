"""DescribeProducers: the idempotent producers that a partition remembers (KIP-664).

Versions 0.
Behaviour: answered after a read barrier, by producer id.
Deviations: the last timestamp is that of the proposal, as the log has it. The coordinator epoch of
transactional producers is always 0: there is one log, and no coordinator that another could fence.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.handlers.lookup import find_partition
from agent.net.wire.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from coordination.kafka_codes import Code
from coordination.state.state import State
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
                partitions=[
                    _partition(ctx.state, topics.get(each.name), index) for index in each.partition_indexes
                ],
            )
            for each in request.topics
        ]
    )


def _partition(state: State, topic: Topic | None, index: int) -> PartitionResponse:
    answer = PartitionResponse(partition_index=index)
    partition = find_partition(topic, index)
    if partition is None:
        answer.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    known = partition.transactions
    begun = known.open if known is not None else {}
    answer.active_producers = [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=0 if producer_id in state.transactions_by_producer else -1,
            current_txn_start_offset=begun.get(producer_id, -1),
        )
        for producer_id, entry in sorted(partition.producers.items())
    ]
    return answer
