"""Rows become columns in pieces whose memory is bounded, whatever their batches were compressed to; with and
without the native walk they are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pyarrow as pa
import pytest

from coordination.state.types import Span
from iceberg import layout, rows
from iceberg.layout import Binding, Bindings
from iceberg.rows import PIECE_BYTES, PIECE_ROWS, UNREADABLE_HEADER
from objectstore import batch, columns
from objectstore.batch import Compression, CorruptBatch, NewRecord
from objectstore.transactions import Aborted
from schema import framing
from tests.unit.objectstore.test_columns import odd_batch
from tests.unit.schema import samples

LAYOUT = layout.build(None, None)
MB = 1_000_000


def record(value: bytes | None, headers: tuple[tuple[str, bytes | None], ...] = ()) -> NewRecord:
    return NewRecord(1_700_000_000_000, b"k", value, headers)


def pieces(content: bytes, end: int, start: int = 0) -> Iterator[pa.RecordBatch]:
    return rows.arrow_batches(LAYOUT, 0, [memoryview(content)], start, end)


def offsets(found: list[pa.RecordBatch]) -> list[int]:
    return [offset for each in found for offset in each.column("kafka").field("offset").to_pylist()]


def test_batches_that_compress_well_do_not_become_one_large_piece() -> None:
    """264 kB stored were 2 GB of columns, and with records of 2 MB more than Arrow takes: stuck for ever."""
    made = [
        batch.build([record(bytes(MB))], base_offset=at, compression=Compression.ZSTD) for at in range(40)
    ]
    content = b"".join(made)
    assert len(content) < PIECE_BYTES / 50, "as stored, all of it was one piece"
    found = list(pieces(content, 40))
    assert max(each.nbytes for each in found) < PIECE_BYTES + 1.1 * MB, "more than the one that fills it"
    assert offsets(found) == list(range(40))


@pytest.mark.parametrize("headers", [False, True])
def test_one_batch_of_large_records_is_cut_by_bytes(headers: bool) -> None:
    large = bytes(MB // 2)
    made = [record(b"v", (("h", large), ("g", None))) if headers else record(large) for _ in range(60)]
    small = [record(b"x") for _ in range(3 * PIECE_ROWS)]
    content = batch.build([*made, *small], compression=Compression.GZIP)
    found = list(pieces(content, len(made) + len(small)))
    assert max(each.nbytes for each in found) < PIECE_BYTES + 1.1 * MB
    assert max(each.num_rows for each in found) <= PIECE_ROWS
    assert offsets(found) == list(range(len(made) + len(small)))


def test_small_records_still_go_many_at_once() -> None:
    content = batch.build([record(b"v" * 100) for _ in range(PIECE_ROWS)])
    assert len(list(pieces(content, PIECE_ROWS))) == 1


def test_a_batch_of_very_many_records_is_opened_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "OPENED_RECORDS_MAX", 100)
    content = batch.build([record(b"%d" % at) for at in range(1_050)], base_offset=7)
    view, header = memoryview(content), batch.peek(content)
    groups = list(rows._opened(view, header, 0, 2_000))
    assert [len(group) for group in groups] == [100] * 10 + [50]
    assert offsets(list(pieces(content, 1_000, start=250))) == list(range(250, 1_000))
    assert offsets(list(pieces(content, 2_000))) == list(range(7, 1_057))


def test_of_a_large_batch_that_breaks_off_no_record_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one row that keeps its bytes, not some good rows and then that one."""
    monkeypatch.setattr(rows, "OPENED_RECORDS_MAX", 100)
    good = batch.build([record(b"v") for _ in range(1_000)])
    records = bytes(good[batch.HEADER_BYTES : -1]) + b"\xff"  # the last one's count of headers is no number
    broken = batch.seal(batch.peek(good), records)
    (found,) = pieces(broken, 1_000)
    assert found.num_rows == 1
    assert found.column("value").field(0).to_pylist() == [broken]
    assert found.column("headers").to_pylist()[0][0]["key"] == UNREADABLE_HEADER


SCHEMA_ID = 3
SHORT = b'syntax = "proto3"; package p; message M { int32 n = 1; string s = 2; }'
BOUND = layout.build(
    None, Bindings((Binding(SCHEMA_ID, samples.descriptor_set(SHORT), "p.M"),), SCHEMA_ID, (SCHEMA_ID,))
)
VALUES = (
    b"\x08\x05",
    b"\x12\x01x\x08\x01",
    b"",
    None,
    b"\xff",
    framing.prefix(SCHEMA_ID, (0,)) + b"\x08\x07",
    b"\0",
)
"""As google.protobuf writes it, in another order, empty, a tombstone, bad, framed, a frame that is none."""


def drawn_batch(rng: Random, base_offset: int) -> tuple[bytes, int]:
    """A batch of one of the kinds that a slice may hold, and the offset behind it."""
    given = [
        NewRecord(rng.randrange(10**12), rng.choice((None, b"", b"k")), rng.choice(VALUES), headers)
        for headers in rng.choices(((), (("é", b"v"), ("n", None))), (5, 1), k=rng.randrange(1, 30))
    ]
    codec, producer = rng.choice(list(Compression)), rng.choice((-1, 4))
    raw = batch.build(
        given, base_offset=base_offset, compression=codec, producer_id=producer, transactional=producer > 0
    )
    header, kind = batch.peek(raw), rng.randrange(12)
    records = raw[batch.HEADER_BYTES :]
    if kind == 0:
        raw = batch.seal(header, records[:-1] + b"\xff")
    elif kind == 1:
        raw = batch.seal(header._replace(attributes=header.attributes | 0x20), records)
    elif kind == 2:
        raw = batch.with_append_time(raw, 10**12)
    elif kind == 3:
        odd = odd_batch(rng)
        raw = batch.seal(batch.peek(odd)._replace(base_offset=base_offset), odd[batch.HEADER_BYTES :])
    return raw, base_offset + header.last_offset_delta + 1


def drawn_table(rng: Random) -> Callable[[], list[pa.RecordBatch] | str]:
    """Makes the rows of some batches, or tells the error."""
    content, end = b"", 0
    for _ in range(rng.randrange(1, 8)):
        raw, end = drawn_batch(rng, end)
        content += raw
    if rng.random() < 0.3:  # not what was stored
        at = rng.randrange(len(content))
        content = content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
    first, last = sorted(rng.sample(range(end + 2), 2))
    spans = [Span(0, 0, SCHEMA_ID), Span(rng.randrange(1, end + 1), 0, 0)][: rng.randrange(1, 3)]
    aborted = [Aborted(4, 0, rng.randrange(end + 1))][: rng.randrange(2)]

    def made() -> list[pa.RecordBatch] | str:
        try:
            return list(rows.arrow_batches(BOUND, 0, [memoryview(content)], first, last, aborted, spans))
        except CorruptBatch as error:
            return str(error)

    return made


def test_rows_are_the_same_by_the_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, seen, errors = Random(2), 0, 0
    for _ in range(150):
        made = drawn_table(rng)
        natively = made()
        with monkeypatch.context() as patch:
            patch.setattr(columns, "_walk", None)
            assert made() == natively
        errors += isinstance(natively, str)
        seen += sum(each.num_rows for each in natively if not isinstance(each, str))
    assert errors > 3
    assert seen > 1_000
