"""Record batches → Arrow record batches in a table's layout."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from coordination.state.types import Span
from iceberg import flat_rows
from iceberg.arrow_types import FIELD_ID
from iceberg.conforming import conformed, interleaved
from iceberg.evolution import KEY_RAW_ID, VALUE_ERROR_ID, VALUE_RAW_ID
from iceberg.layout import KEY, Framed, Layout, Messages, MissingSchemas, Part
from objectstore import batch as record_batch
from objectstore import columns as record_columns
from objectstore.batch import BatchHeader, CorruptBatch, Headers, Record
from objectstore.columns import Columns, headers_size
from objectstore.transactions import Aborted, Transactions
from schema import framing
from schema.framing import FramingError

PIECE_ROWS = 2_048
PIECE_BYTES = 1 << 20
"""Rows and bytes of keys, values and headers turned into columns at once, about: spans memory, and how long
one call holds the interpreter (ms). What a batch was compressed to says nothing of either."""

OPENED_RECORDS_MAX = 65_536
"""Records of one batch that are held at once, each a key and a value and some tens of bytes besides."""

UNREADABLE_HEADER = "floe.unreadable"
"""Key of the one header of a row that stands for a batch nobody can open; the value says why."""

_TIMESTAMP_MS_MAX = (1 << 63) // 1000 - 1


_NOTHING_BOUND = Span(0, 0, 0)


@dataclass(slots=True)
class _Piece:
    """Rows gathered, by column, all of one binding. `unreadable`: it is one row for a batch, and why."""

    bound: Span
    unreadable: str = ""
    records: Columns = field(default_factory=record_columns.none)
    timestamp_types: array[int] = field(default_factory=lambda: array("i"))

    @property
    def full(self) -> bool:
        """Whether it is time to make columns of it."""
        return len(self.records) >= PIECE_ROWS or self.records.size >= PIECE_BYTES

    def add(self, records: Columns, timestamp_type: int) -> None:
        """Append records."""
        self.records += records
        self.timestamp_types += array("i", [timestamp_type]) * len(records)

    def cuts(self) -> Iterator[slice]:
        """The rows in runs of at most PIECE_ROWS, each ending with the row that makes it PIECE_BYTES."""
        first = size = 0
        records = self.records
        if records.size >= 2 * PIECE_BYTES:  # a little more than PIECE_BYTES is not worth a cut
            rows = zip(records.keys, records.values, records.headers, strict=True)
            for row, (key, value, headers) in enumerate(rows, 1):
                size += len(key or b"") + len(value or b"") + headers_size(headers)
                if size >= PIECE_BYTES or row - first == PIECE_ROWS:
                    yield slice(first, row)
                    first, size = row, 0
        for start in range(first, len(records), PIECE_ROWS):
            yield slice(start, start + PIECE_ROWS)


def arrow_batches(
    layout: Layout,
    partition: int,
    slices: Sequence[memoryview],
    start: int,
    end: int,
    aborted: Sequence[Aborted] = (),
    spans: Sequence[Span] = (),
) -> Iterator[pa.RecordBatch]:
    """The records of one partition with start ≤ offset < end, in order, as the table's rows.

    Each element of `slices` is filled by record batches with their final offsets. Control batches and those
    of aborted transactions give no rows; a batch whose CRC holds but that cannot be opened gives one.
    `spans`: by what records were judged, in order, from `start` or earlier on; none: by what is bound now.
    Raises objectstore.batch.CorruptBatch for bytes that are not what was stored, and layout.MissingSchemas.
    """
    spans = spans or [Span(start, layout.key.current, layout.value.current)]
    piece, transactions = _Piece(spans[0]), Transactions(aborted)
    for records, timestamp_type, unreadable in _read(slices, start, end, transactions):
        for run, bound in _runs(records, spans):
            if piece.full or piece.unreadable or unreadable or bound is not piece.bound:
                if piece.records:
                    yield from _cut(layout, partition, piece)
                piece = _Piece(bound, unreadable)
            piece.add(run, timestamp_type)
    if piece.records:
        yield from _cut(layout, partition, piece)


def _read(
    slices: Sequence[memoryview], start: int, end: int, transactions: Transactions
) -> Iterator[tuple[Columns, int, str]]:
    """Records of one batch with their timestamp type; a batch that nobody can open as one, and why."""
    for view in slices:
        for position, size in record_batch.split(view):
            header = record_batch.peek(view, position)
            last = header.base_offset + header.last_offset_delta
            if header.control or last < start or header.base_offset >= end or transactions.aborted(header):
                continue
            batch = view[position : position + size]
            try:
                for records in _opened(batch, header, start, end):
                    yield records, header.timestamp_type, ""
            except _Unreadable as why:
                if header.base_offset >= start:
                    yield _stands_for(batch, header, str(why)), header.timestamp_type, str(why)


def _runs(records: Columns, spans: Sequence[Span]) -> Iterator[tuple[Columns, Span]]:
    """The records in runs of one binding."""
    at = bisect_right(spans, records.offsets[0], key=lambda each: each.first_offset) - 1
    while records:
        bound, until = spans[max(at, 0)], spans[at + 1].first_offset if at + 1 < len(spans) else None
        if until is None or records.offsets[-1] < until:
            yield records, bound
            return
        run = records.only([each < until for each in records.offsets])
        if run:
            yield run, bound
        records, at = records[len(run) :], at + 1


class _Unreadable(Exception):
    """A batch whose CRC holds cannot be opened; the reason says its offsets."""


def _opened(batch: memoryview, header: BatchHeader, start: int, end: int) -> Iterator[Columns]:
    """The batch's records with start ≤ offset < end, at most OPENED_RECORDS_MAX at once, none empty.

    A batch gives all of its records or raises _Unreadable first, so a large one is gone through before.
    """
    try:
        if header.record_count > OPENED_RECORDS_MAX:
            deque(record_columns.columns(batch, OPENED_RECORDS_MAX), maxlen=0)
            found = record_columns.columns(batch, OPENED_RECORDS_MAX)
        else:
            found = iter([*record_columns.columns(batch, OPENED_RECORDS_MAX)])
    except CorruptBatch as error:
        if not record_batch.check_crc(batch, 0, len(batch)):
            raise
        last = header.base_offset + header.last_offset_delta
        where = f"batch of offsets {header.base_offset} to {last}"
        raise _Unreadable(f"{where} cannot be opened: {error}") from error
    for records in found:
        if records.offsets[0] < start or records.offsets[-1] >= end:
            records = records.only([start <= each < end for each in records.offsets])
        if records:
            yield records


def _stands_for(batch: memoryview, header: BatchHeader, reason: str) -> Columns:
    """What a batch that no consumer can open becomes: one row at its first offset that keeps its bytes.

    Its CRC holds, so these are the bytes that its producer sent; a table must not wait for them for ever.
    """
    marks = [(UNREADABLE_HEADER, reason.encode())]
    return record_columns.of_records(
        [Record(header.base_offset, header.max_timestamp, None, bytes(batch), marks)]
    )


def _cut(layout: Layout, partition: int, piece: _Piece) -> Iterator[pa.RecordBatch]:
    """The piece as columns; a large record batch is cut into several."""
    bound = piece.bound if not piece.unreadable else _NOTHING_BOUND
    keys, values = layout.nested.field("key").type, layout.nested.field("value").type
    for rows in piece.cuts():
        columns = [
            _kafka(layout, partition, piece, rows),
            _message(
                keys,
                layout.key,
                bound.key_schema_id,
                piece.records.keys[rows],
                piece.records.headers[rows],
                keep_raw=True,
            ),
            _message(
                values,
                layout.value,
                bound.value_schema_id,
                piece.records.values[rows],
                piece.records.headers[rows],
                keep_raw=layout.raw_bytes,
                unreadable=piece.unreadable,
            ),
            _headers(layout.arrow.field("headers").type, piece.records.headers[rows]),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=layout.nested)
        yield flat_rows.flat_rows(batch, layout.arrow) if layout.flat else batch


def _kafka(layout: Layout, partition: int, piece: _Piece, rows: slice) -> pa.StructArray:
    offsets, timestamps = piece.records.offsets[rows], piece.records.timestamps[rows]
    if max(timestamps) > _TIMESTAMP_MS_MAX or min(timestamps) < -_TIMESTAMP_MS_MAX:
        inside = (max(-_TIMESTAMP_MS_MAX, min(_TIMESTAMP_MS_MAX, each)) for each in timestamps)
        timestamps = array("q", inside)
    micros = pc.multiply(_integers(timestamps, pa.int64()), 1000)
    return pa.StructArray.from_arrays(
        [
            pa.repeat(pa.scalar(partition, pa.int32()), len(offsets)),
            _integers(offsets, pa.int64()),
            micros.view(pa.timestamp("us", tz="UTC")),
            _integers(piece.timestamp_types[rows], pa.int32()),
        ],
        fields=list(layout.arrow.field("kafka").type),
    )


def _integers(numbers: array[int], kind: pa.DataType) -> pa.Array:
    """The numbers where they are, which nobody may change any more."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


@dataclass(frozen=True, slots=True)
class _Group:
    """The rows of one schema, and their messages."""

    part: Part
    rows: Sequence[int]
    payloads: Sequence[bytes | None]


def _message(
    kind: pa.StructType,
    messages: Messages,
    bound: int,
    records: Sequence[bytes | None],
    headers: Sequence[Headers],
    *,
    keep_raw: bool,
    unreadable: str = "",
) -> pa.StructArray:
    """The records as `key` or `value`: raw, and decoded by the schema that a frame names, else by `bound`.

    Where that follows a subject the frame may be in a header.

    Where none was bound there is nothing to decode, whatever the bytes look like.
    """
    count = len(records)
    raw = pa.array(records, pa.binary())
    mask = raw.is_null() if raw.null_count else None
    errors = {0: unreadable} if unreadable else {}
    columns: dict[str, pa.Array] = {}
    if bound:
        groups = _by_schema(messages, bound, records, headers, raw, errors)
        columns = _decoded(kind, groups, count, errors)
        if not keep_raw:
            raw = _unshown(records, groups, errors)
    own = {KEY_RAW_ID: raw, VALUE_RAW_ID: raw, VALUE_ERROR_ID: _errors(errors, count)}
    arrays = []
    for each in kind:
        array = own.get(int(each.metadata[FIELD_ID]))
        array = array if array is not None else columns.get(each.name)
        arrays.append(array if array is not None else pa.nulls(count, each.type))
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)


def _unshown(
    records: Sequence[bytes | None], groups: Sequence[_Group], errors: Mapping[int, str]
) -> pa.BinaryArray:
    """The bytes of those records that no column shows."""
    if not errors and len(groups) == 1 and len(groups[0].rows) == len(records):  # as nearly always
        return pa.nulls(len(records), pa.binary())
    shown = {row for each in groups for row in each.rows if row not in errors}
    return pa.array([None if row in shown else each for row, each in enumerate(records)], pa.binary())


def _errors(errors: Mapping[int, str], count: int) -> pa.Array:
    if not errors:
        return pa.nulls(count, pa.string())
    return pa.array([errors.get(row) for row in range(count)], pa.string())


def _by_schema(
    messages: Messages,
    bound: int,
    records: Sequence[bytes | None],
    headers: Sequence[Headers],
    raw: pa.Array,
    errors: dict[int, str],
) -> list[_Group]:
    """The records by their schema, without those whose schema has no columns. Raises MissingSchemas."""
    usual = messages.parts.get(bound)
    if usual is None:
        raise MissingSchemas([bound])
    if usual.follows:
        role = "key" if messages.role == KEY else "value"
        return _by_frame(messages, framing.composed_all(role, records, headers), errors)
    if not pc.any(pc.starts_with(raw, b"\x00")).as_py():
        return [_Group(usual, range(len(records)), records)] if usual.decoder is not None else []
    found: dict[int, tuple[Part, list[int], list[bytes]]] = {}
    missing: set[int] = set()
    for row, record in enumerate(records):
        if record is None:
            continue
        part, payload = usual, record
        if usual.prefix and record.startswith(usual.prefix):
            payload = record[len(usual.prefix) :]
        elif record[:1] == b"\x00":
            try:
                frame = framing.parse(record)
                part, payload = messages.part(frame), record[frame.start :]
            except FramingError as error:
                errors[row] = str(error)
                continue
            except MissingSchemas as others:
                missing |= others.schema_ids
                continue
        if part.decoder is not None:
            _, rows, payloads = found.setdefault(id(part), (part, [], []))
            rows.append(row)
            payloads.append(payload)
    if missing:
        raise MissingSchemas(missing)
    return [_Group(*each) for each in found.values()]


def _by_frame(messages: Messages, records: Sequence[bytes | None], errors: dict[int, str]) -> list[_Group]:
    """The same of records that name a schema of the registry, all of them."""
    found: dict[int, tuple[Part, list[int], list[bytes]]] = {}
    missing: set[tuple[int, Framed]] = set()
    for row, record in enumerate(records):
        if record is None:
            continue
        try:
            part, start = messages.named(record)
        except FramingError as error:
            errors[row] = str(error)
            continue
        except MissingSchemas as others:
            missing |= others.framed
            continue
        if part.problem:
            errors[row] = part.problem
        elif part.decoder is not None:
            _, rows, payloads = found.setdefault(id(part), (part, [], []))
            rows.append(row)
            payloads.append(record[start:])
    if missing:
        raise MissingSchemas((), missing)
    return [_Group(*each) for each in found.values()]


def _decoded(
    kind: pa.StructType, groups: Sequence[_Group], count: int, errors: dict[int, str]
) -> dict[str, pa.Array]:
    """The columns that these rows have, by name; rows without good message are null in all of them."""
    parts: dict[str, list[tuple[Sequence[int], pa.Array]]] = {}
    for group in groups:
        decoder = group.part.decoder
        assert decoder is not None, "a group is of a schema with columns"
        done = decoder.decode(group.payloads)
        errors |= {group.rows[row]: why for row, why in done.errors.items()}
        for each, decoded in zip(decoder.fields, done.arrays, strict=True):
            wanted = kind.field(each.name).type
            parts.setdefault(each.name, []).append((group.rows, conformed(decoded, wanted)))
    return {
        name: found[0][1] if len(found[0][0]) == count else interleaved(found, count)
        for name, found in parts.items()
    }


def _headers(kind: pa.ListType, headers: Sequence[Headers]) -> pa.ListArray:
    if not any(headers):
        ends, element = pa.repeat(pa.scalar(0, pa.int32()), len(headers) + 1), pa.array([], kind.value_type)
        return pa.ListArray.from_arrays(ends, element, type=kind)
    ends = [0]
    pairs: list[tuple[str, bytes | None]] = []
    for each in headers:
        pairs += each
        ends.append(len(pairs))
    keys = pa.array([key for key, _ in pairs], pa.string())
    values = pa.array([value for _, value in pairs], pa.binary())
    element = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), element, type=kind)
