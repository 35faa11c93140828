"""InitProducerId: an id for an idempotent producer.

Versions 0 to 5.
Behaviour: ids are unique for ever; each agent takes blocks of them from the log. A producer that asks with an
id and epoch of its own (KIP-360) gets a new id and epoch 0: sequences are kept per id, so it starts afresh.
One without the other is INVALID_REQUEST.
Deviations: this cluster has no transactions yet: a transactional id is answered with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every client takes as final.
"""

from __future__ import annotations

from agent.context import PRODUCER_ID_BLOCK, Context
from agent.handlers.propose import propose_one
from agent.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from coordination.commands import AllocateProducerIds
from coordination.kafka_codes import Code
from coordination.state.types import Done

KEY = 22
VERSIONS = (0, 5)


async def handle(ctx: Context, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
    """A fresh id with epoch 0."""
    if request.transactional_id is not None:
        code = (
            Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if request.transactional_id else Code.INVALID_REQUEST
        )
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return InitProducerIdResponse(error_code=Code.INVALID_REQUEST, producer_epoch=-1)
    ids = ctx.services.producer_ids
    async with ids.lock:
        if ids.next == ids.end:
            result = await propose_one(ctx, AllocateProducerIds(count=PRODUCER_ID_BLOCK))
            if not isinstance(result, Done):
                return InitProducerIdResponse(error_code=Code.COORDINATOR_NOT_AVAILABLE, producer_epoch=-1)
            assert isinstance(result.value, int), f"producer ids begin at {result.value!r}"
            ids.next, ids.end = result.value, result.value + PRODUCER_ID_BLOCK
        producer_id = ids.next
        ids.next += 1
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
