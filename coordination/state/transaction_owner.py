"""Who may go on with a transactional id, and under which pair of producer id and epoch."""

from __future__ import annotations

from collections.abc import Sequence

from coordination.kafka_codes import Code
from coordination.state.data import StateData
from coordination.state.transaction_types import Phase, Transaction
from coordination.state.types import At, Refused

GROUPS_MAX = 1_000  # of one transaction: a name has up to 32 KiB, a snapshot has them in one section
EPOCH_MAX = (1 << 15) - 2  # the last epoch that a producer gets: the fence of it must fit an int16


def bump(state: StateData, transaction: Transaction) -> None:
    """The next epoch; when there is none, a new producer id and epoch 0. The pair before it is remembered."""
    transaction.previous = transaction.current
    if transaction.epoch < EPOCH_MAX:
        transaction.epoch += 1
        return
    del state.transactions_by_producer[transaction.producer_id]
    transaction.producer_id, transaction.epoch = state.next_producer_id, 0
    state.next_producer_id += 1
    state.transactions_by_producer[transaction.producer_id] = transaction


def begin(transaction: Transaction, at: At) -> None:
    """Begin a transaction unless one is ongoing."""
    transaction.updated_ms = at.now_ms
    if transaction.ongoing:
        return
    transaction.phase, transaction.started_ms, transaction.timed_out = Phase.ONGOING, at.now_ms, False
    transaction.number += 1


def too_many_groups(transaction: Transaction, added: Sequence[str]) -> Refused | None:
    """The refusal of groups that would be more than a transaction takes; None when it takes them."""
    few = len(transaction.groups) + len(added) <= GROUPS_MAX
    if few or len(transaction.groups.keys() | set(added)) <= GROUPS_MAX:
        return None
    return Refused(
        Code.POLICY_VIOLATION,
        f"transactional id {transaction.transactional_id!r}: a transaction has positions of at most "
        f"{GROUPS_MAX} groups",
    )


def owned(
    state: StateData, name: str, pair: tuple[int, int], fenced: Code, *, abortable_known: bool
) -> Transaction | Refused:
    """The transactional id, when `pair` (producer id, epoch) is its current one; else the refusal.

    `fenced` is the code for an epoch that is over. A producer whose transaction was only aborted for its
    timeout gets a code that it can recover from (KIP-588): TRANSACTION_ABORTABLE, or to versions that do not
    know it INVALID_PRODUCER_ID_MAPPING, after which clients ask for a new pair.
    """
    known = state.transactions.get(name)
    if known is None:
        return Refused(Code.INVALID_PRODUCER_ID_MAPPING, f"transactional id {name!r} is not known")
    if pair == known.current:
        return known
    if known.timed_out and pair == known.previous:
        return Refused(
            Code.TRANSACTION_ABORTABLE if abortable_known else Code.INVALID_PRODUCER_ID_MAPPING,
            f"transactional id {name!r}: its transaction was aborted after {known.timeout_ms} ms",
        )
    if pair[0] != known.producer_id:
        return Refused(
            Code.INVALID_PRODUCER_ID_MAPPING,
            f"transactional id {name!r} has producer id {known.producer_id}, not {pair[0]}",
        )
    return Refused(fenced, f"transactional id {name!r} is at epoch {known.epoch}, not {pair[1]}")
