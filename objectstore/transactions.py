"""Transactions as merging and compaction see them: what was aborted, and which markers are needed still.

Both are told the aborted transactions of the rows that they take from a partition's tail, all of which have
ended. Their records do not move along: merged ranges hold none, and so the state need not list them any more.
For compaction, a marker stays as long as a record of its transaction is in the log, since readers need
it; the first pass that sees none gives it a delete horizon (Kafka's CleanedTransactionMetadata).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from enum import Enum
from operator import attrgetter
from typing import NamedTuple

from objectstore.batch import BatchHeader, peek, split

_marker_offset = attrgetter("marker_offset")


class Aborted(NamedTuple):
    """One aborted transaction: its producer, its first offset, and that of its marker."""

    producer_id: int
    first_offset: int
    marker_offset: int


class Markers(Enum):
    """What a marker is there for."""

    NEEDED = "records of its transaction are in the log"
    EMPTY = "no record of its transaction is left"


class Transactions:
    """The transactions of one pass, in offset order."""

    def __init__(self, aborted: Iterable[Aborted] = ()) -> None:
        self._aborted: dict[int, list[Aborted]] = {}
        for each in aborted:
            self._aborted.setdefault(each.producer_id, []).append(each)
        for ended in self._aborted.values():  # one after the other: a producer has one open at a time
            ended.sort(key=_marker_offset)
        self._open: set[int] = set()  # producers with records since their last marker

    def aborted(self, header: BatchHeader) -> bool:
        """Whether the batch is part of an aborted transaction."""
        ended = self._aborted.get(header.producer_id)
        if not ended or not header.transactional or header.control:
            return False
        following = bisect_right(ended, header.base_offset, key=_marker_offset)
        return following < len(ended) and ended[following].first_offset <= header.base_offset

    def discard(self, header: BatchHeader) -> bool:
        """Note a batch that a pass cleans; whether it goes because its transaction was aborted."""
        if header.transactional and not header.control:
            self._open.add(header.producer_id)
        return self.aborted(header)

    def marker(self, header: BatchHeader) -> Markers:
        """Note a marker that a pass cleans; whether records of its transaction came before it."""
        if header.producer_id in self._open:
            self._open.discard(header.producer_id)
            return Markers.NEEDED
        return Markers.EMPTY


def without_aborted(batches: memoryview, aborted: Sequence[Aborted]) -> list[memoryview]:
    """The batches that fill the buffer, in runs, but those of aborted transactions. Raises CorruptBatch."""
    if not aborted:
        return [batches]
    known = Transactions(aborted)
    kept: list[memoryview] = []
    begun = end = 0
    for position, size in split(batches):
        if known.aborted(peek(batches, position)):
            if end > begun:
                kept.append(batches[begun:end])
            begun = position + size
        end = position + size
    if end > begun:
        kept.append(batches[begun:end])
    return kept
