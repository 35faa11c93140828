"""A log in a list, for tests of apply: authors append entries, the state applies them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message

from coordination.commands import (
    AddToTransaction,
    AlterClusterConfigs,
    AlterTopicConfigs,
    CommitChunk,
    CommitTransactionOffsets,
    CreateTopic,
    EndTransaction,
    Entry,
    Fence,
    Heartbeat,
    InitTransactions,
    MergedRange,
    RegisterAgent,
    SegmentId,
    SetFeatureLevel,
    SwapSegments,
    command,
)
from coordination.log import LogEntry
from coordination.snapshot import decode, encode
from coordination.state import Applied, ChunkCommitted, Done, Result, State
from coordination.state.agreed_time import APART_MS, ROUNDS, STEP_MS
from coordination.state.data import FEATURE_LEVEL_MAX
from objectstore.naming import MarkerId, marker_as_chunk

START_MS = 1_700_000_000_000
DAY_MS = 86_400_000
A, B = 11, 12
"""The two agents of `script` (conftest.py)."""


def for_good(script: Script, author: int = 0) -> None:
    """Topics that are deleted from now on are not kept."""
    change = AlterTopicConfigs.Change(name="floe.delete.retention.ms", value="0")
    assert script.one(author or A, AlterClusterConfigs(changes=[change])) == Done()


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

    def register(self, author: int, name: str | None = None, level: int = FEATURE_LEVEL_MAX) -> Result:
        """Register the author as an agent. The first one has the cluster begin at its level, as agents do."""
        agent = RegisterAgent(name=name or f"agent-{author}", node_id=-1, feature_min=1, feature_max=level)
        first = not self.state.incarnations and level > self.state.feature_level
        return self.apply(author, agent, *[SetFeatureLevel(level=level)] * first).results[0]

    def sleep(self, milliseconds: int) -> None:
        """Let time pass in which all live agents say so, often enough to be believed."""
        most = milliseconds if len(self.state.live) > 1 else STEP_MS
        while milliseconds > 0:
            self.now_ms += min(milliseconds, most)
            milliseconds -= most
            for _ in range(ROUNDS + 1):
                for author in list(self.state.live):
                    self.apply(author, Heartbeat())
                if len(self.state.live) < 2 or self.state.clock_ms > self.now_ms - APART_MS:
                    break

    def topic(self, author: int, name: str, partitions: int = 1, fill: bytes = b".") -> list[int]:
        """Create a topic; returns its partition handles. Another `fill` gives another id."""
        topic_id = name.encode().ljust(16, fill)[:16]
        if topic_id in self.state.deleted:  # whose id is its own while it can come back
            topic_id = len(self.entries).to_bytes(16, "big")
        result = self.one(author, CreateTopic(name=name, topic_id=topic_id, partitions=partitions))
        assert isinstance(result, Done), result
        return [partition.handle for partition in self.state.topics[name].partitions]

    def commit(
        self, author: int, *batches: tuple[int, ...], timestamps: Sequence[int] = ()
    ) -> ChunkCommitted:
        """Commit a chunk of batches (handle, records) or (handle, records, producer, epoch, sequence).

        They were judged by the bindings of now.
        """
        self.chunks[author] = self.chunks.get(author, 0) + 1
        message = chunk(self.chunks[author], *batches, timestamps=timestamps)
        message.judged_revision = self.state.revision
        result = self.one(author, message)
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


def pair_of(result: Result) -> tuple[int, int]:
    """The producer id and epoch that a command about transactions answers with."""
    assert isinstance(result, Done), result
    assert isinstance(result.value, tuple)
    return result.value[0], result.value[1]


class Producer:
    """A transactional producer of `script`, through one agent. v2 unless told otherwise."""

    def __init__(self, script: Script, author: int, name: str, *, v2: bool = True) -> None:
        self.script, self.author, self.name, self.v2 = script, author, name, v2
        self.pair = (-1, -1)
        self.sequences: dict[int, int] = {}

    def init(self, timeout_ms: int = 60_000, given: tuple[int, int] = (-1, -1)) -> tuple[int, int]:
        """InitProducerId."""
        message = InitTransactions(
            transactional_id=self.name, timeout_ms=timeout_ms, producer_id=given[0], producer_epoch=given[1]
        )
        self.pair = pair_of(self.script.one(self.author, message))
        self.sequences = {}
        return self.pair

    def add(
        self, *handles: int, groups: Sequence[str] = (), fence: Fence | None = None, known: bool = False
    ) -> Result:
        """AddPartitionsToTxn, AddOffsetsToTxn."""
        message = AddToTransaction(
            transactional_id=self.name,
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            partition=handles,
            group=groups,
            fence=fence,
            abortable_known=known,
        )
        return self.script.one(self.author, message)

    def send(self, handle: int, records: int = 1, pair: tuple[int, int] | None = None) -> tuple[int, int]:
        """Produce one batch in a chunk of its own: (code, base offset)."""
        sequence = self.sequences.get(handle, 0)
        number = self.script.chunks[self.author] = self.script.chunks.get(self.author, 0) + 1
        message = chunk(number, (handle, records, *(pair or self.pair), sequence))
        message.transaction.append(2 if self.v2 else 1)
        result = self.script.one(self.author, message)
        assert isinstance(result, ChunkCommitted), result
        if not result.errors[0]:
            self.sequences[handle] = sequence + records
        return result.errors[0], result.base_offsets[0]

    def commit_offsets(self, group: str, *positions: tuple[int, int], **fields: Any) -> Result:
        """TxnOffsetCommit of (handle, offset)."""
        message = CommitTransactionOffsets(
            transactional_id=self.name,
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            group=group,
            generation=fields.get("generation", -1),
            member_id=fields.get("member_id", ""),
            instance_id=fields.get("instance_id"),
            partition=[handle for handle, _ in positions],
            offset=[offset for _, offset in positions],
            adds_group=self.v2,
            fence=fields.get("fence"),
            abortable_known=fields.get("known", False),
        )
        return self.script.one(self.author, message)

    def end(self, *, commit: bool, pair: tuple[int, int] | None = None, **fields: Any) -> Result:
        """EndTxn; in v2 the new pair is taken over when it is answered."""
        producer_id, epoch = pair or self.pair
        message = EndTransaction(
            transactional_id=self.name,
            producer_id=producer_id,
            producer_epoch=epoch,
            commit=commit,
            bumps_epoch=self.v2,
            fence=fields.get("fence"),
            abortable_known=fields.get("known", self.v2),
        )
        result = self.script.one(self.author, message)
        if self.v2 and isinstance(result, Done) and pair is None:
            self.pair, self.sequences = pair_of(result), {}
        return result


def tiles(state: State) -> None:
    """Assert what must hold in every state: slices tile the offsets, references and sums agree."""
    references: dict[int, int] = {}
    for kept in state.deleted_partitions.values():
        assert state.partitions[kept.handle] is None
        assert state.deleted[kept.topic.topic_id].topic is kept.topic
    for partition in (*state.partitions, *state.deleted_partitions.values()):
        if partition is None:
            continue
        slices = partition.slices.plan(0, 1 << 60)
        offset = slices[0].base_offset if slices else partition.high_watermark
        merged = partition.merged
        if merged is not None:
            assert partition.held_start < merged.end_offset == offset == partition.slices.first_offset
            assert merged.manifest not in state.manifest_garbage
        assert partition.log_start <= partition.last_stable <= partition.high_watermark
        start = merged.start_offset if merged is not None else offset
        assert start <= partition.held_start or (merged is not None and not merged.segments)
        ends = [partition.held_start, *(end for _, end, _ in partition.held)]
        assert [begin for begin, _, _ in partition.held] == ends[:-1], "ranges that are held tile"
        assert ends == sorted(set(ends)), "and none is empty"
        assert ends[-1] == partition.log_start
        assert (partition in state.holding.values()) == (
            bool(partition.held) and state.partitions[partition.handle] is partition
        )
        for found in slices:
            assert found.base_offset == offset < found.end_offset
            offset = found.end_offset
        assert offset == partition.high_watermark
        assert partition.slices.size_bytes == sum(found.length for found in slices)
        for serial in partition.slices.serials():
            references[serial] = references.get(serial, 0) + 1
    for leaving in state.leaving.values():
        assert state.partitions[leaving.handle] is None
        assert leaving.merged is None or leaving.merged.manifest not in state.manifest_garbage
        for serial in leaving.slices.serials():
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
    last = partition.slices.holder_ending_at(end_offset)
    if last is not None:
        named = marker_as_chunk(last) if isinstance(last, MarkerId) else last
        message.last_chunk.incarnation, message.last_chunk.number = named
    for author, released in fields.get("released", ()):
        message.released.append(SegmentId(incarnation=author, number=released))
    return message
