"""ListTransactions: the transactional ids that belong to this broker (KIP-664, 994, 1152).

Versions 0 to 2.
Behaviour: clients ask every broker, so each answers for the ids that FindCoordinator sends to it. Filters
are by state, producer id, how long the transaction has been going (from version 1 on) and a pattern of the
id (from version 2 on; RE2, the whole id). Unknown states are named and filter like others: nothing is in
them.
Deviations: there are no states PrepareCommit, PrepareAbort, Dead and PrepareEpochFence to be in.
"""

from __future__ import annotations

import asyncio
from itertools import islice

from agent.kafka.context import Context
from agent.kafka.groups.consumer.errors import GroupError
from agent.kafka.groups.consumer.patterns import matching
from agent.net.wire.api import Encoded
from agent.net.wire.generated import list_transactions
from agent.net.wire.generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from agent.net.wire.steps import Pace, encoded
from coordination.kafka_codes import Code
from coordination.state.transaction_types import PHASE_NAMES, Transaction

KEY = 66
VERSIONS = (0, 2)
LOOKS_PER_STEP = 1_000  # ids; a few ms
NEVER_HERE = ("PrepareCommit", "PrepareAbort", "Dead", "PrepareEpochFence")
STATES = (*PHASE_NAMES.values(), *NEVER_HERE)


async def handle(
    ctx: Context, request: ListTransactionsRequest, version: int
) -> ListTransactionsResponse | Encoded:
    """One row per id that passes every filter."""
    if not await ctx.barrier():
        return ListTransactionsResponse(error_code=Code.COORDINATOR_NOT_AVAILABLE)
    found = await _found(ctx, request)
    pattern = request.transactional_id_pattern
    if pattern:
        try:
            names = await asyncio.to_thread(matching, pattern, [each.transactional_id for each in found])
        except GroupError as error:
            return ListTransactionsResponse(error_code=error.code)
        chosen = frozenset(names)
        found = [each for each in found if each.transactional_id in chosen]
    response, pace = ListTransactionsResponse(), Pace()
    response.unknown_state_filters = [name for name in request.state_filters if name not in STATES]
    for each in found:
        row = TransactionState(each.transactional_id, each.producer_id, PHASE_NAMES[each.phase])
        response.transaction_states.append(row)
        await pace.row()
    return await encoded(list_transactions, response, version, "transaction_states")


async def _found(ctx: Context, request: ListTransactionsRequest) -> list[Transaction]:
    """Those of this broker, looked for in steps: there may be hundreds of thousands."""
    services, now_ms = ctx.services, ctx.services.clock.now_ms()
    every, found = iter(list(ctx.state.transactions.values())), []
    while step := list(islice(every, LOOKS_PER_STEP)):
        found += [
            known
            for known in step
            if _passes(request, known, now_ms)
            and services.hints.coordinator(known.transactional_id) == services.replica.node_id
        ]
        await asyncio.sleep(0)
    return found


def _passes(request: ListTransactionsRequest, known: Transaction, now_ms: int) -> bool:
    if request.state_filters and PHASE_NAMES[known.phase] not in request.state_filters:
        return False
    if request.producer_id_filters and known.producer_id not in request.producer_id_filters:
        return False
    if request.duration_filter < 0:
        return True
    return known.ongoing and now_ms - known.started_ms > request.duration_filter
