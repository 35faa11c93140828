"""Transactional ids and their transactions (KIP-98, 360, 447, 588, 890): what Kafka's TransactionCoordinator
decides, decided at apply.

With one ordered log, Prepare and Complete are one step: one EndTransaction ends a transaction on all its
partitions and for all its positions at once (rule 8). At that point each partition takes a marker, which is a
row of its index (slices.py). What Kafka answers with CONCURRENT_TRANSACTIONS cannot happen here.
"""

from __future__ import annotations

from coordination.commands import (
    AbortTransaction,
    AddToTransaction,
    EndTransaction,
    ExpireTransactions,
    Fence,
    InitTransactions,
)
from coordination.kafka_codes import Code
from coordination.state import extents, fence, pending_offsets
from coordination.state.data import StateData
from coordination.state.deleted import existing
from coordination.state.expiry import not_above
from coordination.state.producers import own
from coordination.state.transaction_owner import begin, bump, owned, too_many_groups
from coordination.state.transaction_types import NO_PRODUCER, Phase, Transaction
from coordination.state.types import At, Done, Partition, ProducerEntry, Refused, Result
from objectstore.naming import MarkerId

TRANSACTIONAL_IDS_MAX = 200_000  # of the cluster
TRANSACTIONAL_ID_BYTES_MAX = (1 << 15) - 1  # what Kafka's protocol can name


def init_transactions(state: StateData, message: InitTransactions, at: At) -> Result:
    """Give the id's next owner its pair. Done's value: (producer id, epoch).

    An ongoing transaction is aborted. With the pair of an earlier time (KIP-360) only the last owner is
    served: PRODUCER_FENCED for everybody else.
    """
    name = message.transactional_id
    given = (message.producer_id, message.producer_epoch)
    known = state.transactions.get(name)
    if known is None:
        return _first_init(state, message, at)
    if given != NO_PRODUCER:
        if given == known.previous and not known.ongoing:
            known.timeout_ms, known.updated_ms, known.timed_out = message.timeout_ms, at.now_ms, False
            return Done(known.current)
        if given != known.current:
            return Refused(
                Code.PRODUCER_FENCED, f"transactional id {name!r} is at {known.current}, not {given}"
            )
    if known.ongoing:
        finish(state, known, False, known.epoch + 1, at)
    bump(state, known)
    known.previous = given
    known.phase, known.timeout_ms, known.updated_ms = Phase.EMPTY, message.timeout_ms, at.now_ms
    known.timed_out, known.last_end = False, None
    return Done(known.current)


def _first_init(state: StateData, message: InitTransactions, at: At) -> Result:
    name = message.transactional_id
    if not name or len(name.encode()) > TRANSACTIONAL_ID_BYTES_MAX:
        return Refused(
            Code.INVALID_REQUEST, f"a transactional id has 1 to {TRANSACTIONAL_ID_BYTES_MAX} bytes of UTF-8"
        )
    if len(state.transactions) >= TRANSACTIONAL_IDS_MAX:
        return Refused(
            Code.POLICY_VIOLATION,
            f"the cluster has {TRANSACTIONAL_IDS_MAX} transactional ids, the most it takes: ids that are not "
            "used expire after transactional.id.expiration.ms",
        )
    made = Transaction(name, state.next_producer_id, 0, message.timeout_ms, at.now_ms)
    state.next_producer_id += 1
    state.transactions[name] = state.transactions_by_producer[made.producer_id] = made
    return Done(made.current)


def add_to_transaction(state: StateData, message: AddToTransaction, at: At) -> Result:
    """Add partitions and groups. Done's value: None, or a code per partition when one does not exist."""
    pair = (message.producer_id, message.producer_epoch)
    known = owned(
        state,
        message.transactional_id,
        pair,
        Code.PRODUCER_FENCED,
        abortable_known=message.abortable_known,
    )
    if isinstance(known, Refused):
        return known
    refused = fence.refusal(known, message.fence, at) if message.HasField("fence") else None
    if refused is not None:
        return refused
    missing = [h >= len(state.partitions) or state.partitions[h] is None for h in message.partition]
    if True in missing:
        return Done(
            tuple(
                int(Code.UNKNOWN_TOPIC_OR_PARTITION if gone else Code.OPERATION_NOT_ATTEMPTED)
                for gone in missing
            )
        )
    refused = too_many_groups(known, message.group)
    if refused is not None:
        return refused
    begin(known, at)
    for handle in message.partition:
        known.partitions[handle] = None
    for group in message.group:
        known.groups.setdefault(group, None)
    return Done()


def end_transaction(state: StateData, message: EndTransaction, at: At) -> Result:
    """Commit or abort what is ongoing. Done's value: the pair that counts from here on.

    The codes are those of the tables in docs/transactions.md.
    """
    name, pair = message.transactional_id, (message.producer_id, message.producer_epoch)
    known = state.transactions.get(name)
    source = message.fence if message.HasField("fence") else None
    if known is not None and pair == known.current and source is not None:
        refused = fence.refusal(known, source, at)
        if refused is not None:
            return refused
    if known is not None and pair == known.previous != NO_PRODUCER:
        return _end_again(known, message)
    found = owned(state, name, pair, Code.PRODUCER_FENCED, abortable_known=message.abortable_known)
    if isinstance(found, Refused):
        return found
    refused = fence.abort_only(found) if message.commit else None
    if refused is not None:
        return refused
    if message.bumps_epoch:
        return _end_v2(state, found, message.commit, at)
    return _end_v1(state, found, message.commit, source, at)


def _end_again(known: Transaction, message: EndTransaction) -> Result:
    """The answer to whoever has the pair before the current one: a retry, or somebody who is late."""
    ended = Phase.COMPLETE_COMMIT if message.commit else Phase.COMPLETE_ABORT
    if known.phase is ended:
        return Done(known.current)
    name = known.transactional_id
    if known.timed_out and known.phase is Phase.COMPLETE_ABORT:
        return Refused(
            Code.TRANSACTION_ABORTABLE if message.abortable_known else Code.INVALID_PRODUCER_ID_MAPPING,
            f"transactional id {name!r}: its transaction was aborted after {known.timeout_ms} ms",
        )
    if known.phase is Phase.COMPLETE_COMMIT:
        return Refused(Code.INVALID_TXN_STATE, f"transactional id {name!r}: the transaction was committed")
    return Refused(Code.PRODUCER_FENCED, f"transactional id {name!r} is at epoch {known.epoch} by now")


def _end_v2(state: StateData, known: Transaction, commit: bool, at: At) -> Result:
    if not known.ongoing and commit:
        return _nothing_to_end(known, commit)
    if known.ongoing:
        finish(state, known, commit, known.epoch + 1, at)
    else:
        known.phase, known.updated_ms = Phase.COMPLETE_ABORT, at.now_ms
    bump(state, known)
    known.timed_out, known.last_end = False, None
    return Done(known.current)


def _end_v1(state: StateData, known: Transaction, commit: bool, source: Fence | None, at: At) -> Result:
    ended = Phase.COMPLETE_COMMIT if commit else Phase.COMPLETE_ABORT
    if known.ongoing:
        finish(state, known, commit, known.epoch, at)
    elif known.phase is not ended:
        return _nothing_to_end(known, commit)
    fence.note_end(known, source, at)
    return Done(known.current)


def _nothing_to_end(known: Transaction, commit: bool) -> Refused:
    what = "commit" if commit else "abort"
    return Refused(
        Code.INVALID_TXN_STATE,
        f"transactional id {known.transactional_id!r} is {known.phase.name}: nothing to {what}",
    )


def abort_transaction(state: StateData, message: AbortTransaction, at: At) -> Result:
    """Abort transaction `number` if it is ongoing still and its time is over. Done's value: the new pair."""
    known = state.transactions.get(message.transactional_id)
    if known is None:
        return Refused(Code.TRANSACTIONAL_ID_NOT_FOUND, f"no transactional id {message.transactional_id!r}")
    name = known.transactional_id
    if not known.ongoing or known.number != message.number:
        return Refused(
            Code.INVALID_TXN_STATE, f"transactional id {name!r}: transaction {message.number} is over"
        )
    if not message.forced and at.now_ms - known.started_ms < known.timeout_ms:
        return Refused(Code.INVALID_REQUEST, f"transactional id {name!r}: its time is not over")
    finish(state, known, False, known.epoch + 1, at)
    bump(state, known)
    known.timed_out, known.last_end = True, None
    return Done(known.current)


def expire_transactions(state: StateData, message: ExpireTransactions, at: At) -> Result:
    """Forget ids that nobody uses. Done's value: how many."""
    expired = 0
    idle_since_ms = not_above(state, message.idle_since_ms, "transactional.id.expiration.ms")
    for name in message.transactional_id:
        known = state.transactions.get(name)
        if known is not None and expirable(known, idle_since_ms):
            del state.transactions[name]
            del state.transactions_by_producer[known.producer_id]
            expired += 1
    return Done(expired)


def expirable(transaction: Transaction, idle_since_ms: int) -> bool:
    """Whether ExpireTransactions would forget the id."""
    return not transaction.ongoing and transaction.updated_ms < idle_since_ms


def finish(state: StateData, known: Transaction, commit: bool, marker_epoch: int, at: At) -> None:
    """End what is ongoing, here and now: markers, positions, state. The epoch is the caller's."""
    marker = MarkerId(known.producer_id, marker_epoch, commit)
    ended: list[tuple[Partition, int]] = []
    for handle in known.partitions:
        partition = existing(state, handle)
        if partition is None:  # its topic was deleted meanwhile and does not come back
            continue
        first = _write_marker(state, partition, marker, at)
        at.touched.append(handle)
        if commit and first is not None:
            ended.append((partition, first))
    extents.note(state, ended)
    for group in known.groups:
        pending_offsets.settle(state, group, known.transactional_id, commit)
    known.phase = Phase.COMPLETE_COMMIT if commit else Phase.COMPLETE_ABORT
    known.partitions, known.groups, known.abort_only = {}, {}, False
    known.started_ms, known.updated_ms = -1, at.now_ms


def _write_marker(state: StateData, partition: Partition, marker: MarkerId, at: At) -> int | None:
    """Put the marker at the partition's end. Gives the transaction's first offset there, None without one."""
    offset = partition.high_watermark
    partition.slices.append_marker(offset + 1, marker, at.now_ms)
    partition.high_watermark = offset + 1
    entry = partition.producers.get(marker.producer_id)
    if entry is not None:
        entry = own(state, partition, marker.producer_id, entry)
        _fence_entry(entry, marker.epoch, at.now_ms)
    transactions = partition.transactions
    first = transactions.open.pop(marker.producer_id, None) if transactions is not None else None
    if transactions is not None and first is not None and not marker.committed:
        transactions.aborted.extend((marker.producer_id, first, offset))
    return first


def _fence_entry(entry: ProducerEntry, epoch: int, now_ms: int) -> None:
    """A marker of a higher epoch fences the producer on the partition (Kafka's appendEndTxnMarker)."""
    entry.last_timestamp = now_ms
    if epoch > entry.epoch:
        entry.epoch, entry.floor_sequence, entry.last_sequence = epoch, 0, -1
        del entry.recent[:]
