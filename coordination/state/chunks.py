"""CommitChunk: the hot path. Every agent runs it for every record batch of the whole cluster.

Result: `ChunkCommitted`. The loop therefore makes no object per batch, reads columns, and looks only
once at each thing; tests/bench/bench_apply.py says what it costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from coordination.commands import CommitChunk, ForgetChunks
from coordination.kafka_codes import Code
from coordination.state import bounds, companions, transaction_batches
from coordination.state.data import StateData
from coordination.state.levels import COMPANIONS, TRANSACTIONS
from coordination.state.producers import own
from coordination.state.slices import ROW, SliceIndex
from coordination.state.spans import begin as begin_span
from coordination.state.transaction_batches import SEQUENCE_MASK
from coordination.state.types import At, ChunkCommitted, Done, Partition, ProducerEntry, Refused, Result
from objectstore import native
from objectstore.naming import ChunkId

Rows = Iterable[tuple[int, int, int, int, int, int, int, int]]
Said = tuple[list[int], list[int], list[int], list[int], list[int], list[int], list[int]]
Columns = tuple[list[int], list[int], list[int], list[int], list[int], list[int], list[int], list[int]]
Partitions = list[Partition | None] | dict[int, Partition | None]

BOUND_ANEW = int(Code.NOT_ENOUGH_REPLICAS)
"""Of a batch whose topic was bound to another schema since it was judged, or of which a part has no place any
more (companions.py): clients send it again."""
_UNKNOWN = int(Code.UNKNOWN_TOPIC_OR_PARTITION)
_FULL = int(Code.UNKNOWN_SERVER_ERROR)  # of a partition whose offsets are used up
REMEMBERED = 2 * 5  # numbers in ProducerEntry.recent: five batches, as Kafka's NUM_BATCHES_TO_RETAIN

_following: Any = None
try:
    native.ask()
    from coordination.state import _appending

    _appending.bind(Partition, ProducerEntry, SliceIndex, bounds.OFFSET_MAX, REMEMBERED)
except ImportError:  # nobody compiled it here, or it is off: `_append` does the same, at its price
    pass
else:
    _following = _appending.append_following

NATIVE = _following is not None
"""Whether batches that simply follow are appended by the native walk (_appending.c)."""


class _Walk:
    """How far the batches of a chunk are appended."""

    __slots__ = ("before", "position", "rows")

    def __init__(self, position: int) -> None:
        self.position = position  # in the chunk, of the next batch
        self.before: Partition | None = None  # what the batch before it was appended to
        self.rows = 0  # of the index that were written


def commit_chunk(state: StateData, message: CommitChunk, at: At) -> Result:
    """Give the chunk's batches their offsets. Refused whole when malformed or out of the author's order."""
    columns = _columns(message)
    handles, number = columns[0], message.number
    transaction = message.transaction[:] if state.feature_level >= TRANSACTIONS else []
    leaders = message.companion_of if state.feature_level >= COMPANIONS else ()
    refusal = _malformed(message, columns, len(state.partitions), transaction)
    if not refusal and number < at.author.next_chunk_number:
        refusal = f"number below {at.author.next_chunk_number}, which this incarnation has passed"
    refusal = f"chunk {number}: {refusal}" if refusal else None
    refusal = refusal or (companions.malformed(message, handles, transaction) if leaders else None)
    if refusal:
        return Refused(Code.INVALID_REQUEST, refusal)
    at.author.next_chunk_number = number + 1
    late = _bound_since(state, message.judged_revision, handles)
    if leaders:
        late |= companions.held_up(state, message, handles, late)
    partitions = {h: None if h in late else state.partitions[h] for h in handles} if late else None
    answer = ChunkCommitted([0] * len(handles), [])
    walk, rows = _Walk(message.first_position), (*columns, transaction or [0] * len(handles))
    if leaders:
        _append_apart(state, partitions or state.partitions, rows, walk, at, answer, leaders)
    elif partitions or _following is None:
        _append(state, partitions or state.partitions, zip(*rows, strict=True), walk, at, answer)
    else:
        _append_natively(state, rows, walk, at, answer)
    references = walk.rows
    for place in [place for place, handle in enumerate(handles) if handle in late] if late else ():
        answer.errors[place] = BOUND_ANEW
    if leaders:
        references += companions.append(state, message, transaction, at, answer)
    state.chunks.add(ChunkId(at.author.incarnation, number), references, at.now_ms)
    at.touched += handles
    return answer


def _bound_since(state: StateData, judged_revision: int, handles: Sequence[int]) -> dict[int, None]:
    """Partitions whose topic was bound to another schema after the chunk's records were judged."""
    if judged_revision >= state.bound_revision:  # nearly always, and 0 below JUDGED_BATCHES
        return {}
    known = ((handle, state.partitions[handle]) for handle in handles)
    return {h: None for h, one in known if one is not None and one.topic.bound_revision > judged_revision}


def _columns(message: CommitChunk) -> Said:
    """What the chunk says by batch, as lists, once: protobuf's own are slow, and are gone over often."""
    batches = message.partition[:], message.length[:], message.offsets[:], message.max_timestamp_ms[:]
    if producers := message.producer_id[:]:
        return *batches, producers, message.producer_epoch[:], message.base_sequence[:]
    none = [-1] * len(batches[0])
    return *batches, none, none, none


def _append_natively(state: StateData, columns: Columns, walk: _Walk, at: At, answer: ChunkCommitted) -> None:
    """As `_append`, natively, but for batches that need a decision: twice as many each time it is called."""
    place, by_hand, count = 0, 1, len(columns[0])
    while True:
        place, walk.position, walk.before, written = _following(
            state.partitions, columns, place, walk.position, walk.before, state.chunks.next_serial,
            state.freezes, at.now_ms, answer.base_offsets,
        )  # fmt: skip
        walk.rows += written
        if place >= count:
            return
        rows = zip(*(column[place : place + by_hand] for column in columns), strict=True)
        _append(state, state.partitions, rows, walk, at, answer)
        place, by_hand = place + by_hand, by_hand * 2


def _append(
    state: StateData, partitions: Partitions, rows: Rows, walk: _Walk, at: At, answer: ChunkCommitted
) -> None:
    """Append each batch to its partition or note its error."""
    serial, pack, mask, written = state.chunks.next_serial, ROW.pack, SEQUENCE_MASK, 0
    offset_max, note_base = bounds.OFFSET_MAX, answer.base_offsets.append
    position, previous = walk.position, walk.before
    for handle, length, count, newest, producer_id, epoch, sequence, part in rows:
        start, position, before, previous = position, position + length, previous, None
        partition = partitions[handle]
        if partition is None or (end := (base := partition.high_watermark) + count) > offset_max:
            _refuse(answer, _UNKNOWN if partition is None else _FULL, -1)
            continue
        if producer_id >= 0:
            entry = partition.producers.get(producer_id)
            follows = entry and epoch == entry.epoch and sequence == (entry.last_sequence + 1) & mask
            if part or not follows or partition.transactions is not None:
                batch = (producer_id, epoch, sequence, count)
                entry, error, known_base = transaction_batches.admit(state, partition, entry, batch, part)
                if entry is None:
                    _refuse(answer, error, known_base)
                    continue
            assert entry is not None, "a batch that follows has one before it"
            if entry.freezes != state.freezes:
                entry = own(state, partition, producer_id, entry)
            if len(recent := entry.recent) == REMEMBERED:
                del recent[:2]
            recent.append(sequence)
            recent.append(base)
            entry.last_sequence, entry.last_timestamp = (sequence + count - 1) & mask, at.now_ms
            if part:
                transaction_batches.written(state, partition, producer_id, base, at)
        note_base(base)
        partition.high_watermark, slices, previous = end, partition.slices, partition
        if partition is before:
            slices.extend_last(end, length, newest)
            continue
        if partition.begins_span:
            begin_span(partition, base)
        slices.rows += pack(end, serial, start, length, newest)
        slices.size_bytes += length
        written += 1
    walk.position, walk.before, walk.rows = position, previous, walk.rows + written


def _append_apart(
    state: StateData,
    partitions: Partitions,
    columns: Columns,
    walk: _Walk,
    at: At,
    answer: ChunkCommitted,
    leaders: Sequence[int],
) -> None:
    """`_append` of the batches that go with no other; those that do are refused for now."""
    rows, position = zip(*columns, strict=True), walk.position
    for goes_along, run in groupby(zip(rows, leaders, strict=True), key=lambda one: one[1] > 0):
        batches = [row for row, _ in run]
        if goes_along:
            for _ in batches:
                _refuse(answer, companions.ALONE, -1)
        else:
            walk.position, walk.before = position, None
            _append(state, partitions, batches, walk, at, answer)
        position += sum(row[1] for row in batches)


def _refuse(answer: ChunkCommitted, error: int, base_offset: int) -> None:
    if not error:
        answer.duplicates.append(len(answer.base_offsets))
    answer.errors[len(answer.base_offsets)] = error
    answer.base_offsets.append(base_offset)


def _malformed(message: CommitChunk, columns: Said, known: int, transaction: Sequence[int]) -> str | None:
    handles, lengths, offsets, newest, producers, epochs, sequences = columns
    count = len(handles)
    if not count or not count == len(lengths) == len(offsets) == len(newest):
        return f"columns of different lengths or none ({count} partitions)"
    if not count == len(producers) == len(epochs) == len(sequences):
        return f"producer columns do not have {count} elements"
    if max(handles) >= known:
        return f"partition handle {max(handles)} was never given (next: {known})"
    if 0 in offsets:
        return "a batch without offsets"
    if transaction and (len(transaction) != count or not message.producer_id or max(transaction) > 2):
        return f"the transaction column does not fit {count} batches with producers"
    if not bounds.CHUNK_NUMBER.hold(message.number + 1):
        return "nothing could come after the highest number there is"
    end = message.first_position + sum(lengths)
    if not bounds.POSITION.hold(end):
        return f"batches end at {end}, no row holds more than {bounds.POSITION.high}"
    if end > message.size:
        return f"batches end at {end}, beyond the object's {message.size} bytes"
    return None


def forget_chunks(state: StateData, message: ForgetChunks, at: At) -> Result:
    """Drop deleted chunks from the garbage. Done's value: how many were in it."""
    return Done(state.chunks.forget(ChunkId(c.incarnation, c.number) for c in message.chunks))
