"""DescribeTransactions: transactional ids as their coordinator sees them (KIP-664).

Versions 0.
Behaviour: answered after a read barrier, by any agent. Of a transaction with positions only the partitions
are named, none of them.
Deviations: there is no PrepareCommit and no PrepareAbort: a transaction ends at one entry of the log. An id
that is named twice is answered once: a small request cannot ask for thousands of partitions again and again.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.net.wire.api import Encoded
from agent.net.wire.generated import describe_transactions
from agent.net.wire.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from agent.net.wire.steps import Pace, encoded
from coordination.kafka_codes import Code
from coordination.state.state import State
from coordination.state.transaction_types import PHASE_NAMES, Transaction

KEY = 65
VERSIONS = (0, 0)


async def handle(ctx: Context, request: DescribeTransactionsRequest, version: int) -> Encoded:
    """One row per id, in the request's order; each as it is when its row is made."""
    fresh = await ctx.barrier()
    response, pace = DescribeTransactionsResponse(), Pace()
    for name in dict.fromkeys(request.transactional_ids):
        row = _row(ctx.state, name, fresh)
        response.transaction_states.append(row)
        await pace.row(1 + sum(len(topic.partitions) for topic in row.topics))  # there may be thousands
    path = ("transaction_states", "topics", "partitions")
    return await encoded(describe_transactions, response, version, *path)


def _row(state: State, name: str, fresh: bool) -> TransactionState:
    known = state.transactions.get(name)
    code = Code.NONE if fresh else Code.COORDINATOR_NOT_AVAILABLE
    if fresh and known is None:
        code = Code.TRANSACTIONAL_ID_NOT_FOUND if name else Code.INVALID_REQUEST
    if code or known is None:
        return TransactionState(error_code=code, transactional_id=name)
    return TransactionState(
        transactional_id=name,
        transaction_state=PHASE_NAMES[known.phase],
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=_topics(state, known),
    )


def _topics(state: State, known: Transaction) -> list[TopicData]:
    topics: dict[str, TopicData] = {}
    for handle in known.partitions:
        partition = state.partitions[handle]
        if partition is not None:
            name = partition.topic.name
            topics.setdefault(name, TopicData(topic=name)).partitions.append(partition.index)
    return list(topics.values())
