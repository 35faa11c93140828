"""The segment: one object that holds a run of one partition's record batches, ready to be sent.

    header 64 | block | block | … | index of blocks (protobuf) | trailer 16

Base offsets and leader epochs are patched already, so a reader sends what it reads. A block is a run of whole
batches of about BLOCK_BYTES: what is read, checked and cached as one. The index says per block which offsets,
bytes and timestamps it has, with the CRC-32C of its bytes; it is read once, from the position that the
manifest tells. Offsets rise but need not be dense: compaction takes records away.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c
from google.protobuf.message import DecodeError

from objectstore.batch import NO_FIRST_TIME, CorruptBatch, check_crc, split
from objectstore.naming import SegmentId, SliceRef
from objectstore.proto.segment_pb2 import BlockIndex as IndexMessage

Buffer = bytes | bytearray | memoryview

VERSION = 1
HEADER_BYTES = 64  # the first block begins here
TRAILER_BYTES = 16
BLOCK_BYTES = 256 * 1024  # a block is closed by the batch with which it reaches this size
SEGMENT_BYTES_MAX = 1 << 30  # of the whole object; positions are uint32 in the index
CLUSTER_ID_BYTES = 16
_HEADER_MAGIC = b"FLOESEGM"
_TRAILER_MAGIC = b"FLOEBLKS"
_header = struct.Struct(">8sHH16sQIQ12xI")  # magic, version, header size, cluster, the name's parts, crc
_trailer = struct.Struct(">II8s")  # index length, index crc, magic
_batch = struct.Struct(">qi9xhiqq14xi")  # base offset, length, attributes, last delta, two timestamps, count
_BATCH_HEADER_BYTES = 61
_LENGTH_PREFIX = 12  # bytes of a batch that its length does not count


class CorruptSegment(ValueError):
    """The object is not a sound segment, or not the one that its key names."""


class SegmentInfo(NamedTuple):
    """A segment as its manifest has it (segment.proto, Segments). Sizes in bytes, times Unix ms."""

    segment: SegmentId
    base_offset: int
    end_offset: int
    size: int
    index_position: int
    records: int
    first_timestamp_ms: int
    max_timestamp_ms: int

    @property
    def record_bytes(self) -> int:
        """Bytes of its batches."""
        return self.index_position - HEADER_BYTES

    @property
    def begun_ms(self) -> int:
        """Its first time. Older versions told a delete horizon where the first batch had one."""
        return min(self.first_timestamp_ms, self.max_timestamp_ms)


class EncodedSegment(NamedTuple):
    """A segment ready to be put: the concatenation of `parts` is the object. The batches are not copied."""

    parts: Sequence[Buffer]
    info: SegmentInfo


class SegmentWriter:
    """Takes batches in the order of their offsets; what was added is held until `finish`.

    The caller bounds the memory: it finishes when `record_bytes` has reached its goal.
    """

    def __init__(self, cluster_id: bytes, segment: SegmentId, block_bytes: int = BLOCK_BYTES) -> None:
        self._segment = segment
        self._block_bytes = block_bytes
        self._parts: list[Buffer] = [encode_header(cluster_id, segment)]
        self._index = IndexMessage()
        self._block: _Block | None = None
        self._position = HEADER_BYTES
        self._first_offset = self._end_offset = -1
        self._records = 0
        self._first_timestamp = self._max_timestamp = -1

    @property
    def record_bytes(self) -> int:
        """Bytes of the batches added so far."""
        return self._position - HEADER_BYTES

    @property
    def end_offset(self) -> int:
        """The offset after the last record added; -1 before the first."""
        return self._end_offset

    def add(self, batches: memoryview) -> None:
        """Append batches that fill the buffer, offsets patched. Their CRCs are the reader's to check.

        Raises CorruptBatch when the bytes are no batches, ValueError when offsets do not rise or the segment
        would exceed SEGMENT_BYTES_MAX; the writer is then of no use any more.
        """
        size, position, begun = len(batches), 0, 0
        if self._position + size > SEGMENT_BYTES_MAX:
            raise ValueError(f"a segment of more than {SEGMENT_BYTES_MAX} bytes: finish it earlier")
        while position < size:
            base, length, attributes, last_delta, first_ms, newest_ms, count = _batch_at(batches, position)
            if base < self._end_offset or last_delta < 0 or count < 0:
                raise ValueError(f"a batch of {count} records at {base} after offset {self._end_offset}")
            position += length + _LENGTH_PREFIX
            if self._block is None:
                self._block = _Block(base, self._position + begun)
                if self._first_offset < 0:
                    self._first_offset = base
            if self._first_timestamp < 0:  # batches without records have none
                self._first_timestamp = newest_ms if attributes & NO_FIRST_TIME else first_ms
            block = self._block
            if newest_ms > block.newest_ms:
                block.newest_ms = newest_ms
            self._end_offset = base + last_delta + 1
            self._records += count
            if self._position + position - block.position >= self._block_bytes:
                self._close(block, batches[begun:position], self._position + position)
                begun = position
        if self._block is not None:
            self._block.crc = crc32c(batches[begun:], self._block.crc)
        self._parts.append(batches)
        self._position += size

    def finish(self) -> EncodedSegment:
        """The segment of everything added. Raises ValueError when that is nothing."""
        if self._block is not None:
            self._close(self._block, b"", self._position)
        if self._end_offset < 0:
            raise ValueError("a segment holds at least one batch")
        content = self._index.SerializeToString(deterministic=True)
        tail = content + _trailer.pack(len(content), crc32c(content), _TRAILER_MAGIC)
        info = SegmentInfo(
            self._segment,
            self._first_offset,
            self._end_offset,
            self._position + len(tail),
            self._position,
            self._records,
            self._first_timestamp,
            self._max_timestamp,
        )
        return EncodedSegment([*self._parts, tail], info)

    def _close(self, block: _Block, rest: Buffer, end: int) -> None:
        """Note the block, which `rest` completes and which ends at byte `end`."""
        index = self._index
        index.base_offset.append(block.base_offset)
        index.end_offset.append(self._end_offset)
        index.position.append(block.position)
        index.length.append(end - block.position)
        index.max_timestamp_ms.append(block.newest_ms)
        index.crc32c.append(crc32c(rest, block.crc))
        self._max_timestamp = max(self._max_timestamp, block.newest_ms)
        self._block = None


@dataclass(slots=True)
class _Block:
    """The block being filled: where it begins, and what is known of the batches before the current buffer."""

    base_offset: int
    position: int
    newest_ms: int = -1
    crc: int = 0


def _batch_at(buffer: memoryview, position: int) -> tuple[int, int, int, int, int, int, int]:
    """The fields of `_batch` at this position. Raises CorruptBatch when the batch is not all there."""
    left = len(buffer) - position
    if left < _BATCH_HEADER_BYTES:
        raise CorruptBatch(f"{left} bytes at byte {position} are less than a batch header")
    fields: tuple[int, int, int, int, int, int, int] = _batch.unpack_from(buffer, position)
    if not _BATCH_HEADER_BYTES <= fields[1] + _LENGTH_PREFIX <= left:
        raise CorruptBatch(f"a batch length of {fields[1]} at byte {position}, {left} bytes are left")
    return fields


class BlockIndex:
    """The blocks of one segment, in the order of their offsets, as references that the chunk reader reads."""

    __slots__ = ("_ends", "_newest", "blocks")

    def __init__(self, blocks: Sequence[SliceRef]) -> None:
        self.blocks = blocks
        self._ends = [block.end_offset for block in blocks]
        self._newest = max((block.max_timestamp_ms for block in blocks), default=-1)

    def plan(self, offset: int, max_bytes: int) -> list[SliceRef]:
        """The blocks from the first with a record at or after `offset` on, of at most `max_bytes` in sum.

        The first is always there, whole, however large (rule 7). Empty when no record is left from there on.
        """
        planned: list[SliceRef] = []
        left = max_bytes
        for number in range(bisect_right(self._ends, offset), len(self.blocks)):
            block = self.blocks[number]
            left -= block.length
            if left < 0 and planned:
                break
            planned.append(block)
        return planned

    def by_timestamp(self, timestamp_ms: int, offset: int) -> SliceRef | None:
        """The first block that ends above `offset` and claims this timestamp or a later one."""
        if self._newest < timestamp_ms:
            return None
        for number in range(bisect_right(self._ends, offset), len(self.blocks)):
            if self.blocks[number].max_timestamp_ms >= timestamp_ms:
                return self.blocks[number]
        return None

    def max_timestamp(self, offset: int) -> SliceRef | None:
        """The first block with the highest timestamp of those that end above `offset`; None without any."""
        live = self.blocks[bisect_right(self._ends, offset) :]
        return max(live, key=lambda block: block.max_timestamp_ms) if live else None


def encode_header(cluster_id: bytes, segment: SegmentId) -> bytes:
    """The first HEADER_BYTES bytes of a segment."""
    if len(cluster_id) != CLUSTER_ID_BYTES:
        raise ValueError(f"a cluster id has {CLUSTER_ID_BYTES} bytes, not {len(cluster_id)}")
    front = _header.pack(_HEADER_MAGIC, VERSION, HEADER_BYTES, cluster_id, *segment, 0)[:-4]
    return front + struct.pack(">I", crc32c(front))


def decode_header(data: Buffer) -> tuple[bytes, SegmentId]:
    """The cluster (16 bytes) and the name of a segment. Raises CorruptSegment."""
    if len(data) < HEADER_BYTES:
        raise CorruptSegment(f"{len(data)} bytes are less than a segment header of {HEADER_BYTES}")
    magic, version, _, cluster_id, incarnation, partition, number, crc = _header.unpack_from(data)
    if magic != _HEADER_MAGIC:
        raise CorruptSegment(f"not a segment: it begins with {magic!r}")
    if version != VERSION:
        raise CorruptSegment(f"segment version {version}, this code reads {VERSION}: use a newer agent")
    if crc32c(memoryview(data)[: HEADER_BYTES - 4]) != crc:
        raise CorruptSegment("the segment header's checksum does not match")
    return cluster_id, SegmentId(incarnation, partition, number)


def decode_index(tail: Buffer, info: SegmentInfo) -> BlockIndex:
    """The blocks of a segment, from its bytes [index_position, size). Raises CorruptSegment."""
    view = memoryview(tail)
    if len(view) != info.size - info.index_position or len(view) < TRAILER_BYTES:
        raise CorruptSegment(f"{len(view)} bytes are not the index of a segment of {info.size} bytes")
    length, crc, magic = _trailer.unpack(view[-TRAILER_BYTES:])
    content = view[:-TRAILER_BYTES]
    if magic != _TRAILER_MAGIC or length != len(content) or crc32c(content) != crc:
        raise CorruptSegment(f"the index at byte {info.index_position} does not match its trailer")
    try:
        message = IndexMessage.FromString(bytes(content))
    except DecodeError as error:
        raise CorruptSegment(f"the index is not what it should be: {error}") from error
    columns = (message.position, message.length, message.max_timestamp_ms, message.crc32c)
    if len({len(message.base_offset), len(message.end_offset), *map(len, columns)}) != 1:
        raise CorruptSegment("the index's columns have different lengths")
    names = (info.segment,) * len(message.base_offset)
    return BlockIndex(list(map(SliceRef, message.base_offset, message.end_offset, names, *columns)))


@dataclass(frozen=True, slots=True)
class Described:
    """What a segment says of itself: its name, where its index begins (bytes), and its blocks."""

    segment: SegmentId
    index_position: int
    index: BlockIndex


def described(data: Buffer) -> Described:
    """A whole segment without its manifest: header, index, the blocks' checksums. Raises CorruptSegment."""
    view = memoryview(data)
    segment = decode_header(view)[1]
    if len(view) < HEADER_BYTES + TRAILER_BYTES:
        raise CorruptSegment(f"{len(view)} bytes are less than a segment's header and trailer")
    position = len(view) - TRAILER_BYTES - int(_trailer.unpack(view[-TRAILER_BYTES:])[0])
    if position < HEADER_BYTES:
        raise CorruptSegment(f"its index would begin at byte {position}")
    info = SegmentInfo(segment, 0, 0, len(view), position, 0, 0, 0)
    index = decode_index(view[position:], info)
    due = HEADER_BYTES
    for block in index.blocks:
        if block.position != due or crc32c(view[due : due + block.length]) != block.crc:
            raise CorruptSegment(f"the block at byte {block.position} does not match, due was {due}")
        due += block.length
    if due != position:
        raise CorruptSegment(f"the blocks end at byte {due}, the index begins at {position}")
    return Described(segment, position, index)


def encode_index(blocks: Sequence[SliceRef]) -> bytes:
    """The last bytes of a segment of these blocks: index and trailer."""
    index = IndexMessage()
    for block in blocks:
        index.base_offset.append(block.base_offset)
        index.end_offset.append(block.end_offset)
        index.position.append(block.position)
        index.length.append(block.length)
        index.max_timestamp_ms.append(block.max_timestamp_ms)
        index.crc32c.append(block.crc)
    content = index.SerializeToString(deterministic=True)
    return content + _trailer.pack(len(content), crc32c(content), _TRAILER_MAGIC)


def verify(data: Buffer, info: SegmentInfo) -> BlockIndex:
    """Check a whole object against its name, its index and every checksum. Raises CorruptSegment."""
    view = memoryview(data)
    found = decode_header(view)[1]
    if found != info.segment or len(view) != info.size:
        raise CorruptSegment(f"the object says it is {found} and has {len(view)} bytes; due was {info}")
    index = decode_index(view[info.index_position :], info)
    position = HEADER_BYTES
    for block in index.blocks:
        end = block.position + block.length
        if block.position != position or crc32c(view[position:end]) != block.crc:
            raise CorruptSegment(f"the block at byte {block.position} does not match, due was {position}")
        for start, size in split(view[position:end]):
            if not check_crc(view, position + start, position + start + size):
                raise CorruptSegment(f"the CRC of the batch at byte {position + start} does not match")
        position = end
    if position != info.index_position:
        raise CorruptSegment(f"the blocks end at byte {position}, the index begins at {info.index_position}")
    return index
