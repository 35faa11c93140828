"""AddPartitionsToTxn: name the partitions that a transaction is about to write to.

Versions 0 to 5; from 4 on several transactions in one request, as brokers send it among themselves.
Behaviour: of transactions v1; clients of v2 do not send it, their partitions are added by Produce. One log
entry per transaction. A partition that does not exist refuses the others with OPERATION_NOT_ATTEMPTED.
`verify_only` asks whether partitions are part of the ongoing transaction and adds none: TRANSACTION_ABORTABLE
for those that are not, in version 4 too. A request that may
belong to an earlier transaction closes its connection, or is COORDINATOR_LOAD_IN_PROGRESS where that did not
ask for ApiVersions first (docs/transactions.md).
Deviations: CONCURRENT_TRANSACTIONS is never answered. After a timeout the code is one that clients recover
from: TRANSACTION_ABORTABLE, before version 5 INVALID_PRODUCER_ID_MAPPING; Kafka says PRODUCER_FENCED.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.handlers.lookup import find_partition
from agent.kafka.transactions.requests import code_of, decide, fence_of
from agent.net.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from coordination.commands import AddToTransaction
from coordination.kafka_codes import Code
from coordination.state.transaction_owner import owned
from coordination.state.types import Done, Refused

KEY = 24
VERSIONS = (0, 5)
BATCHED_SINCE = 4
FENCED_KNOWN_SINCE, ABORTABLE_KNOWN_SINCE = 2, 5
UNKNOWN, NOT_ATTEMPTED = Code.UNKNOWN_TOPIC_OR_PARTITION, Code.OPERATION_NOT_ATTEMPTED


async def handle(
    ctx: Context, request: AddPartitionsToTxnRequest, version: int
) -> AddPartitionsToTxnResponse:
    """A code per partition, in the request's order."""
    if version >= BATCHED_SINCE:
        results = [
            AddPartitionsToTxnResult(each.transactional_id, await _one(ctx, each, version))
            for each in request.transactions
        ]
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    only = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _one(ctx, only, version))


async def _one(
    ctx: Context, each: AddPartitionsToTxnTransaction, version: int
) -> list[AddPartitionsToTxnTopicResult]:
    if not each.transactional_id:
        return _all(each.topics, Code.INVALID_REQUEST)
    handles = _handles(ctx, each.topics)
    if None in handles and await ctx.barrier():  # a topic that was made a moment ago
        handles = _handles(ctx, each.topics)
    if None in handles:
        return _rows(each.topics, [UNKNOWN if one is None else NOT_ATTEMPTED for one in handles])
    known = [one for one in handles if one is not None]
    if each.verify_only:
        return await _verified(ctx, each, known, version)
    message = AddToTransaction(
        transactional_id=each.transactional_id,
        producer_id=each.producer_id,
        producer_epoch=each.producer_epoch,
        partition=known,
        fence=fence_of(ctx),
        abortable_known=version >= ABORTABLE_KNOWN_SINCE,
    )
    result = await decide(ctx, message)
    if isinstance(result, Done) and isinstance(result.value, tuple):
        return _rows(each.topics, [Code(code) for code in result.value])
    return _all(each.topics, code_of(result, fenced_known=version >= FENCED_KNOWN_SINCE))


async def _verified(
    ctx: Context, each: AddPartitionsToTxnTransaction, handles: list[int], version: int
) -> list[AddPartitionsToTxnTopicResult]:
    if not await ctx.barrier():
        return _all(each.topics, Code.COORDINATOR_NOT_AVAILABLE)
    found = owned(
        ctx.state,
        each.transactional_id,
        (each.producer_id, each.producer_epoch),
        Code.PRODUCER_FENCED,
        abortable_known=version >= ABORTABLE_KNOWN_SINCE,
    )
    if isinstance(found, Refused):
        return _all(each.topics, found.code)
    missing = Code.TRANSACTION_ABORTABLE
    return _rows(each.topics, [Code.NONE if one in found.partitions else missing for one in handles])


def _handles(ctx: Context, topics: list[AddPartitionsToTxnTopic]) -> list[int | None]:
    """Each partition's handle in the request's order; None where it does not exist."""
    state = ctx.state
    found = [
        find_partition(state.topics.get(topic.name), index) for topic in topics for index in topic.partitions
    ]
    return [None if one is None else one.handle for one in found]


def _all(topics: list[AddPartitionsToTxnTopic], code: Code) -> list[AddPartitionsToTxnTopicResult]:
    return _rows(topics, [code] * sum(len(topic.partitions) for topic in topics))


def _rows(topics: list[AddPartitionsToTxnTopic], codes: list[Code]) -> list[AddPartitionsToTxnTopicResult]:
    left = iter(codes)
    return [
        AddPartitionsToTxnTopicResult(
            topic.name, [AddPartitionsToTxnPartitionResult(index, next(left)) for index in topic.partitions]
        )
        for topic in topics
    ]
