"""Records by column, natively and by the codec, its oracle: the same rows, or the same error."""

from __future__ import annotations

import gc
import shutil
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from objectstore import batch, columns
from objectstore.batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    Headers,
    NewRecord,
    build,
    peek,
    seal,
    with_append_time,
)
from objectstore.columns import Columns
from objectstore.compression import Compression, compress
from objectstore.varint import zigzag
from tests.unit.objectstore.test_frames import ATTRIBUTES, LONG, damaged, record

ROUNDS = 3_000
INT64 = ((1 << 63) - 1, -(1 << 63))
Row = tuple[int, int, bytes | None, bytes | None, Headers]

WALKS: list[Any] = [columns._walk] if columns.NATIVE else []
"""The native walk, where it was compiled."""
native = pytest.mark.parametrize("walk", WALKS)


def test_where_a_compiler_is_records_become_columns_natively() -> None:
    assert columns.NATIVE or shutil.which("cc") is None


@pytest.fixture(params=["native", "codec"] if columns.NATIVE else ["codec"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the native walk, and where nobody compiled it."""
    if request.param == "codec":
        monkeypatch.setattr(columns, "_walk", None)
    return str(request.param)


def rows_of(found: Columns) -> list[Row]:
    """The rows; what is told of them holds."""
    assert len(found) == len(found.keys) > 0
    assert found.size == sum(
        len(key or b"")
        + len(value or b"")
        + sum(len(name.encode()) + len(more or b"") for name, more in headers)
        for key, value, headers in zip(found.keys, found.values, found.headers, strict=True)
    )
    given = zip(found.offsets, found.timestamps, found.keys, found.values, found.headers, strict=True)
    return [(offset, time, key, value, [*headers]) for offset, time, key, value, headers in given]


def told(read: Callable[[], Iterator[Row]]) -> list[Row] | str:
    """The rows, or in their place the error."""
    try:
        return list(read())
    except CorruptBatch as error:
        return f"{type(error).__name__}: {error}"


def by_records(raw: bytes, limit: int = batch.DECODED_BYTES_MAX) -> list[Row] | str:
    return told(lambda: ((*each[:4], [*each.headers]) for each in batch.records(raw, limit)))


def by_columns(raw: bytes, records_max: int = 4, limit: int = batch.DECODED_BYTES_MAX) -> list[Row] | str:
    found = columns.columns(memoryview(raw), records_max, limit)
    return told(lambda: (row for each in found for row in rows_of(each)))


def odd_record(rng: Random) -> bytes:
    """Deltas to both sides, maybe beyond 64 bits with the base; nulls of any length below 0."""
    key, value = (rng.choice((zigzag(-rng.randrange(1, 99)), b"\0", b"\x06key")) for _ in range(2))
    time = rng.choice((rng.randrange(-(10**9), 10**9), *INT64))
    offset = rng.choice((rng.randrange(-99, 99), 2**31 - 1, -(2**31)))
    headers = rng.choice((b"\0", b"\x02\x02h\x01", "\x04\x04é\x02v\x00\x00".encode()))
    inside = b"".join((bytes([rng.randrange(128)]), zigzag(time), zigzag(offset), key, value, headers))
    return zigzag(len(inside)) + inside


def odd_batch(rng: Random) -> bytes:
    """Records that no client of ours would send, and any base."""
    count = rng.randrange(1, 12)
    header: BatchHeader = peek(build([NewRecord(1, None, None)]))._replace(
        record_count=count,
        base_offset=rng.choice((0, 10**12, *INT64)),
        base_timestamp=rng.choice((-1, 0, 10**12, *INT64)),
        attributes=rng.choice((0, 0x08, 0x40)),
    )
    return seal(header, b"".join(odd_record(rng) for _ in range(count)))


def not_left_to_the_codec(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sound is read natively, where that is the way."""
    if way == "native":
        monkeypatch.setattr(columns, "records", None)


def test_they_are_the_records(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    not_left_to_the_codec(way, monkeypatch)
    rng = Random(5)
    for _ in range(ROUNDS // 10):
        for codec in Compression:
            given = [record(rng) for _ in range(rng.randrange(1, 12))]
            raw = build(given, base_offset=rng.randrange(1 << 40), compression=codec)
            if rng.random() < 0.3:
                raw = with_append_time(raw, 10**12)
            found = by_columns(raw)
            assert found == by_records(raw)
            assert [row[2:] for row in found] == [(each.key, each.value, [*each.headers]) for each in given]


def test_odd_ones_too(way: str) -> None:
    rng, sound = Random(6), 0
    for _ in range(ROUNDS):
        raw = odd_batch(rng)
        found = by_columns(raw)
        assert found == by_records(raw), raw.hex()
        sound += isinstance(found, list)
    assert sound == ROUNDS


@pytest.mark.parametrize("codec", Compression)
def test_a_byte_damaged_anywhere_is_the_same_error_or_the_same_rows(way: str, codec: Compression) -> None:
    made = [NewRecord(5 - at, b"k%d" % at, b"value", (("é", b"x"), ("g", None))[: at % 3]) for at in range(4)]
    whole, errors = build([*made, NewRecord(9, None, None)], base_offset=7, compression=codec), 0
    for at in range(len(whole)):
        for octet in {whole[at] ^ 1, whole[at] ^ 2, whole[at] ^ 0x80, 0, 1, 0x7F, 0x80, 0xFF}:
            raw = whole[:at] + bytes([octet]) + whole[at + 1 :]
            found = by_columns(raw, limit=1_000)
            assert found == by_records(raw, limit=1_000), (at, octet)
            errors += isinstance(found, str)
        assert by_columns(whole[:at]) == by_records(whole[:at])
    assert errors > len(whole)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_damaged_records_under_a_good_header(way: str, codec: Compression) -> None:
    rng, errors = Random(8), 0
    for _ in range(ROUNDS):
        plain = build([record(rng) for _ in range(rng.randrange(1, 9))])
        header, broken = peek(plain), damaged(rng, plain)[HEADER_BYTES:]
        header = header._replace(
            attributes=codec, record_count=header.record_count + rng.choice((0, 0, 0, 1, -1))
        )
        raw = seal(header, compress(codec, broken))
        found = by_columns(raw)
        assert found == by_records(raw), raw.hex()
        errors += isinstance(found, str)
    assert ROUNDS / 5 < errors < ROUNDS * 4 / 5


@pytest.mark.parametrize("odd", [ATTRIBUTES, LONG])
def test_what_only_the_native_walk_refuses_is_read(way: str, odd: bytes) -> None:
    """The door knows better, but this was stored, and is what consumers get."""
    header = peek(build([NewRecord(1, None, b"v")] * 3))
    sound = bytes([12, 0, 0, 0, 1, 0, 0])
    raw = seal(header, sound + odd + sound)
    assert by_columns(raw) == by_columns(raw, 1) == by_records(raw)


def test_counts_that_cannot_be(way: str) -> None:
    header = peek(build([NewRecord(1, None, b"v")]))
    for count in (-1, 0, 2, 1 << 30):
        for records in (b"", bytes([12, 0, 0, 0, 1, 0, 0])):
            raw = seal(header._replace(record_count=count), records)
            assert by_columns(raw) == by_records(raw)


def test_so_many_at_a_time(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever one native call takes: by count, or by bytes."""
    not_left_to_the_codec(way, monkeypatch)
    raw = build([NewRecord(at, None, b"x" * (at % 7)) for at in range(50)])
    for steps, octets in ((4_096, 1 << 20), (3, 1 << 20), (4_096, 10), (4_096, 0)):
        monkeypatch.setattr(columns, "STEP_RECORDS_MAX", steps)
        monkeypatch.setattr(columns, "STEP_BYTES_MAX", octets)
        for most, sizes in ((1, [1] * 50), (7, [7] * 7 + [1]), (10, [10] * 5), (50, [50]), (99, [50])):
            found = list(columns.columns(memoryview(raw), most))
            assert [len(each) for each in found] == sizes
            assert [row for each in found for row in rows_of(each)] == by_records(raw)


def test_parts_of_them(way: str) -> None:
    rng = Random(9)
    (found,) = columns.columns(memoryview(build([record(rng) for _ in range(9)])), 10)
    rows, odd = rows_of(found), [at % 2 == 1 for at in range(9)]
    assert rows_of(found.only(odd)) == rows[1::2]
    assert rows_of(found[2:5]) == rows[2:5]
    assert len(found.only([False] * 9)) == 0
    more = columns.none()
    more += found
    more += found[:3]
    assert rows_of(more) == rows + rows[:3]


def test_what_it_decodes_to_is_bounded(way: str) -> None:
    for codec in Compression:
        raw = build([NewRecord(1, None, bytes(5_000))], compression=codec)
        found = by_columns(raw, limit=4_000)
        assert isinstance(found, str)
        assert found == by_records(raw, limit=4_000)


@native
def test_any_octets_are_no_crash(walk: Any) -> None:
    rng = Random(3)
    for _ in range(ROUNDS):
        raw = rng.randbytes(rng.randrange(60))
        for count in (1, 3, 1 << 31, sys.maxsize):
            found = walk(raw, 0, count, 1 << 20, 0, 0)
            assert found is None or found[-1] <= len(raw)


@native
def test_one_call_takes_a_bounded_number_of_bytes(walk: Any) -> None:
    raw = build([NewRecord(1, b"k", bytes(9), [("h", b"12345")]) for _ in range(20)])
    for octets, rows in ((0, 1), (1, 1), (16, 1), (17, 2), (32, 2), (33, 3), (10_000, 20)):
        assert len(walk(raw, HEADER_BYTES, 20, octets, 0, 0)[2]) == rows


@native
def test_what_is_no_question_is_refused(walk: Any) -> None:
    for position, count in ((-1, 1), (62, 1), (0, -1), (0, 0)):
        with pytest.raises(ValueError, match="records from byte"):
            walk(bytes(61), position, count, 1, 0, 0)
    with pytest.raises(OverflowError):
        walk(bytes(61), 0, 1, 1, 1 << 63, 0)
    for given in ((bytes(61), 0, 1), ("text", 0, 1, 1, 0, 0), (bytes(61), 0, 1, 1, None, 0)):
        with pytest.raises(TypeError):
            walk(*given)


@native
def test_nothing_is_left_of_what_was_refused(walk: Any) -> None:
    """Nor of what was taken: memory, and references to what all rows share."""
    rng = Random(4)
    made = [damaged(rng, build([record(rng) for _ in range(rng.randrange(1, 6))])) for _ in range(300)]

    def all_of_them() -> None:
        for raw in made:
            for octets in (0, 1 << 20):
                walk(raw, HEADER_BYTES, 5, octets, 0, 0)
                walk(raw, HEADER_BYTES, 1, octets, 0, 0)

    def held() -> tuple[int, int, int]:
        gc.collect()
        return tracemalloc.get_traced_memory()[0], sys.getrefcount(None), sys.getrefcount(())

    tracemalloc.start()
    try:
        all_of_them()
        before = held()
        for _ in range(10):
            all_of_them()
        after = held()
    finally:
        tracemalloc.stop()
    grown = [one - other for one, other in zip(after, before, strict=True)]
    assert max(grown) < 1_000, grown
