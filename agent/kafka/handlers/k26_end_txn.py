"""EndTxn: commit or abort a transaction, on all its partitions and with all its positions at once.

Versions 0 to 5; 5 is transactions v2 (KIP-890): the epoch rises with every end and is answered with.
Behaviour: one log entry ends the transaction (rule 8); when the answer leaves, the markers stand in all
partitions. Retries are recognised, in v2 also over the epoch's end. A request of v1 that may belong to an
earlier transaction closes its connection, or is COORDINATOR_LOAD_IN_PROGRESS where that did not ask for
ApiVersions first: KAFKA-17754, docs/transactions.md. A transaction that can only be aborted answers a commit
as after a timeout.
Deviations: a commit whose retry comes after an abort is PRODUCER_FENCED, as the table of KAFKA-20785 has it.
After a timeout an abort is NONE and a commit TRANSACTION_ABORTABLE, before version 4
INVALID_PRODUCER_ID_MAPPING: clients recover. So is an abort of version 1: librdkafka then asks for its next
pair as part of the abort. Kafka says PRODUCER_FENCED or INVALID_TXN_STATE, which end them.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.transactions.requests import code_of, decide, fence_of
from agent.net.wire.generated.end_txn import EndTxnRequest, EndTxnResponse
from coordination.commands import EndTransaction
from coordination.kafka_codes import Code
from coordination.state.types import Done

KEY = 26
VERSIONS = (0, 5)
V2_SINCE = 5
FENCED_KNOWN_SINCE, ABORTABLE_KNOWN_SINCE = 2, 4
OF_LIBRDKAFKA = 1
"""The version in which librdkafka sends it. After NONE it would go on with the pair that is over, and where
AddOffsetsToTxn is what refuses that, it never asks for another."""


async def handle(ctx: Context, request: EndTxnRequest, version: int) -> EndTxnResponse:
    """A code; in v2 with the pair that counts from here on."""
    if not request.transactional_id:
        return EndTxnResponse(error_code=Code.INVALID_REQUEST)
    message = EndTransaction(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        commit=request.committed,
        bumps_epoch=version >= V2_SINCE,
        fence=fence_of(ctx) if version < V2_SINCE else None,
        abortable_known=version >= ABORTABLE_KNOWN_SINCE,
    )
    result = await decide(ctx, message)
    if not isinstance(result, Done):
        code = code_of(result, fenced_known=version >= FENCED_KNOWN_SINCE)
        if code is Code.TRANSACTION_ABORTABLE and version < ABORTABLE_KNOWN_SINCE:
            code = Code.INVALID_PRODUCER_ID_MAPPING
        return EndTxnResponse(error_code=code)
    ctx.services.metrics.transactions_ended.labels("commit" if request.committed else "abort").inc()
    assert isinstance(result.value, tuple), f"an end answers with {result.value!r}"
    producer_id, epoch = result.value
    if version == OF_LIBRDKAFKA and result.value != (request.producer_id, request.producer_epoch):
        return EndTxnResponse(error_code=Code.INVALID_PRODUCER_ID_MAPPING)
    return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)
