"""Requests of transactional producers: proposed, decided at apply, answered in the codes of their version.

What the log could not decide yet, or may have decided, is COORDINATOR_NOT_AVAILABLE: every client sends the
request again, and every one of them is recognised when it comes twice. A request of transactions v1 that may
be of an earlier transaction gets no answer: its connection is closed (coordination/state/fence.py).
"""

from __future__ import annotations

from google.protobuf.message import Message

from agent.kafka.context import Context
from agent.kafka.propose import propose_one
from agent.net.wire.errors import WireError
from coordination.commands import Fence
from coordination.kafka_codes import Code
from coordination.state.fence import CLOSE
from coordination.state.levels import TRANSACTIONS
from coordination.state.types import Refused, Result

NOT_YET = f"no transactions before feature level {TRANSACTIONS}: finalize floe.level when all agents know it"
UNDECIDED = (Code.NOT_CONTROLLER, Code.REQUEST_TIMED_OUT)


class StaleConnection(WireError):
    """The request may have been sent before its producer's last transaction ended: nothing was done."""


def fence_of(ctx: Context) -> Fence:
    """Where a request of transactions v1 came from, for apply."""
    return Fence(connection=ctx.client.connection, stamp=ctx.client.stamp)


def refusal(ctx: Context) -> Code | None:
    """Why this agent does not coordinate transactions now; None when it does. Any agent may."""
    if not ctx.services.replica.ready:
        return Code.COORDINATOR_NOT_AVAILABLE
    return Code.NOT_COORDINATOR if ctx.away() else None


async def decide(ctx: Context, message: Message) -> Result:
    """What apply says; Refused with COORDINATOR_NOT_AVAILABLE when it does not. Raises StaleConnection."""
    if ctx.state.feature_level < TRANSACTIONS:
        return Refused(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NOT_YET)
    code = refusal(ctx)
    if code is not None:
        return Refused(code, "this agent answers for no transaction now")
    result = await propose_one(ctx, message)
    if not isinstance(result, Refused):
        return result
    if result.code is CLOSE:
        ctx.services.metrics.transactions_stale.inc()
        raise StaleConnection(result.message)
    return Refused(Code.COORDINATOR_NOT_AVAILABLE, result.message) if result.code in UNDECIDED else result


def code_of(result: Result, *, fenced_known: bool) -> Code:
    """The code of an answer; whoever does not know PRODUCER_FENCED gets INVALID_PRODUCER_EPOCH (KIP-588)."""
    if not isinstance(result, Refused):
        return Code.NONE
    if result.code is Code.PRODUCER_FENCED and not fenced_known:
        return Code.INVALID_PRODUCER_EPOCH
    return result.code
