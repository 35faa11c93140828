"""Requests of transactional producers: proposed, decided at apply, answered in the codes of their version.

What the log could not decide yet, or may have decided, is COORDINATOR_NOT_AVAILABLE: every client sends the
request again, and every one of them is recognised when it comes twice. A request of transactions v1 that may
be of an earlier transaction gets no answer: its connection is closed (coordination/state/fence.py). Where the
connection does not prove anything yet, it is to be sent again instead (stamps.py).
"""

from __future__ import annotations

from google.protobuf.message import Message

from agent.kafka.context import Context
from agent.kafka.propose import propose_one
from agent.kafka.transactions.stamps import COUNTED, comes_again, stamp_after
from agent.net.wire.errors import WireError
from coordination.commands import AddToTransaction, CommitTransactionOffsets, EndTransaction, Fence
from coordination.kafka_codes import Code
from coordination.state.fence import CLOSE
from coordination.state.levels import TRANSACTIONS
from coordination.state.types import Refused, Result

NOT_YET = f"no transactions before feature level {TRANSACTIONS}: finalize floe.level when all agents know it"
UNDECIDED = (Code.NOT_CONTROLLER, Code.REQUEST_TIMED_OUT)
FENCED = (AddToTransaction, CommitTransactionOffsets, EndTransaction)
COMES_AGAIN = Code.COORDINATOR_LOAD_IN_PROGRESS
"""What clients take as: the same again, by the same connection. After COORDINATOR_NOT_AVAILABLE some open
another, and CONCURRENT_TRANSACTIONS ends some of them where TxnOffsetCommit is what it answers."""


class StaleConnection(WireError):
    """The request may have been sent before its producer's last transaction ended: nothing was done."""


def fence_of(ctx: Context) -> Fence:
    """Where a request of transactions v1 came from, for apply."""
    return Fence(connection=ctx.client.connection, stamp=ctx.stamp or COUNTED)


def refusal(ctx: Context) -> Code | None:
    """Why this agent does not coordinate transactions now; None when it does. Any agent may."""
    if not ctx.services.replica.ready:
        return Code.COORDINATOR_NOT_AVAILABLE
    return Code.NOT_COORDINATOR if ctx.away() else None


async def decide(ctx: Context, message: Message, *, told: bool = True) -> Result:
    """What apply says; Refused with COORDINATOR_NOT_AVAILABLE when it does not. Raises StaleConnection.

    `told`: the answer has a place for a code.
    """
    if ctx.state.feature_level < TRANSACTIONS:
        return Refused(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NOT_YET)
    code = refusal(ctx)
    if code is not None:
        return Refused(code, "this agent answers for no transaction now")
    result = await propose_one(ctx, message)
    if isinstance(message, FENCED) and message.HasField("fence"):
        result = _fenced(ctx, result, told)
    if not isinstance(result, Refused):
        return result
    return Refused(Code.COORDINATOR_NOT_AVAILABLE, result.message) if result.code in UNDECIDED else result


def _fenced(ctx: Context, result: Result, told: bool) -> Result:
    """The result of what the fence has looked at: one that it refused is to come again, or its connection is
    closed."""
    client = ctx.client
    if not isinstance(result, Refused):
        client.stamp = stamp_after(client.stamp, True, ctx.state.revision)
    elif result.code is CLOSE:
        if not (told and comes_again(ctx.stamp, client.stamp)):
            ctx.services.metrics.transactions_stale.inc()
            raise StaleConnection(result.message)
        client.stamp = stamp_after(client.stamp, False, ctx.state.revision)
        return Refused(COMES_AGAIN, result.message)
    return result


def code_of(result: Result, *, fenced_known: bool) -> Code:
    """The code of an answer; whoever does not know PRODUCER_FENCED gets INVALID_PRODUCER_EPOCH (KIP-588)."""
    if not isinstance(result, Refused):
        return Code.NONE
    if result.code is Code.PRODUCER_FENCED and not fenced_known:
        return Code.INVALID_PRODUCER_EPOCH
    return result.code
