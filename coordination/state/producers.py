"""Idempotent producers: which batch may be appended, as Kafka decides it (ProducerAppendInfo, KIP-98, 360).

The batch that continues its producer's sequence is handled in coordination.state.chunks; here is all
the rest: first contact, a new epoch, duplicates, gaps. Plus producer ids and their expiry by command.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from coordination.broker_configs import integer
from coordination.commands import AllocateProducerIds, ExpireProducers
from coordination.kafka_codes import Code
from coordination.state import bounds
from coordination.state.data import StateData
from coordination.state.expiry import not_above
from coordination.state.levels import BOUNDED_PRODUCERS, NAMED_PRODUCERS
from coordination.state.types import At, Done, Partition, ProducerEntry, Refused, Result

PRODUCER_ID_BLOCK_MAX = 1_000_000  # ids in one AllocateProducerIds
PRODUCERS_PER_PARTITION_MAX = 65_536  # remembered by one partition: a larger table grows in steps that stall
LOOKED_AT_FOR_ROOM = 1024  # of the producers that stand first, when some must go
ACTIVE_MS = 15 * 60_000  # who wrote so lately may send a batch again: as many others are looked at first
FORGOTTEN_SHARE = 4  # of those looked at, one in so many goes at once
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


def make_room(state: StateData, partition: Partition) -> None:
    """Before a producer is added to the partition: forget the longest idle ones when it has its most.

    As after their expiry: the next batch of such a producer is taken whatever its sequence (KIP-360).
    """
    if state.feature_level < BOUNDED_PRODUCERS:
        return
    most, count = PRODUCERS_PER_PARTITION_MAX, len(partition.producers)
    of_cluster = integer(state.cluster_configs, "floe.producers.max")
    if state.producer_count >= of_cluster:  # each partition keeps its share, whatever others have
        most = min(most, max(1, of_cluster // state.partition_count))
    if count < most:
        return
    if count <= LOOKED_AT_FOR_ROOM or not _forget_some(state, partition, state.clock_ms - ACTIVE_MS):
        _forget_some(state, partition, None)


def _forget_some(state: StateData, partition: Partition, before_ms: int | None) -> bool:
    """Of those that stand first, forget the longest idle (since `before_ms`); the others go to the end.

    So whoever came first and is at work, or in a transaction, is not looked at again and again. Whether any
    was forgotten.
    """
    first = list(islice(partition.producers.items(), LOOKED_AT_FOR_ROOM))
    idle = [
        (entry.last_timestamp, producer_id)
        for producer_id, entry in first
        if (before_ms is None or entry.last_timestamp < before_ms)
        and not in_transaction(partition, producer_id)
    ]
    idle.sort()
    gone = {producer_id for _, producer_id in idle[: max(1, len(first) // FORGOTTEN_SHARE)]}
    for producer_id, entry in first:
        del partition.producers[producer_id]
        if producer_id not in gone:
            partition.producers[producer_id] = entry
    state.producer_count -= len(gone)
    return bool(gone)


def expire_producers(state: StateData, message: ExpireProducers, at: At) -> Result:
    """Forget producers that were idle since `idle_since_ms`. Done's value: how many entries went."""
    idle_since_ms = not_above(state, message.idle_since_ms, "producer.id.expiration.ms")
    if state.feature_level >= NAMED_PRODUCERS and (message.partition or message.producer_id):
        if len(message.partition) != len(message.producer_id):
            return Refused(Code.INVALID_REQUEST, "ExpireProducers: columns of different lengths")
        names = list(zip(message.partition, message.producer_id, strict=True))
    else:
        names = list(_idle_in(state, message.first_partition, message.partitions, idle_since_ms))
    before = state.producer_count
    for handle, producer_id in names:
        partition = state.partitions[handle] if handle < len(state.partitions) else None
        if partition is not None and is_idle(partition, producer_id, idle_since_ms):
            del partition.producers[producer_id]
            state.producer_count -= 1
    return Done(before - state.producer_count)


def _idle_in(state: StateData, first: int, partitions: int, idle_since_ms: int) -> Iterator[tuple[int, int]]:
    """Handle and id of the idle producers in a range of partitions."""
    end = first + partitions if partitions else len(state.partitions)
    for partition in state.partitions[first:end]:
        if partition is not None:
            ids = (one for one in partition.producers if is_idle(partition, one, idle_since_ms))
            yield from ((partition.handle, producer_id) for producer_id in ids)


def is_idle(partition: Partition, producer_id: int, idle_since_ms: int) -> bool:
    """Whether the partition remembers a producer that wrote nothing since then and is in no transaction."""
    entry = partition.producers.get(producer_id)
    if entry is None or entry.last_timestamp >= idle_since_ms:
        return False
    return not in_transaction(partition, producer_id)


def in_transaction(partition: Partition, producer_id: int) -> bool:
    """Whether the producer has a transaction open that wrote to the partition."""
    return partition.transactions is not None and producer_id in partition.transactions.open
