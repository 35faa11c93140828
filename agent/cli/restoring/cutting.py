"""What of a partition was there at a point: where it is cut, and which transactions had committed by then.

Pure: batches in, verdicts out. A transaction counts when its commit marker lies below the cut; one whose
marker lies behind it was open then, and is left out with those that were aborted.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from agent.cli.failures import refused
from objectstore.batch import BatchHeader, CorruptBatch, Record, records
from objectstore.transactions import Aborted, Transactions

ABORTED_MAX: Final = 1_000_000
"""Transactions that are left out of one partition; each takes some 100 bytes of this command's memory."""
_COMMIT: Final = 1
_kind = struct.Struct(">hh").unpack_from


class Cutting:
    """Goes through a partition's batches from its start on, until it is at the point.

    `offset`: the first that is left out; or `time_ms`: the first record or marker with a later timestamp is.
    `log_start`: below it there are rows of a table in place of batches.
    """

    def __init__(self, start: int, offset: int, time_ms: int | None = None, log_start: int = 0) -> None:
        self.start, self._log_start = start, log_start
        self.cut = offset
        self._time_ms = time_ms
        self._open: dict[int, int] = {}
        self._left_out: list[Aborted] = []

    def take_rows(self, some: Sequence[Record]) -> bool:
        """Look at the next rows, all of which committed at some time; whether more are to be looked at."""
        for each in some:
            if self._time_ms is not None and each.timestamp > self._time_ms:
                self.cut = min(self.cut, each.offset)
            if each.offset >= self.cut:
                return False
        return True

    def take(self, header: BatchHeader, batch: memoryview) -> bool:
        """Look at the next batch; whether more are to be looked at."""
        if self._time_ms is not None and header.max_timestamp > self._time_ms:
            self.cut = min(self.cut, self._first_later(header, batch, self._time_ms))
        if header.base_offset >= self.cut:
            return False
        if header.control:
            self._end(header, batch)
        elif header.transactional:
            self._open.setdefault(header.producer_id, header.base_offset)
        return header.last_offset + 1 < self.cut

    def _first_later(self, header: BatchHeader, batch: memoryview, time_ms: int) -> int:
        """The first record that is later; of a batch that nobody can open its first offset."""
        try:
            later = [each.offset for each in records(batch) if each.timestamp > time_ms]
        except CorruptBatch:
            later = [max(header.base_offset, self.start)]
        return next((each for each in later if each >= self.start), self.cut)

    def _end(self, header: BatchHeader, batch: memoryview) -> None:
        begun = self._open.pop(header.producer_id, None)
        marker = next(records(batch), None)
        committed = marker is not None and marker.key is not None and _kind(marker.key)[1] == _COMMIT
        if begun is not None and not committed:
            self._leave_out(Aborted(header.producer_id, begun, header.base_offset))

    def _leave_out(self, one: Aborted) -> None:
        if len(self._left_out) >= ABORTED_MAX:
            raise refused(
                f"more than {ABORTED_MAX:,} transactions are left out: restore up to a nearer point"
            )
        self._left_out.append(one)

    def done(self) -> Cut:
        """Where it is cut, and what is left out below."""
        for producer_id, begun in self._open.items():
            self._leave_out(Aborted(producer_id, begun, self.cut))
        self._open.clear()
        return Cut(self.start, self.cut, self._left_out, self._log_start)


class Cut:
    """A partition as it was: offsets in [start, end), without what had not been committed.

    `log_start`: what lies below it comes as rows of a table, also of a batch that lies across it.
    """

    def __init__(self, start: int, end: int, left_out: list[Aborted], log_start: int = 0) -> None:
        self.start, self.end, self.log_start = start, end, max(start, log_start)
        self.left_out = len(left_out)
        self._transactions = Transactions(left_out)

    def kept(self, header: BatchHeader, batch: memoryview) -> list[Record]:
        """Records of a batch that were there, all or none of them. Raises CorruptBatch."""
        if header.control or not header.record_count or self._transactions.aborted(header):
            return []
        return [each for each in records(batch) if self.log_start <= each.offset < self.end]
