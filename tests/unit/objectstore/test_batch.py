"""Record batch v2: headers are read, patched and sealed without disturbing what the producer sent."""

from __future__ import annotations

import struct
import warnings

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from crc32c import crc32c

from objectstore.batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    NewRecord,
    Record,
    UnknownMagic,
    build,
    check_crc,
    contents,
    patch,
    patch_all,
    peek,
    records,
    seal,
    split,
    with_append_time,
)
from objectstore.compression import Compression

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas the old way
    from kafka.record.memory_records import MemoryRecords

CODECS = list(Compression)
GIVEN = [
    NewRecord(1_000, b"key", b"value", [("trace", b"1"), ("none", None)]),
    NewRecord(990, None, b"v" * 300),
    NewRecord(2_000, b"", None, [("ümlaut", b"")]),
]


def batch(**options: object) -> bytes:
    return build(GIVEN, **options)


def test_peek_reads_every_field() -> None:
    sent = batch(
        base_offset=5,
        producer_id=77,
        producer_epoch=3,
        base_sequence=9,
        transactional=True,
        compression=Compression.ZSTD,
    )
    header = peek(b"junk" + sent, 4)
    assert header == BatchHeader(
        base_offset=5,
        batch_length=len(sent) - 12,
        partition_leader_epoch=-1,
        magic=2,
        crc=crc32c(sent[21:]),
        attributes=0x14,
        last_offset_delta=2,
        base_timestamp=1_000,
        max_timestamp=2_000,
        producer_id=77,
        producer_epoch=3,
        base_sequence=9,
        record_count=3,
    )
    assert header.size == len(sent)
    assert header.compression is Compression.ZSTD
    assert header.transactional
    assert not header.control
    assert header.timestamp_type == 0


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_in_every_codec(codec: Compression) -> None:
    sent = batch(base_offset=100, compression=codec)
    assert list(records(sent)) == [
        Record(100 + delta, *given[:3], list(given.headers)) for delta, given in enumerate(GIVEN)
    ]
    assert check_crc(sent, 0, len(sent))


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_decompresses_what_is_built(codec: Compression) -> None:
    sent = batch(compression=codec)
    theirs = DefaultRecordBatch(sent)
    assert theirs.validate_crc()
    assert [(each.key, each.value) for each in theirs] == [(each.key, each.value) for each in GIVEN]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.ZSTD])
def test_a_codec_written_in_pure_python_reads_it_too(codec: Compression) -> None:
    found = MemoryRecords(batch(compression=codec)).next_batch()
    assert found.validate_crc()
    assert [(each.timestamp, each.key, each.value) for each in found] == [given[:3] for given in GIVEN]


def test_keys_and_values_alone_are_those_of_the_records() -> None:
    made = [NewRecord(1, b"k", None, [("h", b"1")]), NewRecord(2, None, b"v")]
    both = build(made, compression=Compression.ZSTD) + build(made)
    alone = [(each.key, each.value) for each in contents(both)]
    assert alone == [(each.key, each.value) for each in records(both)] == [(b"k", None), (None, b"v")] * 2
    with pytest.raises(CorruptBatch):
        list(contents(both[:-1]))
    with pytest.raises(CorruptBatch):
        list(contents(build([NewRecord(1, None, b"v")]).replace(b"v", b"", 1)))


def test_several_batches_split_and_read_in_order() -> None:
    first, second = batch(base_offset=0), batch(base_offset=3, compression=Compression.LZ4)
    both = memoryview(first + second)
    assert split(both) == [(0, len(first)), (len(first), len(second))]
    assert [record.offset for record in records(both)] == [0, 1, 2, 3, 4, 5]


def test_patch_leaves_the_crc_and_everything_else_alone() -> None:
    sent = batch()
    buf = bytearray(b"x" + sent)
    patch(buf, 1, 1 << 40, leader_epoch=7)
    header = peek(buf, 1)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 7)
    assert check_crc(buf, 1, len(buf))
    assert buf[1 + 8 : 1 + 12] == sent[8:12]
    assert buf[1 + 16 :] == sent[16:]


def test_patch_all_gives_dense_offsets() -> None:
    buf = bytearray(batch(base_offset=99) + batch() + batch(base_offset=7))
    assert patch_all(memoryview(buf), 1_000) == 1_009
    assert [record.offset for record in records(buf)] == list(range(1_000, 1_009))
    assert {peek(buf, position).partition_leader_epoch for position, _ in split(buf)} == {0}


def test_append_time_wins_over_the_records_own() -> None:
    sent = batch(compression=Compression.LZ4)
    stamped = with_append_time(memoryview(sent), 5_555)
    header = peek(stamped)
    assert (header.timestamp_type, header.max_timestamp, header.base_timestamp) == (1, 5_555, 1_000)
    assert check_crc(stamped, 0, len(stamped))
    assert {record.timestamp for record in records(stamped)} == {5_555}
    assert stamped[HEADER_BYTES:] == sent[HEADER_BYTES:]


def test_a_flipped_bit_fails_the_crc() -> None:
    sent = bytearray(batch())
    for position in (21, 40, HEADER_BYTES, len(sent) - 1):
        sent[position] ^= 1
        assert not check_crc(sent, 0, len(sent))
        sent[position] ^= 1
    assert check_crc(sent, 0, len(sent))


def test_records_without_timestamps() -> None:
    sent = build([NewRecord(-1, None, b"a"), NewRecord(-1, None, b"b")])
    assert [record.timestamp for record in records(sent)] == [-1, -1]
    with pytest.raises(ValueError, match="either all records have timestamps or none"):
        build([NewRecord(-1, None, b"a"), NewRecord(5, None, b"b")])
    with pytest.raises(ValueError, match="at least one record"):
        build([])


@pytest.mark.parametrize("size", [0, 1, 12, 16, 17, 60])
def test_a_cut_header_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatch, match="less than a batch header"):
        peek(batch()[:size])


@pytest.mark.parametrize("length", [-1, 0, 48, 1 << 20, (1 << 31) - 1])
def test_an_impossible_length_is_corrupt(length: int) -> None:
    sent = bytearray(batch())
    struct.pack_into(">i", sent, 8, length)
    with pytest.raises(CorruptBatch, match=f"batch length {length}"):
        peek(sent)


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_other_magics_are_named(magic: int) -> None:
    sent = bytearray(batch())
    sent[16] = magic & 0xFF
    with pytest.raises(UnknownMagic, match="magic"):
        peek(sent)
    with pytest.raises(UnknownMagic, match="magic"):
        peek(sent[:30])  # old formats have shorter headers


def test_trailing_bytes_are_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        split(batch() + b"\0" * 10)
    with pytest.raises(CorruptBatch):
        patch_all(bytearray(batch() + b"\0"), 0)
    with pytest.raises(CorruptBatch):
        split(b"")


def test_an_unknown_codec_is_corrupt() -> None:
    header = peek(batch())
    strange = seal(header._replace(attributes=6), b"")
    with pytest.raises(CorruptBatch, match="codec 6"):
        list(records(strange))


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec])
def test_a_bomb_is_refused_within_the_limit(codec: Compression) -> None:
    bomb = build([NewRecord(0, None, bytes(4 << 20))], compression=codec)
    assert len(bomb) < 1 << 18
    with pytest.raises(CorruptBatch, match="limit of 1048576 bytes"):
        list(records(bomb, decoded_bytes_max=1 << 20))
    assert len(list(records(bomb, decoded_bytes_max=5 << 20))) == 1


@pytest.mark.parametrize("codec", CODECS)
def test_a_count_that_does_not_match_is_corrupt(codec: Compression) -> None:
    sent = batch(compression=codec)
    for count in (-1, 0, 2, 4, (1 << 31) - 1):
        wrong = seal(peek(sent)._replace(record_count=count), sent[HEADER_BYTES:])
        with pytest.raises(CorruptBatch):
            list(records(wrong))


HUGE_KEY = b"\x80" * 9 + b"\x7f"  # a varint far beyond any buffer


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x80",
        b"\x80" * 11,
        b"\x0c\x00\x00\x00" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # key of 2^63-1 bytes
        b"\x0c\x00\x00\x00" + b"\xc0\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a little less: no overflow
        b"\x0e\x00\x00\x00\x01\x01\x01",  # negative count of headers
        b"\x0e\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f",  # two thousand million headers
        b"\x14\x00\x00\x00\x01\x01\x02\x02\xff\x01",  # a header name that is not UTF-8
    ],
)
def test_hostile_records_are_corrupt(body: bytes) -> None:
    header = peek(batch())._replace(record_count=1, last_offset_delta=0)
    with pytest.raises(CorruptBatch):
        list(records(seal(header, body)))
