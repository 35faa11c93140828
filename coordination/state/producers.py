"""Idempotent producers: which batch may be appended, as Kafka decides it (ProducerAppendInfo, KIP-98, 360).

The batch that continues its producer's sequence is handled in coordination.state.chunks; here is all
the rest: first contact, a new epoch, duplicates, gaps. Plus producer ids and their expiry by command.
"""

from __future__ import annotations

from coordination.commands import AllocateProducerIds, ExpireProducers
from coordination.kafka_codes import Code
from coordination.state import bounds
from coordination.state.data import StateData
from coordination.state.expiry import not_above
from coordination.state.types import At, Done, Partition, ProducerEntry, Refused, Result

PRODUCER_ID_BLOCK_MAX = 1_000_000  # ids in one AllocateProducerIds
_MASK = (1 << 31) - 1
_HALF = 1 << 30  # a sequence less than this far behind the last one is behind it, not ahead


def own(state: StateData, partition: Partition, producer_id: int, entry: ProducerEntry) -> ProducerEntry:
    """The producer's entry, to be changed: a copy in its place when notes for a snapshot may hold it."""
    if entry.freezes != state.freezes:
        noted = entry
        entry = partition.producers[producer_id] = ProducerEntry(noted.epoch, noted.floor_sequence)
        entry.last_sequence, entry.last_timestamp = noted.last_sequence, noted.last_timestamp
        entry.recent, entry.freezes = noted.recent[:], state.freezes
    return entry


def admit(
    partition: Partition,
    entry: ProducerEntry | None,
    producer_id: int,
    epoch: int,
    sequence: int,
    count: int,
) -> tuple[ProducerEntry | None, int, int]:
    """Decide on a batch that does not simply continue its producer's sequence.

    (entry, 0, base offset) accepts it; (None, error, base offset) answers it without appending: error 0
    with the first base offset for a remembered duplicate, an error with -1 otherwise.
    """
    if entry is None:  # no state, or no state any more: any sequence may begin (KIP-360)
        entry = partition.producers[producer_id] = ProducerEntry(epoch, sequence)
        return entry, 0, partition.high_watermark
    if epoch == entry.epoch:
        return None, *_repeated(entry, sequence, count)
    if epoch < entry.epoch:
        return None, int(Code.INVALID_PRODUCER_EPOCH), -1
    if sequence != 0:
        return None, int(Code.OUT_OF_ORDER_SEQUENCE_NUMBER), -1
    entry.epoch = epoch
    entry.floor_sequence = 0
    del entry.recent[:]
    return entry, 0, partition.high_watermark


def _repeated(entry: ProducerEntry, sequence: int, count: int) -> tuple[int, int]:
    """The answer to a batch of the current epoch out of sequence: (error, base offset)."""
    last_sequence = (sequence + count - 1) & _MASK
    recent = entry.recent
    for place in range(0, len(recent), 2):
        if recent[place] == sequence:
            following = recent[place + 2] if place + 2 < len(recent) else entry.last_sequence + 1
            if (following - 1) & _MASK == last_sequence:
                return 0, recent[place + 1]
            break
    behind = (entry.last_sequence - sequence) & _MASK
    known = (entry.last_sequence - entry.floor_sequence) & _MASK
    if behind < _HALF and count - 1 <= behind <= known and recent and _older(entry, behind):
        return int(Code.DUPLICATE_SEQUENCE_NUMBER), -1
    return int(Code.OUT_OF_ORDER_SEQUENCE_NUMBER), -1


def _older(entry: ProducerEntry, behind: int) -> bool:
    """Whether the sequence that lies `behind` the last one is before every remembered batch."""
    return behind > (entry.last_sequence - entry.recent[0]) & _MASK


def allocate_producer_ids(state: StateData, message: AllocateProducerIds, at: At) -> Result:
    """Reserve ids that nobody else gets. Done's value: the first of `count` consecutive ids."""
    if not 0 < message.count <= PRODUCER_ID_BLOCK_MAX:
        return Refused(
            Code.INVALID_REQUEST, f"count {message.count}: ask for 1 to {PRODUCER_ID_BLOCK_MAX} producer ids"
        )
    first = state.next_producer_id
    if first + message.count > bounds.PRODUCER_ID_MAX:
        return Refused(Code.POLICY_VIOLATION, f"the cluster has given all producer ids up to {first}")
    state.next_producer_id = first + message.count
    return Done(first)


def expire_producers(state: StateData, message: ExpireProducers, at: At) -> Result:
    """Forget producers that were idle since `idle_since_ms`. Done's value: how many entries went."""
    idle_since_ms = not_above(state, message.idle_since_ms, "producer.id.expiration.ms")
    first = message.first_partition
    end = first + message.partitions if message.partitions else len(state.partitions)
    expired = 0
    for partition in state.partitions[first:end]:
        if partition is None or not partition.producers:
            continue
        idle = [
            producer_id
            for producer_id, entry in partition.producers.items()
            if entry.last_timestamp < idle_since_ms and not _in_transaction(partition, producer_id)
        ]
        for producer_id in idle:
            del partition.producers[producer_id]
        expired += len(idle)
    return Done(expired)


def _in_transaction(partition: Partition, producer_id: int) -> bool:
    return partition.transactions is not None and producer_id in partition.transactions.open
