"""InitProducerId: an id for an idempotent producer, or the pair of a transactional one.

Versions 0 to 5.
Behaviour: ids are unique for ever. Without a transactional id each agent takes blocks of them from the log;
while none is left and the log gives no more it says COORDINATOR_LOAD_IN_PROGRESS, as Kafka's brokers do: the
producer asks again, and looks for no coordinator, as it has none. A producer that asks with an id and epoch
of its own (KIP-360) gets a new id and epoch 0: sequences are kept per id, so it starts afresh. With a
transactional id apply decides: an ongoing transaction is aborted at once, whoever had the id before is
fenced, and a producer with its last pair gets the next one, also when it asks twice. One of id and epoch
without the other is INVALID_REQUEST.
Deviations: an ongoing transaction is aborted in the same step, so CONCURRENT_TRANSACTIONS is never answered.
"""

from __future__ import annotations

import asyncio

from agent.kafka.context import PRODUCER_ID_BLOCK, Context
from agent.kafka.propose import propose_one
from agent.kafka.transactions.requests import code_of, decide
from agent.net.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from coordination import broker_configs
from coordination.commands import AllocateProducerIds, InitTransactions
from coordination.kafka_codes import Code
from coordination.state.types import Done, Result
from objectstore import tasks

KEY = 22
VERSIONS = (0, 5)
FENCED_KNOWN_SINCE = 4


async def handle(ctx: Context, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
    """The pair."""
    if request.transactional_id == "" or (request.producer_id < 0) != (request.producer_epoch < 0):
        return _error(Code.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await _transactional(ctx, request, request.transactional_id, version)
    ids = ctx.services.producer_ids
    while ids.next == ids.end:
        more = ids.more
        if more is None:
            more = ids.more = tasks.start(_more(ctx), "producer ids", apart=True)
        await asyncio.wait([more])  # who gives up waiting takes nothing from the others
        if not isinstance(more.result(), Done):
            return _error(Code.COORDINATOR_LOAD_IN_PROGRESS)
    producer_id = ids.next
    ids.next += 1
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _more(ctx: Context) -> Result:
    """Take another block of ids; one that fails is everybody's failure who waits for it."""
    ids = ctx.services.producer_ids
    try:
        result = await propose_one(ctx, AllocateProducerIds(count=PRODUCER_ID_BLOCK))
        if isinstance(result, Done):
            assert isinstance(result.value, int), f"producer ids begin at {result.value!r}"
            ids.next, ids.end = result.value, result.value + PRODUCER_ID_BLOCK
        return result
    finally:
        ids.more = None


async def _transactional(
    ctx: Context, request: InitProducerIdRequest, transactional_id: str, version: int
) -> InitProducerIdResponse:
    longest = broker_configs.integer(ctx.state.cluster_configs, "transaction.max.timeout.ms")
    if not 0 < request.transaction_timeout_ms <= longest:
        return _error(Code.INVALID_TRANSACTION_TIMEOUT)
    message = InitTransactions(
        transactional_id=transactional_id,
        timeout_ms=request.transaction_timeout_ms,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
    )
    result = await decide(ctx, message)
    if not isinstance(result, Done):
        return _error(code_of(result, fenced_known=version >= FENCED_KNOWN_SINCE))
    assert isinstance(result.value, tuple), f"a pair is {result.value!r}"
    producer_id, epoch = result.value
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def _error(code: Code) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
