"""Record batches → Arrow record batches in a table's layout."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from iceberg.layout import Layout, Part
from objectstore import batch as record_batch
from objectstore.batch import BatchHeader, CorruptBatch, Headers, Record
from objectstore.transactions import Aborted, Transactions
from schema.framing import FramingError

PIECE_ROWS = 2_048
PIECE_BYTES = 1 << 20
"""Rows and bytes of keys, values and headers turned into columns at once, about: bounds memory, and how long
one call holds the interpreter (ms). What a batch was compressed to says nothing of either."""

OPENED_RECORDS_MAX = 65_536
"""Records of one batch that are held at once as Python objects, some hundred bytes each."""

UNREADABLE_HEADER = "floe.unreadable"
"""Key of the one header of a row that stands for a batch nobody can open; the value says why."""

_TIMESTAMP_MS_MAX = (1 << 63) // 1000 - 1


@dataclass(slots=True)
class _Piece:
    """Rows gathered, by column."""

    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    timestamp_types: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    size: int = 0

    @property
    def full(self) -> bool:
        """Whether it is time to make columns of it."""
        return len(self.offsets) >= PIECE_ROWS or self.size >= PIECE_BYTES

    def add(self, records: Sequence[Record], timestamp_type: int) -> None:
        """Append records, at least one."""
        offsets, timestamps, keys, values, headers = zip(*records, strict=True)
        self.offsets += offsets
        self.timestamps += timestamps
        self.timestamp_types += [timestamp_type] * len(records)
        self.keys += keys
        self.values += values
        self.headers += headers
        self.size += sum(map(len, filter(None, keys))) + sum(map(len, filter(None, values)))
        self.size += sum(map(_headers_size, filter(None, headers)))

    def cuts(self) -> Iterator[slice]:
        """The rows in runs of at most PIECE_ROWS, each ending with the row that makes it PIECE_BYTES."""
        first = size = 0
        if self.size >= 2 * PIECE_BYTES:  # a little more than PIECE_BYTES is not worth a cut
            rows = zip(self.keys, self.values, self.headers, strict=True)
            for row, (key, value, headers) in enumerate(rows, 1):
                size += len(key or b"") + len(value or b"") + _headers_size(headers)
                if size >= PIECE_BYTES or row - first == PIECE_ROWS:
                    yield slice(first, row)
                    first, size = row, 0
        for start in range(first, len(self.offsets), PIECE_ROWS):
            yield slice(start, start + PIECE_ROWS)


def _headers_size(headers: Headers) -> int:
    """Bytes of keys and values, about."""
    return sum(len(key) + len(value or b"") for key, value in headers)


def arrow_batches(
    layout: Layout,
    partition: int,
    slices: Sequence[memoryview],
    start: int,
    end: int,
    aborted: Sequence[Aborted] = (),
) -> Iterator[pa.RecordBatch]:
    """The records of one partition with start ≤ offset < end, in order, as the table's rows.

    Each element of `slices` is filled by record batches with their final offsets. Control batches and those
    of aborted transactions give no rows; a batch whose CRC holds but that cannot be opened gives one. Raises
    objectstore.batch.CorruptBatch for bytes that are not what was stored.
    """
    piece, transactions = _Piece(), Transactions(aborted)
    for view in slices:
        for position, size in record_batch.split(view):
            header = record_batch.peek(view, position)
            last = header.base_offset + header.last_offset_delta
            if header.control or last < start or header.base_offset >= end or transactions.aborted(header):
                continue
            for records in _opened(view[position : position + size], header, start, end):
                piece.add(records, header.timestamp_type)
                if piece.full:
                    yield from _cut(layout, partition, piece)
                    piece = _Piece()
    if piece.offsets:
        yield from _cut(layout, partition, piece)


def _opened(batch: memoryview, header: BatchHeader, start: int, end: int) -> Iterator[Sequence[Record]]:
    """The batch's records with start ≤ offset < end, at most OPENED_RECORDS_MAX at once, none empty.

    A batch gives all of its records or the one that stands for it, so a large one is gone through before.
    """
    try:
        if header.record_count > OPENED_RECORDS_MAX:
            deque(record_batch.records(batch), maxlen=0)
            first, found = [], record_batch.records(batch)
        else:
            first, found = list(record_batch.records(batch)), iter(())
    except CorruptBatch as error:
        if not record_batch.check_crc(batch, 0, len(batch)):
            raise
        first, found = [_unreadable(batch, error)], iter(())
    while records := first or list(islice(found, OPENED_RECORDS_MAX)):
        first = []
        if records[0].offset < start or records[-1].offset >= end:
            records = [each for each in records if start <= each.offset < end]
        if records:
            yield records


def _unreadable(batch: memoryview, error: CorruptBatch) -> Record:
    """What a batch that no consumer can open becomes: one row at its first offset that keeps its bytes.

    Its CRC holds, so these are the bytes that its producer sent; a table must not wait for them for ever.
    """
    header = record_batch.peek(batch)
    last = header.base_offset + header.last_offset_delta
    reason = f"batch of offsets {header.base_offset} to {last} cannot be opened: {error}"
    marks = [(UNREADABLE_HEADER, reason.encode())]
    return Record(header.base_offset, header.max_timestamp, None, bytes(batch), marks)


def _cut(layout: Layout, partition: int, piece: _Piece) -> Iterator[pa.RecordBatch]:
    """The piece as columns; a large record batch is cut into several."""
    for rows in piece.cuts():
        columns = [
            _kafka(layout, partition, piece, rows),
            _message(layout.arrow.field("key").type, layout.key, piece.keys[rows], keep_raw=True),
            _message(
                layout.arrow.field("value").type, layout.value, piece.values[rows], keep_raw=layout.raw_bytes
            ),
            _headers(layout.arrow.field("headers").type, piece.headers[rows]),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=layout.arrow)


def _kafka(layout: Layout, partition: int, piece: _Piece, rows: slice) -> pa.StructArray:
    offsets, timestamps = piece.offsets[rows], piece.timestamps[rows]
    if max(timestamps) > _TIMESTAMP_MS_MAX or min(timestamps) < -_TIMESTAMP_MS_MAX:
        timestamps = [max(-_TIMESTAMP_MS_MAX, min(_TIMESTAMP_MS_MAX, each)) for each in timestamps]
    micros = pc.multiply(pa.array(timestamps, pa.int64()), 1000)
    return pa.StructArray.from_arrays(
        [
            pa.repeat(pa.scalar(partition, pa.int32()), len(offsets)),
            pa.array(offsets, pa.int64()),
            micros.view(pa.timestamp("us", tz="UTC")),
            pa.array(piece.timestamp_types[rows], pa.int32()),
        ],
        fields=list(layout.arrow.field("kafka").type),
    )


def _message(
    kind: pa.StructType, part: Part, records: Sequence[bytes | None], *, keep_raw: bool
) -> pa.StructArray:
    raw = pa.array(records, pa.binary())
    errors: dict[int, str] = {}
    arrays: list[pa.Array] = []
    if part.decoder is not None:
        framed = pc.any(pc.starts_with(raw, b"\x00")).as_py()
        payloads = _payloads(part, records, errors) if framed else records
        decoded = part.decoder.decode(payloads)
        arrays = decoded.arrays
        errors |= decoded.errors
        if not keep_raw:
            raw = pa.array([each if row in errors else None for row, each in enumerate(records)], pa.binary())
    own = [raw]
    if kind.get_field_index("__err__") >= 0:
        own.append(
            pa.array([errors.get(row) for row in range(len(records))], pa.string())
            if errors
            else pa.nulls(len(records), pa.string())
        )
    mask = pa.array([each is None for each in records]) if None in records else None
    return pa.StructArray.from_arrays([*own, *arrays], fields=list(kind), mask=mask)


def _payloads(part: Part, records: Sequence[bytes | None], errors: dict[int, str]) -> list[bytes | None]:
    payloads: list[bytes | None] = []
    for row, record in enumerate(records):
        try:
            payloads.append(None if record is None else part.payload(record))
        except FramingError as error:
            errors[row] = str(error)
            payloads.append(None)
    return payloads


def _headers(kind: pa.ListType, headers: Sequence[Headers]) -> pa.ListArray:
    if not any(headers):
        return pa.array([[]] * len(headers), kind)
    ends = [0]
    pairs: list[tuple[str, bytes | None]] = []
    for each in headers:
        pairs += each
        ends.append(len(pairs))
    keys = pa.array([key for key, _ in pairs], pa.string())
    values = pa.array([value for _, value in pairs], pa.binary())
    element = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), element, type=kind)
