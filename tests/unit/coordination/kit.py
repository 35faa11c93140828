"""A log in a list, for tests of apply: authors append entries, the state applies them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message

from coordination.commands import (
    CommitChunk,
    CreateTopic,
    Entry,
    MergedRange,
    RegisterAgent,
    SegmentId,
    SwapSegments,
    command,
)
from coordination.log import LogEntry
from coordination.snapshot import decode, encode
from coordination.state import Applied, ChunkCommitted, Done, Result, State

START_MS = 1_700_000_000_000


class Script:
    """One log and the state it makes. Authors are numbers; each has its own chain."""

    def __init__(self) -> None:
        self.state = State()
        self.entries: list[LogEntry] = []
        self.sequences: dict[int, int] = {}
        self.chunks: dict[int, int] = {}
        self.now_ms = START_MS

    def entry(self, author: int, messages: Sequence[Message], applied: int = 0) -> LogEntry:
        """The author's next entry, not applied yet."""
        self.sequences[author] = self.sequences.get(author, 0) + 1
        revision = (self.entries[-1].revision if self.entries else 0) + 1
        payload = Entry(
            format=1,
            incarnation=author,
            sequence=self.sequences[author],
            proposed_ms=self.now_ms,
            applied_revision=applied,
            commands=[command(message) for message in messages],
        ).SerializeToString()
        made = LogEntry(revision, author, self.sequences[author], payload)
        self.entries.append(made)
        return made

    def apply(self, author: int, *messages: Message, applied: int = 0) -> Applied:
        """Append an entry and apply it."""
        return self.state.apply(self.entry(author, messages, applied))

    def one(self, author: int, message: Message, applied: int = 0) -> Result:
        """The result of a single command."""
        (result,) = self.apply(author, message, applied=applied).results
        return result

    def register(self, author: int, name: str | None = None, level: int = 1) -> Result:
        """Register the author as an agent."""
        agent = RegisterAgent(name=name or f"agent-{author}", node_id=-1, feature_min=1, feature_max=level)
        return self.one(author, agent)

    def topic(self, author: int, name: str, partitions: int = 1) -> list[int]:
        """Create a topic; returns its partition handles."""
        topic_id = name.encode().ljust(16, b".")[:16]
        result = self.one(author, CreateTopic(name=name, topic_id=topic_id, partitions=partitions))
        assert isinstance(result, Done), result
        return [partition.handle for partition in self.state.topics[name].partitions]

    def commit(
        self, author: int, *batches: tuple[int, ...], timestamps: Sequence[int] = ()
    ) -> ChunkCommitted:
        """Commit a chunk of batches (handle, records) or (handle, records, producer, epoch, sequence)."""
        self.chunks[author] = self.chunks.get(author, 0) + 1
        result = self.one(author, chunk(self.chunks[author], *batches, timestamps=timestamps))
        assert isinstance(result, ChunkCommitted), result
        return result

    def through_snapshot(self) -> None:
        """Go on from a snapshot of the state."""
        self.state = decode(encode(self.state))

    def replayed(self) -> State:
        """The state that another agent gets from the same log."""
        state = State()
        for entry in self.entries:
            state.apply(entry)
        return state


def chunk(number: int, *batches: tuple[int, ...], timestamps: Sequence[int] = ()) -> CommitChunk:
    """Batches (handle, records) or (handle, records, producer, epoch, sequence), 100 bytes each."""
    message = CommitChunk(number=number, size=1000 + 100 * len(batches), first_position=64)
    idempotent = any(len(batch) > 2 for batch in batches)
    for place, batch in enumerate(batches):
        message.partition.append(batch[0])
        message.length.append(100)
        message.offsets.append(batch[1])
        message.max_timestamp_ms.append(timestamps[place] if timestamps else START_MS)
        if idempotent:
            producer, epoch, sequence = batch[2:] if len(batch) > 2 else (-1, -1, -1)
            message.producer_id.append(producer)
            message.producer_epoch.append(epoch)
            message.base_sequence.append(sequence)
    return message


def tiles(state: State) -> None:
    """Assert what must hold in every state: slices tile the offsets, references and sums agree."""
    references: dict[int, int] = {}
    for partition in state.partitions:
        if partition is None:
            continue
        slices = partition.slices.plan(0, 1 << 60)
        offset = slices[0].base_offset if slices else partition.high_watermark
        merged = partition.merged
        if merged is not None:
            assert partition.log_start < merged.end_offset == offset == partition.slices.first_offset
            assert merged.manifest not in state.manifest_garbage
        assert partition.log_start <= partition.high_watermark
        start = merged.start_offset if merged is not None else offset
        assert start <= partition.log_start or (merged is not None and not merged.segments)
        for found in slices:
            assert found.base_offset == offset < found.end_offset
            offset = found.end_offset
        assert offset == partition.high_watermark
        assert partition.slices.size_bytes == sum(found.length for found in slices)
        for serial in partition.slices.serials():
            references[serial] = references.get(serial, 0) + 1
    assert references == {serial: c.references for serial, c in state.chunks.by_serial.items()}


def swap(state: State, handle: int, number: int, end_offset: int, **fields: Any) -> SwapSegments:
    """The swap that merges one partition's rows up to the one that ends at `end_offset` into one segment."""
    partition = state.partitions[handle]
    assert partition is not None
    merged = partition.merged
    start = merged.start_offset if merged is not None else partition.slices.first_offset
    message = SwapSegments(partition=handle, number=number)
    message.merged.MergeFrom(
        MergedRange(
            start_offset=fields.get("start_offset", start),
            end_offset=end_offset,
            size_bytes=10 * (end_offset - start),
            records=end_offset - start,
            segments=fields.get("segments", 1),
            manifest_bytes=100,
            max_timestamp_ms=START_MS,
            first_end_offset=end_offset,
            first_size_bytes=10 * (end_offset - start),
            first_max_timestamp_ms=START_MS,
            first_dirty_ms=START_MS,
        )
    )
    if merged is not None:
        message.expected.incarnation, message.expected.number = merged.manifest[0], merged.manifest[2]
    last = partition.slices.chunk_ending_at(end_offset)
    if last is not None:
        message.last_chunk.incarnation, message.last_chunk.number = last
    for author, released in fields.get("released", ()):
        message.released.append(SegmentId(incarnation=author, number=released))
    return message
