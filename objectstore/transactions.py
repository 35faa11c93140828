"""Transactions as compaction sees them: what was aborted, and which markers are needed still.

A pass is told the aborted transactions of what it reads (none as long as there are no transactions). Their
records go at once. A marker stays as long as a record of its transaction is in the log, since readers need
it; the first pass that sees none gives it a delete horizon (Kafka's CleanedTransactionMetadata).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from objectstore.batch import BatchHeader


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
        self._open: set[int] = set()  # producers with records since their last marker

    def aborted(self, header: BatchHeader) -> bool:
        """Whether the batch is part of an aborted transaction."""
        return header.transactional and any(
            each.first_offset <= header.base_offset < each.marker_offset
            for each in self._aborted.get(header.producer_id, ())
        )

    def discard(self, header: BatchHeader) -> bool:
        """Note a batch that a pass cleans; whether it goes because its transaction was aborted."""
        if header.transactional:
            self._open.add(header.producer_id)
        return self.aborted(header)

    def marker(self, header: BatchHeader) -> Markers:
        """Note a marker that a pass cleans; whether records of its transaction came before it."""
        if header.producer_id in self._open:
            self._open.discard(header.producer_id)
            return Markers.NEEDED
        return Markers.EMPTY
