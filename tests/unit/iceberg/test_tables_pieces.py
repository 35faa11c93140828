"""Rows become columns in pieces whose memory is bounded, whatever their batches were compressed to."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from iceberg import layout, rows
from iceberg.rows import PIECE_BYTES, PIECE_ROWS, UNREADABLE_HEADER
from objectstore import batch
from objectstore.batch import Compression, NewRecord

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
