"""Batches with other keys, values and headers: everything else stays as it was."""

from __future__ import annotations

import itertools
import random

import pytest

from objectstore.batch import (
    Buffer,
    CorruptBatch,
    NewRecord,
    build,
    check_crc,
    empty_batch,
    peek,
    records,
    seal,
)
from objectstore.compression import Compression
from objectstore.revalued import Changed, headers_of, hollow, revalued

LARGE = bytes(range(256)) * 300  # its length takes three bytes


def made(compression: Compression = Compression.NONE) -> bytes:
    rows = [
        NewRecord(1_700_000_000_000, b"k", b"secret", [("h", b"1")]),
        NewRecord(1_700_000_000_500, None, None),
        NewRecord(1_699_999_999_000, b"", LARGE, [("h", None), ("i", b"")]),
        NewRecord(1_700_000_000_001, b"k2", b"plain"),
    ]
    return build(
        rows,
        base_offset=70,
        compression=compression,
        producer_id=5,
        producer_epoch=1,
        base_sequence=9,
        transactional=True,
    )


def upper(offset: int, key: bytes | None, value: bytes | None, headers: Buffer) -> Changed | None:
    """Changes two records of the four."""
    if offset == 70:
        return Changed(b"K" * 200, LARGE, (("why", b"so"), ("again", b"")))
    return Changed(None, None) if offset == 72 else None


@pytest.mark.parametrize("codec", Compression)
def test_a_changed_batch_is_the_same_but_for_what_changed(codec: Compression) -> None:
    before = made(codec)
    after = revalued(memoryview(before), upper)
    assert check_crc(after, 0, len(after))
    varying = {"batch_length": 0, "crc": 0}
    assert peek(after)._replace(**varying) == peek(before)._replace(**varying)
    was, now = list(records(before)), list(records(after))
    assert now[0] == was[0]._replace(
        key=b"K" * 200, value=LARGE, headers=[("h", b"1"), ("why", b"so"), ("again", b"")]
    )
    assert now[2] == was[2]._replace(key=None, value=None)
    assert [now[1], now[3]] == [was[1], was[3]]


@pytest.mark.parametrize("codec", Compression)
def test_nothing_changed_is_the_batch_itself(codec: Compression) -> None:
    before = memoryview(made(codec))
    seen = []
    assert revalued(before, lambda *record: seen.append(record)) is before
    assert [each[:3] for each in seen] == [(each.offset, each.key, each.value) for each in records(before)]
    assert [headers_of(each[3]) for each in seen] == [each.headers for each in records(before)]
    assert [bool(each[3]) for each in seen] == [True, False, True, False]


@pytest.mark.parametrize("codec", Compression)
def test_headers_are_taken_away_by_their_name(codec: Compression) -> None:
    """The others keep their order; what is added comes behind them."""
    rows = [
        NewRecord(1, b"k", b"v", [("a", b"1"), ("b", None), ("a", b"2"), ("c", b"")]),
        NewRecord(2, b"k", b"v", [("b", b"1")]),
    ]
    before = build(rows, base_offset=7, compression=codec)
    given = Changed(b"k", b"v", (("d", b"4"),), frozenset(("a",)))
    after = revalued(memoryview(before), lambda offset, *_: given if offset == 7 else None)
    assert check_crc(after, 0, len(after))
    assert [each.headers for each in records(after)] == [
        [("b", None), ("c", b""), ("d", b"4")], [("b", b"1")],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "told", [b"\x02", b"\x04\x02a\x02b", b"\x02\x01\x02b", b"\x02\x7fa", b"\xff\xff\xff\x07"]
)
def test_headers_that_end_elsewhere_are_damage(told: bytes) -> None:
    with pytest.raises(CorruptBatch):
        headers_of(told)


def test_records_behind_holes_keep_their_offsets() -> None:
    """As compaction leaves them: the second record is not there."""
    plain = made()
    whole = [bytes(each) for each in _cut(plain)]
    header = peek(plain)
    holed = seal(header._replace(record_count=3), b"".join([whole[0], *whole[2:]]))
    after = revalued(memoryview(holed), upper)
    assert [each.offset for each in records(after)] == [70, 72, 73]
    assert peek(after).last_offset == 73


def _cut(batch: bytes) -> list[bytes]:
    """Each record with its length, by an independent look at where the codec stops."""
    cuts, found, at = [61], [], 61
    while at < len(batch):
        length, shift = 0, 0
        while True:
            byte = batch[at]
            at, length, shift = at + 1, length | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        at += length >> 1
        cuts.append(at)
    for begin, end in itertools.pairwise(cuts):
        found.append(batch[begin:end])
    return found


def test_damaged_records_are_told_as_damage_and_nothing_else() -> None:
    """A byte changed anywhere: other records, or CorruptBatch."""
    before = bytearray(made())
    draw = random.Random(7)
    damaged = 0
    for at in [*range(61, 120), *(draw.randrange(61, len(before)) for _ in range(200))]:
        for byte in (0x00, 0x7F, 0x80, 0xFF):
            hurt = before[:]
            hurt[at] = byte
            try:
                revalued(memoryview(hurt), upper)
            except CorruptBatch:
                damaged += 1
    assert damaged > 20


def test_a_batch_that_nobody_can_open_becomes_one_without_records() -> None:
    before = made(Compression.ZSTD)
    after = hollow(memoryview(before))
    was, now = peek(before), peek(after)
    assert check_crc(after, 0, len(after))
    assert not list(records(after))
    assert (now.base_offset, now.last_offset, now.producer_id, now.base_sequence, now.transactional) == (
        was.base_offset,
        was.last_offset,
        was.producer_id,
        was.base_sequence,
        True,
    )
    assert now.compression is Compression.NONE
    assert peek(empty_batch(3, 9)).last_offset == peek(hollow(memoryview(empty_batch(3, 9)))).last_offset
