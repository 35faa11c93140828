"""Partitions as sections of a snapshot, bounded by bytes: what a step costs, what a reader takes at once."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import cast

from coordination.proto import snapshot_pb2 as pb
from coordination.state.freeze_transactions import encode_partition
from coordination.state.slices import ROW_BYTES
from coordination.state.types import Held, Merged, Partition, ProducerEntry, Skipped, Span

PARTITIONS_PER_STEP = 256  # partitions noted, or encoded, in one step
PRODUCERS_PER_STEP = 2048  # producers encoded in one step
PRODUCERS_NOTED_PER_STEP = 16_384
SECTION_BYTES = 16_384 * ROW_BYTES  # rows and producers of one section, about; what is larger goes in pieces
PRODUCER_BYTES = SECTION_BYTES // PRODUCERS_PER_STEP  # counted for a producer: more than it ever has
SKIPPED_BYTES = 256  # counted for a skipped range, whose text is short
SPAN_BYTES = 24  # counted for a span of a binding: the most that it has
HELD_BYTES = 32  # counted for a range that is held: likewise
# Handle, log start, high watermark, first offset; rows with the live part's bounds; number of producers;
# merged range; transactions, encoded; skipped ranges; spans of bindings; what is held.
FrozenPartition = tuple[
    int,
    int,
    int,
    int,
    bytearray,
    int,
    int,
    int,
    tuple[int, ...] | None,
    bytes,
    tuple[Skipped, ...],
    tuple[Span, ...],
    tuple[Held, ...],
]
NOTED = 13  # of its elements
_MERGED_FIELDS = ("incarnation", "number", *Merged._fields[1:])


class FrozenPartitions:
    """What was noted of many partitions, in their order, and given back once.

    Flat, in blocks of one step: a tuple for each would be an object that the garbage collector looks at, and
    200,000 of them set off full collections, of 15 ms each. A full block is a tuple: the collector goes over
    a list each time, over a tuple of numbers and bytes once. A block is let go of once it was given: all
    together took 27 ms.
    """

    __slots__ = ("_last", "blocks")

    def __init__(self) -> None:
        self.blocks: deque[tuple[object, ...]] = deque()
        self._last: list[object] = []

    def add(self, noted: FrozenPartition) -> None:
        """Behind the others."""
        self._last += noted
        if len(self._last) >= NOTED * PARTITIONS_PER_STEP:
            self._seal()

    def __bool__(self) -> bool:
        return bool(self.blocks or self._last)

    def _seal(self) -> None:
        self.blocks.append(tuple(self._last))
        self._last = []

    def take(self) -> Iterator[FrozenPartition]:
        """All, oldest first; they are gone then."""
        self._seal()
        while self.blocks:
            flat = iter(self.blocks.popleft())
            yield from cast(Iterator[FrozenPartition], zip(*[flat] * NOTED, strict=True))


class FrozenProducers:
    """The producers of all partitions, one after the other. An entry in here is not changed any more:
    apply puts a copy in its place (`producers.own`)."""

    __slots__ = ("entries", "ids")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.entries: list[ProducerEntry] = []

    def note(self, producers: dict[int, ProducerEntry]) -> Iterator[int]:
        """Add a partition's, in steps; each yields how many it added."""
        ids, entries = iter(producers), iter(producers.values())
        while some := list(islice(ids, PRODUCERS_NOTED_PER_STEP)):
            self.ids += some
            self.entries += islice(entries, PRODUCERS_NOTED_PER_STEP)
            yield len(some)


def note_partition(partition: Partition) -> FrozenPartition:
    """What a snapshot says of a partition, its producers aside."""
    slices = partition.slices
    return (
        partition.handle,
        partition.log_start,
        partition.high_watermark,
        slices.first_offset,
        slices.rows,
        slices.head,
        len(slices.rows),
        len(partition.producers),
        _note_merged(partition.merged),
        encode_partition(partition.transactions),
        partition.skipped,
        partition.spans,
        partition.held,
    )


def note_leaving(partition: Partition) -> FrozenPartition:
    """The same of a deleted topic's partition: what it holds until entries to come let go of it."""
    slices = partition.slices
    merged = _note_merged(partition.merged)
    rows = (slices.first_offset, slices.rows, slices.head, len(slices.rows))
    return (partition.handle, 0, 0, *rows, 0, merged, b"", (), (), ())


def _note_merged(merged: Merged | None) -> tuple[int, ...] | None:
    """Incarnation, number and the summary, flat."""
    return None if merged is None else (merged.manifest.incarnation, merged.manifest.number, *merged[1:])


class PartitionSections:
    """Makes the sections, for partitions in the order in which they were noted.

    `in_pieces`: whether one partition may go over several sections; code of level 1 does not know that.
    """

    def __init__(self, producers: FrozenProducers, *, in_pieces: bool) -> None:
        self._producers = producers
        self._in_pieces = in_pieces
        self._taken = 0  # producers

    def of(self, partitions: Iterable[FrozenPartition]) -> Iterator[pb.Section]:
        """Sections of at most PARTITIONS_PER_STEP partitions and of about SECTION_BYTES, as far as may be."""
        group: list[pb.Partition] = []
        size = 0
        for noted in partitions:
            own = _size(noted)
            if group and (len(group) == PARTITIONS_PER_STEP or size + own > SECTION_BYTES):
                yield _section(group)
                group, size = [], 0
            if own > SECTION_BYTES and self._in_pieces:
                yield from self._pieces(noted)
                continue
            group.append(self._whole(noted))
            size += own
        if group:
            yield _section(group)

    def _whole(self, noted: FrozenPartition) -> pb.Partition:
        rows, head, end, count = noted[4:8]
        message = _bare(noted)
        message.rows = bytes(rows[head:end])
        if count:
            message.producers = self._take(count).SerializeToString(deterministic=True)
        return message

    def _pieces(self, noted: FrozenPartition) -> Iterator[pb.Section]:
        handle, (rows, head, end, count) = noted[0], noted[4:8]
        yield _section([_bare(noted)])
        for start in range(head, end, SECTION_BYTES):
            piece = bytes(rows[start : min(start + SECTION_BYTES, end)])
            yield pb.Section(partition_rest=pb.PartitionRest(handle=handle, rows=piece))
        for start in range(0, count, PRODUCERS_PER_STEP):
            some = self._take(min(PRODUCERS_PER_STEP, count - start))
            yield pb.Section(partition_rest=pb.PartitionRest(handle=handle, producers=some))

    def _take(self, count: int) -> pb.Producers:
        start, self._taken = self._taken, self._taken + count
        return _message(
            self._producers.ids[start : self._taken], self._producers.entries[start : self._taken]
        )


def _section(group: Sequence[pb.Partition]) -> pb.Section:
    return pb.Section(partitions=pb.PartitionGroup(partitions=group))


def _size(noted: FrozenPartition) -> int:
    _, head, end, count = noted[4:8]
    rest = (
        len(noted[9])
        + len(noted[10]) * SKIPPED_BYTES
        + len(noted[11]) * SPAN_BYTES
        + len(noted[12]) * HELD_BYTES
    )
    return end - head + count * PRODUCER_BYTES + rest


def _bare(noted: FrozenPartition) -> pb.Partition:
    """Everything but rows and producers."""
    merged = noted[8]
    message = pb.Partition(
        handle=noted[0],
        log_start=noted[1],
        high_watermark=noted[2],
        first_offset=noted[3],
        transactions=noted[9],
        skipped=[pb.SkippedRange(**each._asdict()) for each in noted[10]],
        held=[pb.HeldRange(**each._asdict()) for each in noted[12]],
    )
    if merged is not None:
        message.merged.CopyFrom(pb.MergedRange(**dict(zip(_MERGED_FIELDS, merged, strict=True))))
    if noted[11]:
        message.spans.CopyFrom(encode_spans(noted[11]))
    return message


def encode_spans(spans: Sequence[Span]) -> pb.BindingSpans:
    """As columns, each offset as its distance from the one before."""
    offsets, keys, values = zip(*spans, strict=True)
    steps = map(operator.sub, offsets, (0, *offsets))
    return pb.BindingSpans(offset_step=steps, key_schema_id=keys, value_schema_id=values)


def thaw_spans(message: pb.BindingSpans) -> tuple[Span, ...]:
    """The reverse. ValueError for columns of different lengths."""
    columns = zip(
        accumulate(message.offset_step), message.key_schema_id, message.value_schema_id, strict=True
    )
    return tuple(Span(*row) for row in columns)


def _message(ids: Sequence[int], entries: Sequence[ProducerEntry]) -> pb.Producers:
    return pb.Producers(
        producer_id=ids,
        epoch=[entry.epoch for entry in entries],
        last_sequence=[entry.last_sequence for entry in entries],
        floor_sequence=[entry.floor_sequence for entry in entries],
        updated_ms=[entry.last_timestamp for entry in entries],
        remembered=[len(entry.recent) // 2 for entry in entries],
        first_sequence=[number for entry in entries for number in entry.recent[::2]],
        base_offset=[number for entry in entries for number in entry.recent[1::2]],
    )
