"""DescribeProducers: the idempotent producers that a partition remembers (KIP-664).

Versions 0.
Behaviour: answered after a read barrier, by producer id.
Deviations: the last timestamp is that of the proposal, as the log has it. The coordinator epoch of
transactional producers is always 0: there is one log, and no coordinator that another could fence. A
partition that is named again is answered once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge

from agent.kafka.context import Context
from agent.kafka.handlers.lookup import find_partition
from agent.net.wire.api import Encoded
from agent.net.wire.generated import describe_producers
from agent.net.wire.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from agent.net.wire.steps import ROWS_PER_STEP, Pace, encoded
from coordination.kafka_codes import Code

KEY = 61
VERSIONS = (0, 0)


async def handle(ctx: Context, request: DescribeProducersRequest, version: int) -> Encoded:
    """One answer per partition, in the request's order; each as it is when its rows are made."""
    await ctx.barrier()
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    pace = Pace()
    response = DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=name, partitions=[await _partition(ctx, name, index, pace) for index in indexes]
            )
            for name, indexes in asked.items()
        ]
    )
    return await encoded(describe_producers, response, version, "topics", "partitions", "active_producers")


async def _partition(ctx: Context, topic: str, index: int, pace: Pace) -> PartitionResponse:
    await pace.row()
    answer = PartitionResponse(partition_index=index)
    partition = find_partition(ctx.state.topics.get(topic), index)
    if partition is None:
        answer.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    known = partition.transactions
    begun = dict(known.open) if known is not None else {}
    for producer_id in await _rising(list(partition.producers), pace):
        entry = partition.producers.get(producer_id)
        if entry is None:  # forgotten meanwhile
            continue
        answer.active_producers.append(
            ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=0 if producer_id in ctx.state.transactions_by_producer else -1,
                current_txn_start_offset=begun.get(producer_id, -1),
            )
        )
        await pace.row()
    return answer


async def _rising(ids: list[int], pace: Pace) -> Iterator[int]:
    """Sorted in steps: of the many that a partition may remember, one sort would hold the event loop."""
    pieces: list[Iterable[int]] = []
    for at in range(0, len(ids), ROWS_PER_STEP):
        pieces.append(sorted(ids[at : at + ROWS_PER_STEP]))
        await pace.row(ROWS_PER_STEP // 10)
    return merge(*pieces)
