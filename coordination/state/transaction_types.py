"""What a transactional id is in the state, and what a partition knows of transactions."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from objectstore.transactions import Aborted

NO_PRODUCER = (-1, -1)  # no pair of producer id and epoch
Extent = dict[int, tuple[int, int]]
"""Where one committed transaction is in a topic: by partition index its first offset and its marker's."""


class Phase(IntEnum):
    """Kafka's states of a transactional id. There is no Prepare: one entry of the log ends a transaction."""

    EMPTY = 0
    ONGOING = 1
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


PHASE_NAMES = {
    Phase.EMPTY: "Empty",
    Phase.ONGOING: "Ongoing",
    Phase.COMPLETE_COMMIT: "CompleteCommit",
    Phase.COMPLETE_ABORT: "CompleteAbort",
}


class LastEnd(NamedTuple):
    """The request of transactions v1 that ended the last transaction, and the revision of that."""

    incarnation: int
    connection: int
    revision: int


class Source(NamedTuple):
    """The connection by which a group's last positions of a transaction came, and the revision of these.

    `proven`: they were sent after the last transaction's end, and so was all that is left of earlier ones.
    """

    incarnation: int
    connection: int
    revision: int
    proven: bool


class PendingOffset(NamedTuple):
    """A position that waits for its transaction's end. `revision`: of the entry that brought it."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    revision: int


@dataclass(slots=True)
class Transaction:
    """One transactional id. Times are stamps, Unix ms; `partitions` and `groups` are of what is ongoing.

    `number` counts its transactions. `previous` is the pair whose retries are recognised as such.
    `timed_out`: the last end was a timeout's, so whoever has the previous pair may recover (KIP-588).
    `abort_only`: what is ongoing must not be committed. `groups`: with where their positions came from.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    updated_ms: int
    phase: Phase = Phase.EMPTY
    started_ms: int = -1
    number: int = 0
    previous: tuple[int, int] = NO_PRODUCER
    timed_out: bool = False
    last_end: LastEnd | None = None
    partitions: dict[int, None] = field(default_factory=dict)
    groups: dict[str, Source | None] = field(default_factory=dict)
    abort_only: bool = False

    @property
    def ongoing(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self.phase is Phase.ONGOING

    @property
    def current(self) -> tuple[int, int]:
        """The pair of producer id and epoch that counts."""
        return self.producer_id, self.epoch


class PartitionTransactions:
    """What one partition knows: `open`, by producer id the first offset of what it wrote in its ongoing
    transaction, in the order of these offsets; `aborted`, flat (producer id, first offset, marker offset) in
    the order of the ends, as far as readers of the tail need them."""

    __slots__ = ("aborted", "open")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self.aborted: array[int] = array("q")

    def __eq__(self, other: object) -> bool:
        """The same transactions in the same order."""
        return (
            isinstance(other, PartitionTransactions)
            and list(self.open.items()) == list(other.open.items())
            and self.aborted == other.aborted
        )

    __hash__ = None  # type: ignore[assignment]  # it changes

    def overlapping(self, start: int, end: int) -> list[Aborted]:
        """Aborted transactions whose records or markers lie in [start, end), in the order of their ends."""
        flat = self.aborted
        first = bisect_left(range(len(flat) // 3), start, key=lambda number: flat[3 * number + 2])
        return [
            Aborted(flat[at], flat[at + 1], flat[at + 2])
            for at in range(3 * first, len(flat), 3)
            if flat[at + 1] < end
        ]

    def forget_below(self, offset: int) -> None:
        """Nobody reads records below `offset` any more, or none of an aborted transaction is left there."""
        flat, gone = self.aborted, 0
        while gone < len(flat) and flat[gone + 2] < offset:
            gone += 3
        if gone:
            del flat[:gone]
