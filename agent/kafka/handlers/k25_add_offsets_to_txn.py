"""AddOffsetsToTxn: name the group whose positions a transaction is about to commit.

Versions 0 to 4.
Behaviour: of transactions v1; with v2 TxnOffsetCommit adds the group itself. A request that may belong to an
earlier transaction closes its connection, or is COORDINATOR_LOAD_IN_PROGRESS where that did not ask for
ApiVersions first (docs/transactions.md).
Deviations: as AddPartitionsToTxn: no CONCURRENT_TRANSACTIONS, and a code to recover from after a timeout.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.transactions.requests import code_of, decide, fence_of
from agent.net.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from coordination.commands import AddToTransaction
from coordination.kafka_codes import Code

KEY = 25
VERSIONS = (0, 4)
FENCED_KNOWN_SINCE, ABORTABLE_KNOWN_SINCE = 2, 4


async def handle(ctx: Context, request: AddOffsetsToTxnRequest, version: int) -> AddOffsetsToTxnResponse:
    """One code."""
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=Code.INVALID_REQUEST)
    message = AddToTransaction(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        group=[request.group_id],
        fence=fence_of(ctx),
        abortable_known=version >= ABORTABLE_KNOWN_SINCE,
    )
    result = await decide(ctx, message)
    return AddOffsetsToTxnResponse(error_code=code_of(result, fenced_known=version >= FENCED_KNOWN_SINCE))
