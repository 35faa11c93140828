"""The state that a new log begins with: the source's, and what chunks have that it does not know.

All of it is done by the ordinary apply, with entries that no log holds: a found chunk is committed by its own
author, as the lost log did, so that producers' sequences drop what is there already. Then all are fenced.
Which batch apply refused in the lost log too nobody knows; what had a sequence that does not fit, and came in
no other chunk, is copied and appended without it: rather a record too many than one too few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from google.protobuf.message import Message

from coordination.commands import (
    ENTRY_FORMAT,
    AbortTransaction,
    CommitChunk,
    ConfigEntry,
    CreateTopic,
    Entry,
    FenceIncarnation,
    RegisterAgent,
    UndeleteTopic,
    command,
)
from coordination.kafka_codes import Code
from coordination.log import LogEntry
from coordination.restore.found import (
    FoundBatch,
    FoundChunk,
    Reader,
    Unusable,
    missing_chunks,
    unknown_chunks,
)
from coordination.restore.merged import merged_of
from coordination.restore.order import ordered
from coordination.restore.report import PartitionFound, Report, TopicBack
from coordination.restore.source import CannotRestore, Source
from coordination.restore.stages import Stages
from coordination.state import ChunkCommitted, Refused, Result, State
from coordination.state.deleted import existing
from coordination.state.restored import may_have_given, settle
from coordination.state.transaction_batches import IMPLICIT
from objectstore.chunk import HEADER_SIZE, ChunkWriter, EncodedChunk
from objectstore.naming import ChunkId, chunk_key
from objectstore.store import ObjectStore

RESTORER = "floe-restore"
LOST = "floe-lost-"
RESCUED = "floe-restored-"
RESCUED_PARTITIONS_MAX = 10_000  # of one topic
MOVES_AT_ONCE = 100  # tables of one entry
COPY_BYTES_MAX = 64 << 20  # of one chunk of copies
_REPEATED = int(Code.DUPLICATE_SEQUENCE_NUMBER)
_DELETED = int(Code.UNKNOWN_TOPIC_OR_PARTITION)
_Sequence = tuple[int, int, int, int]  # partition handle, producer id, epoch, base sequence


@dataclass(slots=True)
class Restored:
    """The state at its last revision, and the objects that it refers to and that are to be put before it."""

    state: State
    report: Report
    copies: list[EncodedChunk] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Means:
    """What a restore has for both of its plans. `restorer`: an incarnation that no log ever had."""

    store: ObjectStore
    reader: Reader
    cluster_id: bytes
    restorer: int
    stages: Stages


async def rebuild(means: Means, source: Source, report: Report, moves: Sequence[Message] = ()) -> Restored:
    """What a new log begins with. `moves`: of tables.

    Raises CannotRestore, StoreError. Changes nothing in the bucket.
    """
    return await _Rebuilding(means, source, report).run(moves)


class _Rebuilding:
    def __init__(self, means: Means, source: Source, report: Report) -> None:
        self._means, self._store, self._state = means, means.store, source.state
        self._revision, self._restorer, self._report = source.begin, means.restorer, report
        self._certain_ms = source.certain_ms
        self._found: dict[int, PartitionFound] = {}
        self._seen: dict[_Sequence, tuple[int, ...]] = {}  # what found chunks brought → checksums
        self._left: list[tuple[ChunkId, FoundBatch]] = []
        self._highest_producer_id = -1
        partitions = [existing(self._state, handle) for handle in range(len(self._state.partitions))]
        self._ends = [0 if each is None else each.high_watermark for each in partitions]

    async def run(self, moves: Sequence[Message]) -> Restored:
        state, report, stages = self._state, self._report, self._means.stages
        report.missing_chunks = await missing_chunks(self._store, state)
        await self._look_at_merged()
        unknown = await unknown_chunks(self._store, state, self._restorer)
        stages.over("chunks listed")
        chunks = self._whole(await self._means.reader.read(unknown))
        report.chunks_found, report.behind_s = len(chunks), _behind_s(chunks, self._certain_ms)
        stages.over("chunks read")
        self._apply(self._restorer, self._registration(RESTORER))
        for at in range(0, len(moves), MOVES_AT_ONCE):
            self._must(self._restorer, *moves[at : at + MOVES_AT_ONCE])
        self._rescue(chunks)
        self._undelete(chunks)
        for chunk in ordered(chunks):
            self._commit(chunk)
        copies = await self._copy()
        self._abort()
        self._fence()
        report.positions = settle(state, self._highest_producer_id)
        for each in self._found.values():
            partition = state.topics[each.topic].partitions[each.partition]
            each.end = partition.high_watermark
        report.partitions = [self._found[handle] for handle in sorted(self._found)]
        stages.over("chunks appended")
        return Restored(state, report, copies)

    async def _look_at_merged(self) -> None:
        """What lies in segments is at its offsets, whatever the archive has: it is there, or told of."""
        found, report = await merged_of(self._store, self._state), self._report
        report.missing_merged, report.manifests_unread = found.missing, found.unread
        report.damaged += found.damaged
        self._means.stages.over("manifests read")

    def _whole(self, read: Sequence[FoundChunk | Unusable]) -> list[FoundChunk]:
        found: list[FoundChunk] = []
        for chunk in read:
            if isinstance(chunk, Unusable):
                self._report.damaged.append((chunk.key, chunk.error))
            else:
                found.append(chunk)
                ids = (batch.producer_id for batch in chunk.batches)
                given = [each for each in ids if may_have_given(self._state, each)]
                self._highest_producer_id = max([self._highest_producer_id, *given])
        return found

    # Entries.

    def _apply(self, author: int, *messages: Message) -> Sequence[Result]:
        """One entry of this author, behind everything that was. Nobody's clock is moved by it."""
        state = self._state
        known = state.incarnations.get(author)
        sequence = known.sequence + 1 if known is not None else 1
        said_ms = known.last_proposed_ms if known is not None else state.clock_ms
        content = Entry(
            format=ENTRY_FORMAT, incarnation=author, sequence=sequence, proposed_ms=said_ms,
            applied_revision=state.revision, commands=[command(message) for message in messages],
        )  # fmt: skip
        self._revision += 1
        entry = LogEntry(self._revision, author, sequence, content.SerializeToString())
        return state.apply(entry).results

    def _must(self, author: int, *messages: Message) -> Sequence[Result]:
        """The same; raises CannotRestore where one is refused."""
        results = self._apply(author, *messages)
        for result in results:
            if isinstance(result, Refused):
                raise CannotRestore(f"the restored state refuses what the restore needs: {result.message}")
        return results

    def _registration(self, name: str) -> RegisterAgent:
        level = self._state.feature_level
        return RegisterAgent(name=name, node_id=-1, feature_min=level, feature_max=level, joining=True)

    # Chunks.

    def _rescue(self, chunks: Sequence[FoundChunk]) -> None:
        """Handles that the state never gave are of topics whose creation is not archived: one topic has them.

        Handles are given in order, so its partitions have just these; their names nobody knows.
        """
        handles = [batch.handle for chunk in chunks for batch in chunk.batches]
        first = len(self._state.partitions)
        more = max(handles, default=-1) + 1 - first
        if more <= 0:
            return
        if more > RESCUED_PARTITIONS_MAX:
            raise CannotRestore(
                f"chunks name {more} partitions that the archive does not know, at most "
                f"{RESCUED_PARTITIONS_MAX} can be kept apart: is this the right log's archive?"
            )
        name = f"{RESCUED}{self._revision:016x}"
        made = CreateTopic(
            name=name,
            topic_id=blake2b(f"{name} {self._restorer}".encode(), digest_size=16).digest(),
            partitions=more,
            configs=[
                ConfigEntry(name="retention.ms", value="-1"),
                ConfigEntry(name="floe.table.enabled", value="false"),
            ],
        )
        self._must(self._restorer, made)
        self._report.rescued_topic = name
        self._report.rescued_records = sum(
            batch.records for chunk in chunks for batch in chunk.batches if batch.handle >= first
        )

    def _undelete(self, chunks: Sequence[FoundChunk]) -> None:
        """Deleted topics of which chunks have records come back: that may have been done behind the archive.

        Transactions have no archived end there and are aborted: for their records alone none does.
        """
        records = Counter[int]()
        for batch in (batch for chunk in chunks for batch in chunk.batches if not batch.transactional):
            records[batch.handle] += batch.records
        for topic_id, kept in list(self._state.deleted.items()):
            count = sum(records[each.handle] for each in kept.topic.partitions)
            if not count:
                continue
            told = TopicBack(kept.topic.name, count)
            self._report.undeleted.append(told)
            for name in (kept.topic.name, f"{RESCUED}{topic_id.hex()}"):
                (result,) = self._apply(self._restorer, UndeleteTopic(topic_id=topic_id, name=name))
                if not isinstance(result, Refused):
                    told.name, told.error = name, ""
                    break
                told.error = told.error or result.message

    def _commit(self, chunk: FoundChunk) -> None:
        author = chunk.id.incarnation
        if author not in self._state.incarnations:
            self._must(author, self._registration(f"{LOST}{author:016x}"))
        (result,) = self._apply(
            author, commit_of(chunk.id.number, chunk.size, chunk.batches, self._state.revision)
        )
        if isinstance(result, Refused):
            self._report.damaged.append((chunk_key(chunk.id), result.message))
            return
        assert isinstance(result, ChunkCommitted), f"a chunk's commit answered with {result!r}"
        repeated = frozenset(result.duplicates)
        for place, (batch, error) in enumerate(zip(chunk.batches, result.errors, strict=True)):
            self._judge(chunk.id, batch, error, repeated=place in repeated)

    def _judge(self, chunk: ChunkId, batch: FoundBatch, error: int, *, repeated: bool) -> None:
        """What became of a batch: appended, there already, or left for the end."""
        if error == _DELETED:
            self._report.deleted_records += batch.records
            return
        told = self._of(batch)
        turn = (batch.handle, batch.producer_id, batch.epoch, batch.sequence)
        there = repeated or error == _REPEATED
        if batch.transactional and not there:
            told.unended += batch.records
        elif not error and not repeated:
            told.found += batch.records
            if batch.producer_id < 0:
                told.plain += batch.records
            else:
                self._seen[turn] = (batch.crc,)
        elif there and batch.crc in self._seen.get(turn, (batch.crc,)):
            told.repeated += batch.records
        else:
            self._left.append((chunk, batch))

    def _of(self, batch: FoundBatch) -> PartitionFound:
        known = self._found.get(batch.handle)
        if known is None:
            partition = self._state.partitions[batch.handle]
            assert partition is not None, "apply looked at it"
            end = self._ends[batch.handle] if batch.handle < len(self._ends) else 0
            known = PartitionFound(partition.topic.name, partition.index, end)
            self._found[batch.handle] = known
        return known

    async def _copy(self) -> list[EncodedChunk]:
        """Append what is left and came in no other chunk, without its sequence; the chunks to be put."""
        copies: list[EncodedChunk] = []
        writer, batches = ChunkWriter(), list[FoundBatch]()
        for chunk, batch in self._left:
            turn = (batch.handle, batch.producer_id, batch.epoch, batch.sequence)
            seen = self._seen.get(turn, ())
            if batch.crc in seen:
                self._of(batch).repeated += batch.records
                continue
            self._seen[turn] = (*seen, batch.crc)
            content = await self._store.get_range(chunk_key(chunk), batch.position, batch.length)
            if batches and writer.bytes + len(content) > COPY_BYTES_MAX:
                copies.append(self._append_copies(writer, batches, len(copies)))
                writer, batches = ChunkWriter(), []
            writer.add(batch.handle, content)
            batches.append(batch._replace(producer_id=-1, epoch=-1, sequence=-1))
        if batches:
            copies.append(self._append_copies(writer, batches, len(copies)))
        return copies

    def _append_copies(self, writer: ChunkWriter, batches: Sequence[FoundBatch], number: int) -> EncodedChunk:
        encoded = writer.finish(self._means.cluster_id, ChunkId(self._restorer, number))
        in_order = [batches[ticket] for ticket in writer.order()]
        (result,) = self._must(
            self._restorer, commit_of(number, encoded.size, in_order, self._state.revision)
        )
        assert isinstance(result, ChunkCommitted), f"a chunk's commit answered with {result!r}"
        for batch, error in zip(in_order, result.errors, strict=True):
            if error:
                raise CannotRestore(f"records of partition {batch.handle} cannot be appended: error {error}")
            told = self._of(batch)
            told.found += batch.records
            told.unsequenced += batch.records
        return encoded

    # The end of what was.

    def _abort(self) -> None:
        """End whatever transaction is ongoing: nobody knows whether the lost log committed it."""
        for transaction in list(self._state.transactions.values()):
            if transaction.ongoing:
                name = transaction.transactional_id
                number = transaction.number
                self._must(
                    self._restorer, AbortTransaction(transactional_id=name, number=number, forced=True)
                )
                self._report.aborted.append(name)

    def _fence(self) -> None:
        """Nothing of any author of the lost log counts from here on, the restorer last."""
        others = [number for number in self._state.live if number != self._restorer]
        for number in others:
            self._must(self._restorer, FenceIncarnation(incarnation=number))
        if self._revision >= self._report.base:  # what another restore has put names later ones
            raise CannotRestore("another restore put a snapshot into the bucket meanwhile: run it again")
        self._revision = self._report.base - 1
        self._must(self._restorer, FenceIncarnation(incarnation=self._restorer))


def _behind_s(chunks: Sequence[FoundChunk], certain_ms: int) -> float:
    newest_ms = max((chunk.modified_ms for chunk in chunks), default=certain_ms)
    return max(0, newest_ms - certain_ms) / 1000 if certain_ms else 0.0


def commit_of(number: int, size: int, batches: Sequence[FoundBatch], judged: int) -> CommitChunk:
    """The command that commits a chunk of these batches, in the chunk's order."""
    commit = CommitChunk(number=number, size=size, first_position=HEADER_SIZE, judged_revision=judged)
    commit.partition.extend([batch.handle for batch in batches])
    commit.length.extend([batch.length for batch in batches])
    commit.offsets.extend([batch.offsets for batch in batches])
    commit.max_timestamp_ms.extend([batch.max_timestamp_ms for batch in batches])
    if any(batch.producer_id >= 0 for batch in batches):
        commit.producer_id.extend([batch.producer_id for batch in batches])
        commit.producer_epoch.extend([batch.epoch for batch in batches])
        commit.base_sequence.extend([batch.sequence for batch in batches])
        if any(batch.transactional for batch in batches):
            commit.transaction.extend([IMPLICIT * batch.transactional for batch in batches])
    return commit
