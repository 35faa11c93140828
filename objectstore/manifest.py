"""The manifest: which segments hold the old part of one partition. One object, replaced as a whole.

    header 48 | Segments (protobuf)

The replicated state points to it (SwapSegments). Segments tile the range [start_offset, end_offset): each
answers for its offsets, whether compaction has left records there or not. Columns, not objects: a manifest of
100,000 segments is decoded in milliseconds (docs/storage.md has the figure).
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Self

from crc32c import crc32c
from google.protobuf.message import DecodeError

from objectstore.naming import ManifestId, SegmentId
from objectstore.proto.segment_pb2 import Segments
from objectstore.segment import HEADER_BYTES as SEGMENT_HEADER_BYTES
from objectstore.segment import Buffer, SegmentInfo

VERSION = 1
HEADER_BYTES = 48
SEGMENTS_MAX = 1_000_000  # of one manifest
_MAGIC = b"FLOEMANI"
_header = struct.Struct(">8sHHQIQII8x")  # magic, version, header size, the name's parts, length, crc
_COLUMNS = (
    ("incarnation", "Q"),
    ("number", "Q"),
    ("base_offset", "q"),
    ("end_offset", "q"),
    ("size", "q"),
    ("index_position", "q"),
    ("records", "q"),
    ("first_timestamp_ms", "q"),
    ("max_timestamp_ms", "q"),
)
_Column = array  # of int
ENTRY_BYTES = sum(array(code).itemsize for _, code in _COLUMNS)  # in memory


class CorruptManifest(ValueError):
    """The object is not a sound manifest, or not the one that its key names."""


class Summary(NamedTuple):
    """What the replicated state keeps of a manifest (log.proto, MergedRange), without its own size."""

    start_offset: int
    end_offset: int
    size_bytes: int
    records: int
    segments: int
    max_timestamp_ms: int
    first_end_offset: int
    first_size_bytes: int
    first_max_timestamp_ms: int
    first_dirty_offset: int
    clean_bytes: int
    first_dirty_ms: int


class Manifest:
    """The segments of one partition, in the order of their offsets. Never changed: edits make a new one."""

    __slots__ = ("_columns", "end_offset", "first_dirty_offset", "partition")

    def __init__(
        self, partition: int, columns: Sequence[array[int]], end_offset: int, first_dirty_offset: int
    ) -> None:
        self.partition = partition
        self.end_offset = end_offset
        self.first_dirty_offset = first_dirty_offset
        self._columns = columns

    @classmethod
    def empty(cls, partition: int, end_offset: int) -> Self:
        """A manifest without segments: nothing below `end_offset` is there."""
        return cls(partition, [array(code) for _, code in _COLUMNS], end_offset, 0)

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, number: int) -> SegmentInfo:
        incarnation, name, *others = [column[number] for column in self._columns]
        return SegmentInfo(SegmentId(incarnation, self.partition, name), *others)

    @property
    def start_offset(self) -> int:
        """Where the first segment begins; `end_offset` when there is none."""
        return self._columns[2][0] if len(self) else self.end_offset

    @property
    def memory_bytes(self) -> int:
        """What it holds in memory, about."""
        return 500 + ENTRY_BYTES * len(self)

    def find(self, offset: int) -> int:
        """Number of the first segment that ends above `offset`; the count of segments when none does."""
        return bisect_right(self._columns[3], offset)

    def first_newer(self, timestamp_ms: int, number: int) -> int:
        """Number of the first segment from `number` on with a timestamp at least this; the count if none."""
        newest = self._columns[8]
        for at in range(number, len(newest)):
            if newest[at] >= timestamp_ms:
                return at
        return len(newest)

    def newest(self, number: int) -> int:
        """Number of the first segment from `number` on with the highest timestamp; the count if none."""
        newest = self._columns[8][number:]
        return number + newest.index(max(newest)) if newest else len(self)

    def record_bytes(self, first: int, last: int) -> int:
        """Record bytes of the segments [first, last)."""
        positions = self._columns[5][first:last]
        return sum(positions) - SEGMENT_HEADER_BYTES * len(positions)

    def segments(self, first: int, last: int) -> list[SegmentId]:
        """The names of the segments [first, last)."""
        columns = self._columns
        pairs = zip(columns[0][first:last], columns[1][first:last], strict=True)
        return [SegmentId(incarnation, self.partition, number) for incarnation, number in pairs]

    def names(self, segment: SegmentId) -> bool:
        """Whether this segment is in it."""
        incarnations, numbers = self._columns[0], self._columns[1]
        at = -1
        for _ in range(numbers.count(segment.number)):
            at = numbers.index(segment.number, at + 1)
            if incarnations[at] == segment.incarnation:
                return segment.partition == self.partition
        return False

    def appended(self, added: Sequence[SegmentInfo], end_offset: int) -> Manifest:
        """With `added` behind the last segment, which answer for [self.end_offset, end_offset)."""
        count = len(self)
        return self._spliced(count, count, added, self.end_offset, end_offset, end_offset)

    def replaced(self, first: int, last: int, put: Sequence[SegmentInfo]) -> Manifest:
        """With `put` in place of the segments [first, last), answering for the same offsets.

        With nothing put, the segment after the hole (or else before it) answers for it.
        """
        if not 0 <= first < last <= len(self):
            raise ValueError(f"segments {first} to {last} of {len(self)}: at least one is replaced")
        start, end = self._columns[2][first], self._columns[3][last - 1]
        if not put and last < len(self):
            last += 1
            put, end = [self[last - 1]], self._columns[3][last - 1]
        elif not put and first > 0:
            first -= 1
            put, start = [self[first]], self._columns[2][first]
        return self._spliced(first, last, put, start, end, self.end_offset)

    def without_from(self, number: int) -> Manifest:
        """Without the segments from `number` on: the range ends where that one begins."""
        end = self._columns[2][number] if number < len(self) else self.end_offset
        kept = [column[:number] for column in self._columns]
        return Manifest(self.partition, kept, end, self.first_dirty_offset)

    def without_first(self, count: int) -> Manifest:
        """Without the first `count` segments. Their names: `segments(0, count)`."""
        kept = [column[count:] for column in self._columns]
        return Manifest(self.partition, kept, self.end_offset, self.first_dirty_offset)

    def with_first_dirty(self, offset: int) -> Manifest:
        """With another border between what is compacted and what is not."""
        return Manifest(self.partition, self._columns, self.end_offset, offset)

    def summary(self) -> Summary:
        """What the state keeps."""
        _, _, _, ends, _, positions, records, first_ms, newest = self._columns
        count = len(self)
        dirty = self.find(self.first_dirty_offset)
        return Summary(
            self.start_offset,
            self.end_offset,
            self.record_bytes(0, count),
            sum(records),
            count,
            max(newest, default=-1),
            ends[0] if count else self.end_offset,
            positions[0] - SEGMENT_HEADER_BYTES if count else 0,
            newest[0] if count else -1,
            self.first_dirty_offset,
            self.record_bytes(0, dirty),
            first_ms[dirty] if dirty < count else -1,
        )

    def encode(self, manifest: ManifestId) -> bytes:
        """The object under this name."""
        if len(self) > SEGMENTS_MAX:
            raise ValueError(f"{len(self)} segments in one manifest: at most {SEGMENTS_MAX}")
        message = Segments(
            partition=self.partition,
            first_dirty_offset=self.first_dirty_offset,
            merged_end_offset=self.end_offset,
        )
        for (name, _), column in zip(_COLUMNS, self._columns, strict=True):
            getattr(message, name).extend(column)
        content = message.SerializeToString(deterministic=True)
        front = _header.pack(_MAGIC, VERSION, HEADER_BYTES, *manifest, len(content), crc32c(content))
        return front + content

    def _spliced(
        self, first: int, last: int, put: Sequence[SegmentInfo], start: int, end: int, end_offset: int
    ) -> Manifest:
        """With `put` at [first, last), made to answer for [start, end) without a hole."""
        ends = [*(each.base_offset for each in put[1:]), end]
        bases = [start, *ends[:-1]]
        for each, base, limit in zip(put, bases, ends, strict=False):
            if each.segment.partition != self.partition or not base <= each.base_offset <= each.end_offset:
                raise ValueError(f"{each} does not belong into partition {self.partition} from {base} on")
            if each.end_offset > limit:
                raise ValueError(f"{each} reaches beyond offset {limit}")
        rows = [
            (*each[0][::2], base, limit, *each[3:])
            for each, base, limit in zip(put, bases, ends, strict=False)
        ]
        columns = []
        for place, (_, code) in enumerate(_COLUMNS):
            column = self._columns[place][:first]
            column.extend(array(code, [row[place] for row in rows]))
            column.extend(self._columns[place][last:])
            columns.append(column)
        return Manifest(self.partition, columns, end_offset, self.first_dirty_offset)


def name_of(data: Buffer) -> ManifestId:
    """Which manifest the object says that it is. Raises CorruptManifest."""
    if len(data) < HEADER_BYTES:
        raise CorruptManifest(f"{len(data)} bytes are less than a manifest header of {HEADER_BYTES}")
    return ManifestId(*_header.unpack_from(data)[3:6])


def front_problem(data: Buffer, manifest: ManifestId) -> str:
    """What is wrong with the header of a sound manifest where no reader looks: no checksum is over that."""
    front, content = memoryview(data)[:HEADER_BYTES], memoryview(data)[HEADER_BYTES:]
    due = _header.pack(_MAGIC, VERSION, HEADER_BYTES, *manifest, len(content), crc32c(content))
    return "" if front == due else "its header is not what was written"


def decode(data: Buffer, manifest: ManifestId) -> Manifest:
    """The manifest of this name. Raises CorruptManifest."""
    view = memoryview(data)
    if len(view) < HEADER_BYTES:
        raise CorruptManifest(f"{len(view)} bytes are less than a manifest header of {HEADER_BYTES}")
    magic, version, _, incarnation, partition, number, length, crc = _header.unpack_from(view)
    if magic != _MAGIC:
        raise CorruptManifest(f"not a manifest: it begins with {magic!r}")
    if version != VERSION:
        raise CorruptManifest(f"manifest version {version}, this code reads {VERSION}: use a newer agent")
    if ManifestId(incarnation, partition, number) != manifest:
        raise CorruptManifest(f"the object is the manifest of {incarnation:016x}, {partition}, {number:016x}")
    content = view[HEADER_BYTES:]
    if length != len(content) or crc32c(content) != crc:
        raise CorruptManifest(f"its {len(content)} bytes do not match its header")
    try:
        message = Segments.FromString(bytes(content))
    except DecodeError as error:
        raise CorruptManifest(f"the manifest is not what it should be: {error}") from error
    columns = [array(code, getattr(message, name)) for name, code in _COLUMNS]
    if len(frozenset(map(len, columns))) != 1 or message.partition != partition:
        raise CorruptManifest("the manifest's columns have different lengths, or its partition is another")
    return Manifest(partition, columns, message.merged_end_offset, message.first_dirty_offset)
