"""The connection fence of transactions v1 (KAFKA-17754; docs/transactions.md).

A client that gave a request up closes that connection, sends the request again on another one, ends its
transaction and begins the next, under the same producer id and epoch. When the first request arrives then,
it must not touch that next transaction. EndTxn, AddPartitionsToTxn and AddOffsetsToTxn share a connection, so
one of them counts only when it provably was sent after the last transaction's end: its connection is younger,
or has carried that end. Any other does nothing: its agent closes the connection, or has the request sent
again where the connection proves nothing yet (agent/kafka/transactions/stamps.py).

TxnOffsetCommit has a connection of its own, on which nothing shows that it is alive. The first one of a group
in a transaction is taken from any connection, later ones from the same or from one that is younger than them.
So what is late may be taken at first, but not behind what its client has sent; and its client commits only
after a TxnOffsetCommit of its own was answered, which replaces what was there.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordination.commands import Fence
from coordination.kafka_codes import Code
from coordination.state.transaction_types import LastEnd, Source, Transaction
from coordination.state.types import At, Refused

CLOSE = Code.NETWORK_EXCEPTION  # of a Refused: nothing is done; the agent closes the connection, mostly


def refusal(transaction: Transaction, fence: Fence, at: At) -> Refused | None:
    """Why the request may be of an earlier transaction; None when it provably is not."""
    last = transaction.last_end
    if last is None or _after(fence, last, at):
        return None
    return Refused(
        CLOSE,
        f"transactional id {transaction.transactional_id!r}: the connection is older than the last "
        f"transaction's end at revision {last.revision}",
    )


def positions_refusal(transaction: Transaction, group: str, fence: Fence, at: At) -> Refused | None:
    """Why a TxnOffsetCommit may be older than what is known of its group; None when it is taken.

    Where the transaction has not added the group, only a proven request (`refusal`) is answered.
    """
    if group not in transaction.groups:
        return refusal(transaction, fence, at)
    before = transaction.groups[group]
    if before is None or _after(fence, before, at):
        return None
    return Refused(
        CLOSE,
        f"transactional id {transaction.transactional_id!r}, group {group!r}: the connection is older than "
        f"the positions of revision {before.revision}, which came by another one",
    )


def note_end(transaction: Transaction, fence: Fence | None, at: At) -> None:
    """Remember by which connection, and when, the transaction was ended, or its client told that it had been.

    A retry of the end changes nothing else, but must be remembered as well: another try of the same end may
    still be under way, by a connection that is younger than the end that counted. Only one that is younger
    than the newest answered try, or carried it, proves that its requests belong to the next transaction.
    """
    transaction.last_end = None
    if fence is not None:
        transaction.last_end = LastEnd(at.author.incarnation, fence.connection, at.revision)


def note_positions(
    transaction: Transaction, group: str, fence: Fence, waiting: Iterable[int], named: Iterable[int], at: At
) -> Refused | None:
    """Remember by which connection the group's positions of `named` partitions came; `waiting` were there.

    Refused when some of those may be of an earlier transaction and are not replaced: a late request and a
    client that came back by another connection look alike, so the transaction can only be aborted.
    """
    before, proven = transaction.groups[group], True
    if before is None:
        proven = refusal(transaction, fence, at) is None
    elif _same(fence, before, at):
        proven = before.proven
    elif not before.proven and not set(waiting) <= set(named):
        transaction.abort_only = True
        return abort_only(transaction)
    transaction.groups[group] = Source(at.author.incarnation, fence.connection, at.revision, proven)
    return None


def abort_only(transaction: Transaction) -> Refused | None:
    """The refusal of whatever would go on with a transaction that can only be aborted; None for others."""
    if not transaction.abort_only:
        return None
    return Refused(
        Code.TRANSACTION_ABORTABLE,
        f"transactional id {transaction.transactional_id!r}: positions may be of an earlier transaction, "
        "and a later request does not name all their partitions: abort the transaction",
    )


def _after(fence: Fence, earlier: LastEnd | Source, at: At) -> bool:
    """Whether what comes so was sent after an earlier request was: by the same connection, or by one that was
    opened when that one was applied."""
    return fence.stamp >= earlier.revision or _same(fence, earlier, at)


def _same(fence: Fence, earlier: LastEnd | Source, at: At) -> bool:
    return at.author.incarnation == earlier.incarnation and fence.connection == earlier.connection
