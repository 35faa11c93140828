"""Transactions and producer ids: the transactional id is asked for first, then groups and topics."""

from __future__ import annotations

from typing import Any

from agent.kafka.authority import needs
from agent.kafka.context import Context
from agent.kafka.guards.rows import Guard, Handle, Split, closed, opened, sorted_out
from agent.kafka.handlers.k24_add_partitions_to_txn import BATCHED_SINCE
from agent.net.wire.generated import add_offsets_to_txn as ao
from agent.net.wire.generated import add_partitions_to_txn as ap
from agent.net.wire.generated import describe_transactions as dt
from agent.net.wire.generated import end_txn as et
from agent.net.wire.generated import init_producer_id as ip
from agent.net.wire.generated import list_transactions as lt
from coordination.kafka_codes import Code

ID, CLUSTER = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED


async def _init(ctx: Context, request: ip.InitProducerIdRequest, version: int, handle: Handle) -> Any:
    if request.transactional_id is not None:
        allowed, code = ctx.may(needs.INIT_ID, request.transactional_id), ID
    else:
        allowed = ctx.allows(needs.INIT_IDEMPOTENT) or ctx.may_any(needs.INIT_ANY_TOPIC)
        code = CLUSTER
    if allowed:
        return await handle(ctx, request, version)
    return ip.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


async def _add_partitions(
    ctx: Context, request: ap.AddPartitionsToTxnRequest, version: int, handle: Handle
) -> Any:
    if version >= BATCHED_SINCE:
        if ctx.may(needs.ADD_PARTITIONS_BROKER):
            return await handle(ctx, request, version)
        return ap.AddPartitionsToTxnResponse(error_code=CLUSTER)
    topics = request.v3_and_below_topics
    if not ctx.may(needs.ADD_PARTITIONS_ID, request.v3_and_below_transactional_id):
        return _added(topics, lambda name, index: ID)
    kept, refused = await sorted_out(ctx, topics, lambda row: needs.ADD_PARTITIONS, lambda row: str(row.name))
    if not refused:
        return await handle(ctx, request, version)
    allowed = {row.name for row in kept}

    def code(name: str, index: int) -> Code:
        if name not in allowed:
            return Code.TOPIC_AUTHORIZATION_FAILED
        topic = ctx.state.topics.get(name)
        known = topic is not None and 0 <= index < len(topic.partitions)
        return Code.OPERATION_NOT_ATTEMPTED if known else Code.UNKNOWN_TOPIC_OR_PARTITION

    return _added(topics, code)


def _added(topics: list[ap.AddPartitionsToTxnTopic], code: Any) -> ap.AddPartitionsToTxnResponse:
    rows = [
        ap.AddPartitionsToTxnTopicResult(
            row.name,
            [ap.AddPartitionsToTxnPartitionResult(index, code(row.name, index)) for index in row.partitions],
        )
        for row in topics
    ]
    return ap.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)


async def _add_offsets(ctx: Context, request: ao.AddOffsetsToTxnRequest, version: int, handle: Handle) -> Any:
    if not ctx.may(needs.ADD_OFFSETS_ID, request.transactional_id):
        return ao.AddOffsetsToTxnResponse(error_code=ID)
    if not ctx.may(needs.ADD_OFFSETS_GROUP, request.group_id):
        return ao.AddOffsetsToTxnResponse(error_code=Code.GROUP_AUTHORIZATION_FAILED)
    return await handle(ctx, request, version)


async def _end(ctx: Context, request: et.EndTxnRequest, version: int, handle: Handle) -> Any:
    if ctx.may(needs.END_TXN, request.transactional_id):
        return await handle(ctx, request, version)
    return et.EndTxnResponse(error_code=ID)


_DESCRIBE = Split(
    dt,
    "transactional_ids",
    "transaction_states",
    lambda each: needs.DESCRIBE_TRANSACTIONS,
    str,
    lambda each: dt.TransactionState(error_code=ID, transactional_id=each),
    dt.DescribeTransactionsResponse,
    ("topics", "partitions"),
)


async def _describe(
    ctx: Context, request: dt.DescribeTransactionsRequest, version: int, handle: Handle
) -> Any:
    """Of the topics in a transaction those that the client may describe."""
    response = await opened(dt, await _DESCRIBE(ctx, request, version, handle), version)
    for state in response.transaction_states:
        state.topics, _ = await sorted_out(
            ctx, state.topics, lambda row: needs.DESCRIBE_TRANSACTIONS_TOPIC, lambda row: str(row.topic)
        )
    return await closed(dt, response, version, ("transaction_states", "topics", "partitions"))


async def _list(ctx: Context, request: lt.ListTransactionsRequest, version: int, handle: Handle) -> Any:
    response = await opened(lt, await handle(ctx, request, version), version)
    response.transaction_states, _ = await sorted_out(
        ctx,
        response.transaction_states,
        lambda row: needs.LIST_TRANSACTIONS,
        lambda row: str(row.transactional_id),
    )
    return await closed(lt, response, version, ("transaction_states",))


GUARDS: dict[int, Guard] = {
    22: _init,
    24: _add_partitions,
    25: _add_offsets,
    26: _end,
    65: _describe,
    66: _list,
}
