"""WriteTxnMarkers: abort the transaction that holds up a partition (KIP-664, `kafka-transactions.sh abort`).

Versions 1 to 2.
Behaviour: an abort ends the producer's whole transaction, on all its partitions, if the partition is part of
it: a transaction has one outcome. It is NONE as well when there is nothing open to abort.
Deviations: Kafka aborts on the one partition alone, which tears the transaction. A commit is refused with
INVALID_TXN_STATE: here no coordinator sends markers. The coordinator epoch is ignored.
"""

from __future__ import annotations

import asyncio

from agent.kafka.context import Context
from agent.kafka.handlers.lookup import find_partition
from agent.kafka.transactions.requests import decide
from agent.net.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from coordination.commands import AbortTransaction
from coordination.kafka_codes import Code
from coordination.state.types import Partition, Refused

KEY = 27
VERSIONS = (1, 2)
LOOKS_PER_STEP = 1_000  # partitions looked at before other work has its turn


async def handle(ctx: Context, request: WriteTxnMarkersRequest, version: int) -> WriteTxnMarkersResponse:
    """A code per partition of each marker, in the request's order."""
    response = WriteTxnMarkersResponse()
    looked_at = 0
    for marker in request.markers:
        await ctx.barrier()
        # one entry for a transaction, however many partitions it has
        decided: dict[tuple[str, int], Code] = {}
        result = WritableTxnMarkerResult(producer_id=marker.producer_id)
        response.markers.append(result)
        for topic in marker.topics:
            rows = WritableTxnMarkerTopicResult(name=topic.name)
            result.topics.append(rows)
            for index in topic.partition_indexes:
                partition = find_partition(ctx.state.topics.get(topic.name), index)
                code = await _ended(ctx, marker, partition, decided)
                looked_at += 1
                if looked_at % LOOKS_PER_STEP == 0:
                    await asyncio.sleep(0)
                rows.partitions.append(WritableTxnMarkerPartitionResult(index, code))
    return response


async def _ended(
    ctx: Context,
    marker: WritableTxnMarker,
    partition: Partition | None,
    decided: dict[tuple[str, int], Code],
) -> Code:
    if partition is None:
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    if marker.transaction_result:
        return Code.INVALID_TXN_STATE
    owner = ctx.state.transactions_by_producer.get(marker.producer_id)
    if owner is None or partition.handle not in owner.partitions:
        return Code.NONE
    if marker.producer_epoch < owner.epoch:
        return Code.INVALID_PRODUCER_EPOCH
    name = (owner.transactional_id, owner.number)
    if name not in decided:
        abort = AbortTransaction(transactional_id=owner.transactional_id, number=owner.number, forced=True)
        result = await decide(ctx, abort)
        decided[name] = Code.NONE
        if isinstance(result, Refused) and result.code is not Code.INVALID_TXN_STATE:
            decided[name] = result.code
    return decided[name]
