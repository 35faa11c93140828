"""Where a partition's records are: runs of offsets in chunk objects, one compact row each.

A row is 32 bytes: end offset, chunk serial, position, length, maximum timestamp. It begins where the
row before it ends, so offsets tile by construction. Rows are only appended at the back and dropped at
the front; bytes before `head` are dead until enough of them gather to be worth a copy.

A row with a negative serial is the marker of a transaction's end, which no object holds: the serial says
which producer's and how it ended, the position its epoch, the timestamp when (objectstore/markers.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from struct import Struct, calcsize
from typing import Literal

from coordination.state.chunk_table import ChunkTable
from objectstore.markers import MARKER_BYTES
from objectstore.naming import ChunkId, MarkerId, SliceRef

ROW = Struct("<qqIIq")  # end offset, chunk serial, position, length, max timestamp ms
ROW_BYTES = ROW.size
DEAD_BYTES_MIN = 4096  # the front is copied away only when at least this much of it is dead

_END = Struct("<q")


class SliceIndex:
    """The slices of one partition, oldest first. `coordination.state.chunks` appends to `rows` itself."""

    __slots__ = ("_chunks", "first_offset", "head", "rows", "size_bytes")

    def __init__(self, chunks: ChunkTable) -> None:
        self._chunks = chunks
        self.rows = bytearray()
        self.head = 0  # bytes of `rows` that are dead
        self.first_offset = 0  # base offset of the first live row
        self.size_bytes = 0  # record bytes of all live rows

    def __len__(self) -> int:
        return (len(self.rows) - self.head) // ROW_BYTES

    def extend_last(self, end_offset: int, length: int, max_timestamp_ms: int) -> None:
        """Grow the last row by a batch that follows it in the same chunk."""
        position = len(self.rows) - ROW_BYTES
        _, serial, start, so_far, newest = ROW.unpack_from(self.rows, position)
        ROW.pack_into(
            self.rows, position, end_offset, serial, start, so_far + length, max(newest, max_timestamp_ms)
        )
        self.size_bytes += length

    def append_marker(self, end_offset: int, marker: MarkerId, stamp_ms: int) -> None:
        """Add the row of a marker, which takes one offset."""
        serial = _marker_serial(marker)
        self.rows += ROW.pack(end_offset, serial, marker.epoch, MARKER_BYTES, stamp_ms)
        self.size_bytes += MARKER_BYTES

    def plan(self, offset: int, max_bytes: int) -> list[SliceRef]:
        """The slices from the one that holds `offset` on, in order, of at most `max_bytes` in sum.

        The first is always there, whole, however large (rule 7). Empty when nothing is at or after `offset`.
        """
        planned: list[SliceRef] = []
        left = max_bytes
        for number in range(self._find(offset), len(self)):
            found = self._ref(number)
            left -= found.length
            if left < 0 and planned:
                break
            planned.append(found)
        return planned

    def oldest(self, rows: int, max_bytes: int) -> list[SliceRef]:
        """The first slices, at most so many and of at most `max_bytes` in sum; the very first always."""
        taken: list[SliceRef] = []
        base, left = self.first_offset, max_bytes
        end = self.head + min(rows, len(self)) * ROW_BYTES
        with memoryview(self.rows) as view, view[self.head : end] as live:
            for last, serial, position, length, newest in ROW.iter_unpack(live):
                left -= length
                if left < 0 and taken:
                    break
                taken.append(self._made(base, last, serial, position, length, newest))
                base = last
        return taken

    def newest(self, max_bytes: int) -> list[SliceRef]:
        """The last slices of at most `max_bytes` in sum, in order; the very last is always there."""
        taken: list[SliceRef] = []
        left = max_bytes
        for number in range(len(self) - 1, -1, -1):
            found = self._ref(number)
            left -= found.length
            if left < 0 and taken:
                break
            taken.append(found)
        taken.reverse()
        return taken

    def pieces(self) -> Iterator[tuple[int, int, int]]:
        """(end offset, record bytes, maximum timestamp in ms) of each live row, oldest first.

        Only while nothing is applied: an await of the caller's would let the rows change.
        """
        for number in range(len(self)):
            end, _, _, length, newest = self._row(number)
            yield end, length, newest

    def bytes_below(self, offset: int) -> int:
        """Record bytes of the rows that end at or below `offset`."""
        count = self._find(offset)
        return sum(self._column("I", 5, count)) if count else 0

    def by_timestamp(self, timestamp_ms: int, start: int) -> SliceRef | None:
        """The first slice from `start` on that holds a record with at least this timestamp (ListOffsets)."""
        first = self._find(start)
        for number, newest in enumerate(self._max_timestamps()[first:], first):
            if newest >= timestamp_ms:
                return self._ref(number)
        return None

    def max_timestamp(self, start: int) -> SliceRef | None:
        """The first slice from `start` on that holds the highest timestamp (ListOffsets -3, KIP-734)."""
        first = self._find(start)
        newest = self._max_timestamps()[first:]
        return self._ref(first + newest.index(max(newest))) if newest else None

    def trim(self, offset: int) -> list[int]:
        """Drop rows that end at or below `offset`; returns the chunk serial of each that lies in a chunk."""
        return self.drop(self._find(offset))

    def drop(self, count: int) -> list[int]:
        """Drop the first `count` rows, of those there are; returns as `trim`."""
        if not count:
            return []
        dropped = [serial for serial in self._column("q", 1, count) if serial >= 0]
        self.size_bytes -= sum(self._column("I", 5, count))
        self.first_offset = self._row(count - 1)[0]
        self.head += count * ROW_BYTES
        if self.head >= DEAD_BYTES_MIN and self.head * 2 >= len(self.rows):
            self.rows = self.rows[self.head :]  # a new object: whoever reads the old one is not disturbed
            self.head = 0
        return dropped

    def holder_ending_at(self, end_offset: int) -> ChunkId | MarkerId | None:
        """What the live row that ends at this offset stands for; None when no row does."""
        number = self._find(end_offset - 1)
        if number == len(self) or self._row(number)[0] != end_offset:
            return None
        chunk = self._ref(number).chunk
        assert isinstance(chunk, ChunkId | MarkerId), "rows of a tail are in chunks"
        return chunk

    def serials(self) -> list[int]:
        """The chunk serial of every live row that lies in a chunk."""
        return [serial for serial in self._column("q", 1) if serial >= 0]

    def append_rows(self, rows: bytes) -> None:
        """Add rows as a snapshot has them."""
        self.rows += rows
        self.size_bytes += sum(length for _, _, _, length, _ in ROW.iter_unpack(rows))

    def sum_of_lengths(self) -> int:
        """What `size_bytes` must be."""
        return sum(self._column("I", 5))

    def _max_timestamps(self) -> list[int]:
        return self._column("q", 3)

    def _column(self, word: Literal["q", "I"], place: int, count: int | None = None) -> list[int]:
        """Of every live row, or the first `count`, the word of this format at this place (in such words)."""
        if len(self.rows) == self.head:
            return []
        step = ROW_BYTES // calcsize(word)
        end = len(self.rows) if count is None else self.head + count * ROW_BYTES
        with memoryview(self.rows) as view, view[self.head : end] as live, live.cast(word) as words:
            column: list[int] = words[place::step].tolist()
            return column

    def _find(self, offset: int) -> int:
        """Number of the first live row that ends above `offset`."""
        rows, head = self.rows, self.head
        return bisect_right(
            range(len(self)), offset, key=lambda n: _END.unpack_from(rows, head + n * ROW_BYTES)[0]
        )

    def _row(self, number: int) -> tuple[int, int, int, int, int]:
        row: tuple[int, int, int, int, int] = ROW.unpack_from(self.rows, self.head + number * ROW_BYTES)
        return row

    def _ref(self, number: int) -> SliceRef:
        end, serial, position, length, newest = self._row(number)
        base = self._row(number - 1)[0] if number else self.first_offset
        return self._made(base, end, serial, position, length, newest)

    def _made(self, base: int, end: int, serial: int, position: int, length: int, newest: int) -> SliceRef:
        if serial < 0:
            return SliceRef(base, end, _marker(serial, position), 0, length, newest)
        return SliceRef(base, end, self._chunks.by_serial[serial].id, position, length, newest)


def _marker_serial(marker: MarkerId) -> int:
    return -1 - (marker.producer_id << 1 | marker.committed)


def _marker(serial: int, epoch: int) -> MarkerId:
    coded = -1 - serial
    return MarkerId(coded >> 1, epoch, bool(coded & 1))
