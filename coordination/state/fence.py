"""The connection fence of transactions v1 (KAFKA-17754; docs/transactions.md).

A client that gave a request up sends it again on another connection, ends its transaction and begins the
next, under the same producer id and epoch. When the first request arrives then, it must not touch that next
transaction. Such a request sits on a connection that is older than the last transaction's end. So a request
counts only when it provably was sent after that end: its connection is younger, or has carried the end
itself, or the client counts its requests over connections. Any other is answered by closing its connection.
"""

from __future__ import annotations

from coordination.commands import Fence
from coordination.kafka_codes import Code
from coordination.state.transaction_types import LastEnd, Transaction
from coordination.state.types import At, Refused

CLOSE = Code.NETWORK_EXCEPTION  # of a Refused: process nothing, answer nothing, close the connection
_HALF = 1 << 31


def refusal(transaction: Transaction, fence: Fence, at: At) -> Refused | None:
    """Why the request may be of an earlier transaction; None when it provably is not."""
    last = transaction.last_end
    if last is None or _younger(fence, last) or _later(fence, last, at.author.incarnation):
        return None
    return Refused(
        CLOSE,
        f"transactional id {transaction.transactional_id!r}: the connection is older than the last "
        f"transaction's end at revision {last.revision}",
    )


def note_end(transaction: Transaction, fence: Fence | None, at: At) -> None:
    """Remember which request ended the transaction, or was told that it had ended.

    A retry that changes nothing counts as well: what its client sends next is sent after this one's answer,
    and an earlier try of it may still be under way on a connection younger than the end itself.
    """
    transaction.last_end = None
    if fence is not None:
        transaction.last_end = LastEnd(
            at.author.incarnation, fence.connection, fence.correlation_id, at.revision, fence.software
        )


def _younger(fence: Fence, last: LastEnd) -> bool:
    return fence.stamp >= last.revision


def _later(fence: Fence, last: LastEnd, incarnation: int) -> bool:
    """Whether the client itself counts this request behind the end; its int32 wraps."""
    if not 0 < (fence.correlation_id - last.correlation_id) % (2 * _HALF) < _HALF:
        return False
    if incarnation == last.incarnation and fence.connection == last.connection:
        return True
    if fence.software != last.software:
        return False
    if fence.software == Fence.LIBRDKAFKA:  # it counts per broker
        return incarnation == last.incarnation
    return fence.software == Fence.JAVA  # it counts over all of a client's connections
