"""What waits for a flush, and the chunk and the command that a flush makes of it. No I/O.

Batches keep the order of their arrival within a partition, from request to chunk to command, because a
producer's own order must survive.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.telemetry.tracing import Trace
from coordination.commands import Command, CommitChunk
from coordination.kafka_codes import Code
from objectstore.batch import NO_PRODUCER_ID, BatchHeader
from objectstore.chunk import HEADER_SIZE, ChunkWriter, EncodedChunk
from objectstore.naming import ChunkId
from objectstore.store import Buffer

NO_OFFSET = -1
NO_TIMESTAMP = -1


class Offered(NamedTuple):
    """An admitted batch: the partition's handle, its bytes, its header; `transaction` as in CommitChunk."""

    handle: int
    data: Buffer
    header: BatchHeader
    transaction: int = 0
    judged: int = 0
    """The revision of the state by which its records were judged."""
    companion: Offered | None = None
    """What is stored with it in another partition, or not at all (CommitChunk.companion_of)."""

    @property
    def size(self) -> int:
        """Record bytes, its companion's too."""
        return len(self.data) + (len(self.companion.data) if self.companion is not None else 0)


class Outcome(NamedTuple):
    """What became of a batch. Every error carries base offset -1 (KAFKA-13574)."""

    code: Code
    base_offset: int = NO_OFFSET
    message: str | None = None


WAITING = Outcome(Code.NONE, message="waits")
"""In the place of an outcome that is not known yet."""


@dataclass(slots=True, eq=False)
class Request:
    """One Produce request's batches in the buffer; `done` resolves once all have their outcome."""

    connection: int
    arrived: float
    size: int
    done: asyncio.Future[list[Outcome]]
    outcomes: list[Outcome]
    missing: int
    judged: int = 0
    """The revision of the state by which all its records are judged: nothing was bound anew up to it."""
    trace: Trace | None = None


COMPANION = -1


class Pending(NamedTuple):
    """One batch in the buffer and where its outcome goes."""

    offered: Offered
    request: Request
    slot: int
    """Of its outcome among the request's; COMPANION: nobody asks for it."""

    @property
    def asked_for(self) -> bool:
        """Whether somebody waits for its outcome: not for a companion's, which is its leader's."""
        return self.slot != COMPANION


class ProduceBuffer:
    """Batches in the order of their arrival."""

    def __init__(self) -> None:
        self._pending: deque[Pending] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, request: Request, batches: Sequence[Offered]) -> None:
        """Append a request's batches; slots follow their order."""
        self._pending.extend(Pending(offered, request, slot) for slot, offered in enumerate(batches))

    @property
    def oldest(self) -> float | None:
        """When the first batch that waits arrived."""
        return self._pending[0].request.arrived if self._pending else None

    def take(self, bytes_max: int, batches_max: int) -> tuple[list[Pending], int]:
        """The oldest batches up to the limits, at least one, and their bytes."""
        taken: list[Pending] = []
        size = batches = 0
        while self._pending and batches < batches_max:
            first = self._pending[0].offered
            if taken and size + first.size > bytes_max:
                break
            taken.append(self._pending.popleft())
            size += first.size
            batches += 1 if first.companion is None else 2
        return taken, size


@dataclass(slots=True, eq=False)
class Flush:
    """One chunk on its way. `pending` is in the chunk's order, as are the command's columns."""

    chunk: ChunkId
    encoded: EncodedChunk
    pending: list[Pending]
    size: int
    started: float
    stored: bool = False
    failure: Exception | None = None
    put: asyncio.Task[None] | None = field(default=None, repr=False)
    traced: list[Request] = field(default_factory=list)
    """Requests that want to know where their time went (traced.py)."""
    stored_at: float = 0.0
    stamps: list[float] = field(default_factory=list)
    """When its command was sent to the log, and answered."""


def make_flush(taken: Sequence[Pending], size: int, cluster_id: bytes, chunk: ChunkId, now: float) -> Flush:
    """Lay the batches out by partition, companions behind its other ones."""
    batches = [*taken]
    for pending in taken:
        if pending.offered.companion is not None:
            batches.append(Pending(pending.offered.companion, pending.request, COMPANION))
    writer = ChunkWriter()
    for pending in batches:
        writer.add(pending.offered.handle, pending.offered.data)
    ordered = [batches[ticket] for ticket in writer.order()]
    return Flush(chunk, writer.finish(cluster_id, chunk), ordered, size, now)


def commit_command(flush: Flush) -> Command:
    """The command that gives the chunk's batches their offsets."""
    headers = [_as_told(pending) for pending in flush.pending]
    command = Command()
    commit: CommitChunk = command.commit_chunk
    commit.number = flush.chunk.number
    commit.size = flush.encoded.size
    commit.first_position = HEADER_SIZE
    commit.partition.extend([pending.offered.handle for pending in flush.pending])
    commit.length.extend([len(pending.offered.data) for pending in flush.pending])
    commit.offsets.extend([header.last_offset_delta + 1 for header in headers])
    commit.max_timestamp_ms.extend([header.max_timestamp for header in headers])
    if any(header.producer_id != NO_PRODUCER_ID for header in headers):
        commit.producer_id.extend([header.producer_id for header in headers])
        commit.producer_epoch.extend([header.producer_epoch for header in headers])
        commit.base_sequence.extend([header.base_sequence for header in headers])
    if any(header.transactional for header in headers):
        commit.transaction.extend([pending.offered.transaction for pending in flush.pending])
    commit.judged_revision = min(pending.request.judged for pending in flush.pending if pending.asked_for)
    if not all(pending.asked_for for pending in flush.pending):
        commit.companion_of.extend(_leaders(flush.pending))
    return command


def _as_told(pending: Pending) -> BatchHeader:
    """The header as the log is told of it: a companion's producer is its leader's."""
    header = pending.offered.header
    if pending.asked_for:
        return header
    return header._replace(producer_id=NO_PRODUCER_ID, producer_epoch=-1, base_sequence=-1)


def _leaders(batches: Sequence[Pending]) -> list[int]:
    """For each companion 1 + the place of the batch that it goes with; for each other batch 0."""
    places = {
        id(pending.offered.companion): place
        for place, pending in enumerate(batches)
        if pending.offered.companion is not None
    }
    return [0 if pending.asked_for else 1 + places[id(pending.offered)] for pending in batches]
