"""Batches of transactions: which may be appended, and what they change (KIP-98, KIP-890).

Called by CommitChunk for batches of a transaction, and for others on partitions that have seen one.
"""

from __future__ import annotations

from coordination.kafka_codes import Code
from coordination.state import producers
from coordination.state.data import StateData
from coordination.state.transaction_owner import begin
from coordination.state.transaction_types import PartitionTransactions
from coordination.state.types import At, Partition, ProducerEntry

EXPLICIT, IMPLICIT = 1, 2  # CommitChunk.transaction
SEQUENCE_MASK = (1 << 31) - 1  # sequences wrap from 2^31 - 1 to 0


def admit(
    state: StateData,
    partition: Partition,
    entry: ProducerEntry | None,
    batch: tuple[int, int, int, int],
    transaction: int,
) -> tuple[ProducerEntry | None, int, int]:
    """Decide on a batch (producer id, epoch, sequence, records): as `producers.admit`, transactions first."""
    producer_id, epoch, sequence, count = batch
    error = refusal(state, partition, producer_id, epoch, transaction)
    if error:
        return None, error, -1
    if entry is not None and epoch == entry.epoch and sequence == (entry.last_sequence + 1) & SEQUENCE_MASK:
        return entry, 0, partition.high_watermark
    if entry is not None:
        entry = producers.own(state, partition, producer_id, entry)
    else:
        producers.make_room(state, partition)
        state.producer_count += 1
    return producers.admit(partition, entry, producer_id, epoch, sequence, count)


def refusal(state: StateData, partition: Partition, producer_id: int, epoch: int, transaction: int) -> int:
    """Kafka's code for a batch that transactions forbid, 0 for one that may be judged by its sequence.

    `transaction` as in CommitChunk. TRANSACTION_ABORTABLE where Kafka's answer depends on the version.
    """
    if not transaction:
        known = partition.transactions
        return int(Code.INVALID_TXN_STATE) if known is not None and producer_id in known.open else 0
    owner = state.transactions_by_producer.get(producer_id)
    if owner is None:
        return int(Code.INVALID_PRODUCER_ID_MAPPING)
    if owner.epoch != epoch:
        return int(Code.INVALID_PRODUCER_EPOCH)
    if transaction == EXPLICIT and partition.handle not in owner.partitions:
        return int(Code.TRANSACTION_ABORTABLE)
    return 0


def written(state: StateData, partition: Partition, producer_id: int, base: int, at: At) -> None:
    """A batch of the producer's transaction was appended at `base`: it belongs to what is ongoing."""
    owner = state.transactions_by_producer[producer_id]
    begin(owner, at)
    owner.partitions[partition.handle] = None
    if partition.transactions is None:
        partition.transactions = PartitionTransactions()
    partition.transactions.open.setdefault(producer_id, base)
