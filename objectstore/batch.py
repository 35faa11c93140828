"""Record batch v2 (KIP-98): look at headers, check, patch; batches otherwise stay opaque.

    base offset 8 | length 4 | leader epoch 4 | magic 1 | crc 4 | attributes 2 | last offset delta 4
    | base timestamp 8 | max timestamp 8 | producer id 8 | epoch 2 | base sequence 4 | count 4 | records

The CRC-32C covers everything from the attributes on, so the base offset and the leader epoch can
be patched without touching it. Records themselves are read and written by aiokafka's codec; a batch
that was not written here is hostile until it has been decoded.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count as numbers
from operator import attrgetter, ne
from typing import NamedTuple, Protocol

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c

from objectstore import native
from objectstore.compression import CannotDecompress, Compression, compress, decompress

Buffer = bytes | bytearray | memoryview
_Look = Callable[[Buffer, int, int, bool], str | None]

try:
    native.ask()
    from objectstore._frames import look
except (
    ImportError
):  # nobody compiled it where this was installed, or it is off: the codec does the same, at its price
    _look: _Look | None = None
else:
    _look = look

NATIVE = _look is not None
"""Whether batches are looked through by the native walk (_frames.c)."""

HEADER_BYTES = 61
LOG_OVERHEAD = 12  # bytes before those that batch_length counts
MAGIC = 2
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1
DECODED_BYTES_MAX = 128 * 1024 * 1024  # what one batch may become when its records are read

_header = struct.Struct(">qiibIhiqqqhii")
_offset = struct.Struct(">q")
_offset_of = attrgetter("offset")
_epoch = struct.Struct(">i")
_make = tuple.__new__  # what BatchHeader._make does but for counting, which the format has done
_crc = struct.Struct(">I")
_delta = struct.Struct(">i")
_EPOCH_AT = 12
_MAGIC_AT = 16
_CRC_AT = 17
_CRC_FROM = 21
_DELTA_AT = 23
_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD
_OFFSETS_MAX = 1 << 31  # that one batch can take
_BATCH_BYTES_MAX = (1 << 31) - 1  # batch_length is an int32
_CODEC_MASK = 0x07
_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
DELETE_HORIZON = 0x40  # the base timestamp is when tombstones and markers of the batch may go (KIP-534)
NO_FIRST_TIME = (
    DELETE_HORIZON | _APPEND_TIME
)  # attributes of batches whose base timestamp is no record's time


class CorruptBatch(ValueError):
    """The bytes are not a sound record batch. Kafka's CORRUPT_MESSAGE or INVALID_RECORD."""


class UnknownMagic(CorruptBatch):
    """A message format other than 2: too old for Kafka 4, or from the future."""


class BatchHeader(NamedTuple):
    """The 61 bytes before the records. `batch_length` counts the bytes after itself."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def compression(self) -> Compression:
        """The codec of the records. Raises CorruptBatch for a number Kafka does not know."""
        codec = self.attributes & _CODEC_MASK
        if codec > Compression.ZSTD:
            raise CorruptBatch(f"attributes name codec {codec}; Kafka knows 0 to {int(Compression.ZSTD)}")
        return Compression(codec)

    @property
    def timestamp_type(self) -> int:
        """0: CreateTime, 1: LogAppendTime."""
        return (self.attributes & _APPEND_TIME) >> 3

    @property
    def transactional(self) -> bool:
        """Part of a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """A marker written by the broker, never by a client."""
        return bool(self.attributes & _CONTROL)

    @property
    def last_offset(self) -> int:
        """The last offset that the batch takes."""
        return self.base_offset + self.last_offset_delta

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop its tombstones and markers, Unix ms; None before one has seen them."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """A record as a consumer sees it. `timestamp` in Unix ms, -1 for none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Content(Protocol):
    """A record's key, value and headers."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


class NewRecord(NamedTuple):
    """A record before it has an offset. `timestamp` in Unix ms, -1 for none."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def peek(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header of the batch at `pos`, of which all bytes must be in `buf`.

    Raises UnknownMagic and CorruptBatch. The CRC is not looked at.
    """
    try:
        header = _make(BatchHeader, _header.unpack_from(buf, pos))
    except struct.error:
        raise _too_short(buf, pos) from None
    if header[3] != MAGIC:
        raise UnknownMagic(f"magic {header[3]}, only {MAGIC} is stored")
    length = header[1]
    if length < _LENGTH_MIN or pos + LOG_OVERHEAD + length > len(buf):
        raise CorruptBatch(
            f"batch length {length} at byte {pos}: at least {_LENGTH_MIN} and at most the "
            f"{len(buf) - pos - LOG_OVERHEAD} bytes that follow are possible"
        )
    return header


def _too_short(buf: Buffer, pos: int) -> CorruptBatch:
    left = len(buf) - pos
    if left > _MAGIC_AT and pos >= 0 and buf[pos + _MAGIC_AT] != MAGIC:
        return UnknownMagic(f"magic {buf[pos + _MAGIC_AT]}, only {MAGIC} is stored")
    return CorruptBatch(f"{left} bytes at byte {pos} are less than a batch header of {HEADER_BYTES}")


def check_crc(buf: Buffer, pos: int, end: int) -> bool:
    """Whether the batch in [pos, end) has the CRC-32C that its header says. Releases the GIL."""
    (expected,) = _crc.unpack_from(buf, pos + _CRC_AT)
    if not isinstance(buf, memoryview):
        buf = memoryview(buf)
    return bool(crc32c(buf[pos + _CRC_FROM : end]) == expected)


def split(buf: Buffer) -> list[tuple[int, int]]:
    """(position, size) of each batch; they fill `buf` exactly. Raises CorruptBatch."""
    first = peek(buf)
    position = first.batch_length + LOG_OVERHEAD
    batches = [(0, position)]
    while position < len(buf):
        size = peek(buf, position).batch_length + LOG_OVERHEAD
        batches.append((position, size))
        position += size
    return batches


def patch(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int = 0) -> None:
    """Write the offset that apply gave the batch at `pos`, and the epoch; the CRC does not cover them."""
    _offset.pack_into(buf, pos, base_offset)
    _epoch.pack_into(buf, pos + _EPOCH_AT, leader_epoch)


def offsets_of(buf: Buffer, pos: int) -> int:
    """How many offsets the batch at `pos` takes, which has been looked at before."""
    return int(_delta.unpack_from(buf, pos + _DELTA_AT)[0]) + 1


def patch_all(buf: bytearray | memoryview, base_offset: int, leader_epoch: int = 0) -> int:
    """Patch batches that fill `buf`, the first at `base_offset`; returns the offset after the last.

    Raises CorruptBatch when they do not fill it.
    """
    position, end = 0, len(buf)
    while position < end:
        header = peek(buf, position)
        patch(buf, position, base_offset, leader_epoch)
        base_offset += header[6] + 1
        position += header[1] + LOG_OVERHEAD
    return base_offset


def with_append_time(batch: Buffer, now_ms: int) -> bytes:
    """One batch as Kafka rewrites it for message.timestamp.type=LogAppendTime, with its new CRC.

    Only the header says so: record timestamps are then ignored by readers (KIP-32). Raises CorruptBatch.
    """
    header = peek(batch)
    stamped = header._replace(attributes=header.attributes | _APPEND_TIME, max_timestamp=now_ms)
    with memoryview(batch) as view:
        return seal(stamped, view[HEADER_BYTES : header.size])


def seal(header: BatchHeader, *records: Buffer) -> bytes:
    """One batch of `header` over `records` (compressed already; in pieces), with length, magic and CRC."""
    length = _LENGTH_MIN + sum(map(len, records))
    front = _header.pack(*header._replace(batch_length=length, magic=MAGIC, crc=0))
    crc = crc32c(front[_CRC_FROM:])
    for piece in records:
        crc = crc32c(piece, crc)
    return b"".join((front[:_CRC_AT], _crc.pack(crc), front[_CRC_FROM:], *records))


def empty_batch(base_offset: int, end_offset: int) -> bytes:
    """A batch without records that takes the offsets [base_offset, end_offset): Kafka's cleaner leaves such.

    Consumers go on behind it.
    """
    delta = min(end_offset - base_offset, _OFFSETS_MAX) - 1
    header = BatchHeader(
        base_offset, 0, 0, MAGIC, 0, 0, delta, NO_TIMESTAMP, NO_TIMESTAMP, NO_PRODUCER_ID, -1, -1, 0
    )
    return seal(header, b"")


def records(buf: Buffer, decoded_bytes_max: int = DECODED_BYTES_MAX) -> Iterator[Record]:
    """Every record of the batches that fill `buf`, in order; control batches' records too.

    Timestamps are what a consumer sees: the batch's append time where it has one. Raises CorruptBatch
    where the bytes are not sound or one batch decodes to more than `decoded_bytes_max` bytes. The CRC
    is not looked at.
    """
    for position, size in split(buf):
        with memoryview(buf) as view:
            padded = uncompressed(view[position : position + size], decoded_bytes_max)
        try:
            for each in DefaultRecordBatch(memoryview(padded)[:-OVERRUN_BYTES]):
                timestamp = each.timestamp
                yield Record(
                    each.offset,
                    NO_TIMESTAMP if timestamp is None else timestamp,
                    each.key,
                    each.value,
                    each.headers,
                )
        except BROKEN_RECORDS as error:
            raise CorruptBatch(f"records of the batch at byte {position}: {error}") from error


def contents(buf: Buffer, decoded_bytes_max: int = DECODED_BYTES_MAX) -> Iterator[Content]:
    """Keys, values and headers of every record of the batches that fill `buf`, in order.

    At a fifth of the cost of `records`, and raises as it does.
    """
    for position, size in split(buf):
        with memoryview(buf) as view:
            padded = uncompressed(view[position : position + size], decoded_bytes_max)
        try:
            yield from DefaultRecordBatch(memoryview(padded)[:-OVERRUN_BYTES])
        except BROKEN_RECORDS as error:
            raise CorruptBatch(f"records of the batch at byte {position}: {error}") from error


def look_through(batch: Buffer, decoded_bytes_max: int = DECODED_BYTES_MAX) -> None:
    """Raise CorruptBatch unless the one batch's records can be read and are what its header says.

    Lengths, variable-length numbers, headers, the count and that nothing is left over, all in native code;
    of a compressed batch also that offsets are side by side, as Kafka demands of these only.
    """
    header = peek(batch)
    compressed = header.attributes & _CODEC_MASK > 0
    plain = batch
    if compressed or len(batch) > decoded_bytes_max:
        with memoryview(batch) as view:
            plain = memoryview(uncompressed(view, decoded_bytes_max))[:-OVERRUN_BYTES]
    look_at_plain(plain, header.record_count, dense=compressed)


def look_at_plain(batch: Buffer, record_count: int, *, dense: bool = False) -> None:
    """The same of a batch that is not compressed, or not any more. `dense`: offsets must be side by side."""
    if record_count < 0:
        raise CorruptBatch(f"record count {record_count}")
    if _look is None:
        _look_by_codec(batch, dense=dense)
        return
    wrong = _look(batch, HEADER_BYTES, record_count, dense)
    if wrong is not None:
        raise CorruptBatch(wrong)


def _look_by_codec(plain: Buffer, *, dense: bool) -> None:
    """The same by an object for each record."""
    padded = b"".join((plain, _OVERRUN))
    found = DefaultRecordBatch(memoryview(padded)[:-OVERRUN_BYTES])
    try:
        if not dense:
            deque(found, maxlen=0)
        elif any(map(ne, map(_offset_of, found), numbers(found.base_offset))):
            raise CorruptBatch("the offsets of its records are not side by side")
    except BROKEN_RECORDS as error:
        raise CorruptBatch(str(error)) from error


# The codec reads variable-length numbers without looking where its buffer ends.
OVERRUN_BYTES = 16
_OVERRUN = bytes(OVERRUN_BYTES)
BROKEN_RECORDS = (CorruptRecordException, UnicodeDecodeError, OverflowError, MemoryError)


def uncompressed(batch: memoryview, limit: int) -> bytearray:
    """The batch with its records uncompressed and OVERRUN_BYTES behind them; raises CorruptBatch.

    Its length and CRC are those of the batch as it was. `limit`: bytes of records that it may decode to.
    """
    header = peek(batch)
    if header.record_count < 0:
        raise CorruptBatch(f"record count {header.record_count}")
    try:
        content = batch[HEADER_BYTES:]
        out = decompress(header.compression, content, limit, HEADER_BYTES, OVERRUN_BYTES)
    except CannotDecompress as error:
        raise CorruptBatch(f"records cannot be decompressed: {error}") from error
    _header.pack_into(out, 0, *header._replace(attributes=header.attributes & ~_CODEC_MASK))
    return out


def build(
    records: Iterable[NewRecord],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """A batch of `records` at consecutive offsets, as a producer would send it.

    Raises ValueError for no records, and for records of which only some have a timestamp: the
    format cannot tell these apart.
    """
    given = list(records)
    if not given or len({record.timestamp < 0 for record in given}) != 1:
        raise ValueError("a batch has at least one record, and either all records have timestamps or none")
    builder = DefaultRecordBatchBuilder(
        magic=MAGIC,
        compression_type=0,
        is_transactional=int(transactional),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        batch_size=_BATCH_BYTES_MAX,
    )
    for delta, (timestamp, key, value, headers) in enumerate(given):
        builder.append(delta, timestamp, key, value, list(headers))
    plain = builder.build()
    header = peek(plain)._replace(base_offset=base_offset)
    header = header._replace(attributes=header.attributes | compression)
    return seal(header, compress(compression, memoryview(plain)[HEADER_BYTES:]))
