"""Batches that go with another one of their chunk: appended if and only if that one was.

That one is their leader. So what a producer's batch is parted into (agent/kafka/produce) is there as a whole
or not at all, whatever its sequence, its epoch and its transaction come to. A leader that is refused, or was
there already, has no companion appended. Where the companion could not be appended, for its partition is
gone, full or bound anew, neither is the leader, nor anything else for the leader's partition in this chunk:
what stands behind it must not come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from coordination.commands import CommitChunk
from coordination.kafka_codes import Code
from coordination.state import bounds, transaction_batches
from coordination.state.data import StateData
from coordination.state.slices import ROW
from coordination.state.spans import begin as begin_span
from coordination.state.types import At, ChunkCommitted, Partition

ALONE = int(Code.INVALID_REQUEST)
"""Of a companion whose leader was not appended. Nobody waits for it."""


def malformed(message: CommitChunk, handles: Sequence[int], transaction: Sequence[int]) -> str | None:
    """Why the column `companion_of` cannot be meant; None when it can. The other columns are sound."""
    leaders, said = message.companion_of, f"chunk {message.number}: companion_of"
    if len(leaders) != len(handles):
        return f"{said} has {len(leaders)} elements for {len(handles)} batches"
    for place, leader in enumerate(leaders):
        if not leader:
            if place and leaders[place - 1] and handles[place - 1] == handles[place]:
                return f"{said}: batch {place} of partition {handles[place]} stands behind a companion"
            continue
        if leader > len(handles) or leaders[leader - 1] or handles[leader - 1] == handles[place]:
            return f"{said}: batch {place} cannot go with batch {leader - 1}"
        if (message.producer_id and message.producer_id[place] >= 0) or (transaction and transaction[place]):
            return f"{said}: batch {place} has a producer or a transaction of its own"
    if max(Counter(filter(None, leaders)).values(), default=0) > 1:
        return f"{said}: a batch has more than one companion"
    return None


def held_up(
    state: StateData, message: CommitChunk, handles: Sequence[int], late: dict[int, None]
) -> dict[int, None]:
    """Partitions of leaders whose companion cannot be appended. `late`: those bound anew."""
    wanted: Counter[int] = Counter()
    for handle, offsets in zip(handles, message.offsets, strict=True):
        wanted[handle] += offsets
    found: dict[int, None] = {}
    for place, leader in enumerate(message.companion_of):
        if not leader:
            continue
        handle = handles[place]
        partition = state.partitions[handle]
        full = partition is not None and partition.high_watermark + wanted[handle] > bounds.OFFSET_MAX
        if partition is None or full or handle in late:
            found[handles[leader - 1]] = None
    return {handle: None for handle in found if state.partitions[handle] is not None}


def append(
    state: StateData, message: CommitChunk, transaction: Sequence[int], at: At, answer: ChunkCommitted
) -> int:
    """Append those whose leader was appended, and say so in the answer; how many index rows were written."""
    position, references, before = message.first_position, 0, -1
    duplicates = frozenset(answer.duplicates)
    for place, leader in enumerate(message.companion_of):
        start, position = position, position + message.length[place]
        if not leader or answer.errors[leader - 1] or leader - 1 in duplicates:
            continue
        partition = state.partitions[message.partition[place]]
        assert partition is not None, "held_up looked at it"
        base = partition.high_watermark
        answer.errors[place], answer.base_offsets[place] = 0, base
        producer_id = message.producer_id[leader - 1] if transaction and transaction[leader - 1] else -1
        if producer_id >= 0:  # a batch without one is in no transaction, whatever the column says
            transaction_batches.written(state, partition, producer_id, base, at)
        adjoins = before == place - 1 and message.partition[before] == partition.handle
        references += _write(state, partition, message, place, start, adjoins=adjoins)
        before = place
    return references


def _write(
    state: StateData, partition: Partition, message: CommitChunk, place: int, start: int, *, adjoins: bool
) -> int:
    """Put the batch at the partition's end: in a row of its own, or in that of the batch before it."""
    length, newest = message.length[place], message.max_timestamp_ms[place]
    base = partition.high_watermark
    partition.high_watermark = end = base + message.offsets[place]
    if adjoins:
        partition.slices.extend_last(end, length, newest)
        return 0
    if partition.begins_span:
        begin_span(partition, base)
    partition.slices.rows += ROW.pack(end, state.chunks.next_serial, start, length, newest)
    partition.slices.size_bytes += length
    return 1
