"""The chunk: what is written can be found, checked and told from anything else."""

from __future__ import annotations

import pytest

from objectstore.batch import NewRecord, build, peek
from objectstore.chunk import (
    CHUNK_BYTES_MAX,
    HEADER_SIZE,
    TRAILER_SIZE,
    ChunkWriter,
    CorruptChunk,
    PartitionBatches,
    decode_footer,
    decode_header,
    encode,
    footer_length,
    verify,
)
from objectstore.naming import ChunkId

CLUSTER = bytes(range(16))
CHUNK = ChunkId(0xABCDEF, 42)


def batch(text: bytes, count: int = 1) -> bytes:
    return build([NewRecord(1, None, text)] * count)


def chunk(*slices: tuple[int, list[bytes]]) -> bytes:
    encoded = encode(CLUSTER, CHUNK, [PartitionBatches(*each) for each in slices])
    data = b"".join(encoded.parts)
    assert len(data) == encoded.size
    return data


TWO = ((3, [batch(b"a"), batch(b"bb", 3)]), (700, [batch(b"c")]))


def test_batches_stand_where_the_positions_say() -> None:
    encoded = encode(CLUSTER, CHUNK, [PartitionBatches(*each) for each in TWO])
    data = b"".join(encoded.parts)
    given = [each for _, batches in TWO for each in batches]
    assert encoded.positions[0] == HEADER_SIZE
    assert [data[at : at + peek(data, at).size] for at in encoded.positions] == given


def test_batches_are_not_copied() -> None:
    views = [memoryview(each) for each in TWO[0][1]]
    encoded = encode(CLUSTER, CHUNK, [PartitionBatches(3, views)])
    assert [part for part in encoded.parts if any(part is view for view in views)] == views


def test_the_object_tells_its_own_story() -> None:
    data = chunk(*TWO)
    assert decode_header(data) == (CLUSTER, CHUNK)
    slices = verify(data, CHUNK)
    assert [(each.partition, each.batches) for each in slices] == [(3, 2), (700, 1)]
    assert [data[each.position : each.position + each.length] for each in slices] == [
        b"".join(each) for _, each in TWO
    ]
    tail = footer_length(data[-TRAILER_SIZE:]) + TRAILER_SIZE
    assert decode_footer(memoryview(data)[-tail:]) == slices


def test_the_writer_orders_by_partition_and_keeps_arrival_within() -> None:
    writer = ChunkWriter()
    arrivals = [(9, b"1"), (2, b"2"), (9, b"3"), (2, b"4"), (5, b"5")]
    tickets = [writer.add(partition, batch(text)) for partition, text in arrivals]
    assert tickets == [0, 1, 2, 3, 4]
    assert writer.order() == [1, 3, 4, 0, 2]
    assert (len(writer), writer.bytes) == (5, 5 * len(batch(b"1")))
    encoded = writer.finish(CLUSTER, CHUNK)
    data = b"".join(encoded.parts)
    for ticket, position in zip(writer.order(), encoded.positions, strict=True):
        assert data[position : position + peek(data, position).size] == batch(arrivals[ticket][1])
    assert [each.partition for each in verify(data, CHUNK)] == [2, 5, 9]


def test_what_cannot_be_a_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        encode(CLUSTER, CHUNK, [])
    with pytest.raises(ValueError, match="at least one batch"):
        encode(CLUSTER, CHUNK, [PartitionBatches(1, [])])
    with pytest.raises(ValueError, match="1 after 1: handles must rise"):
        encode(CLUSTER, CHUNK, [PartitionBatches(1, [b"x"]), PartitionBatches(1, [b"y"])])
    with pytest.raises(ValueError, match="16 bytes"):
        encode(b"short", CHUNK, [PartitionBatches(1, [b"x"])])
    with pytest.raises(ValueError, match=f"limit of {CHUNK_BYTES_MAX}"):
        encode(CLUSTER, CHUNK, [PartitionBatches(1, [bytes(1 << 20)] * 1024)])


def test_every_flipped_byte_is_found() -> None:
    good = chunk(*TWO)
    for position in range(len(good)):
        damaged = bytearray(good)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptChunk):
            verify(damaged, CHUNK)


def test_every_truncation_is_found() -> None:
    good = chunk(*TWO)
    for size in range(len(good)):
        with pytest.raises(CorruptChunk):
            verify(memoryview(good)[:size], CHUNK)


def test_another_chunk_under_this_name_is_found() -> None:
    with pytest.raises(CorruptChunk, match=r"not chunks/0{10}abcdef/0{14}2b\.chunk"):
        verify(chunk(*TWO), ChunkId(CHUNK.incarnation, CHUNK.number + 1))


def test_bytes_before_the_footer_that_nobody_claims_are_found() -> None:
    good = chunk(*TWO)
    tail = footer_length(good[-TRAILER_SIZE:]) + TRAILER_SIZE
    with pytest.raises(CorruptChunk, match="not where the footer begins"):
        verify(good[:-tail] + b"smuggled" + good[-tail:], CHUNK)


def test_the_format_has_not_changed() -> None:
    """Chunks live for years. If this fails, the version must rise and the old one stay readable."""
    encoded = encode(CLUSTER, CHUNK, [PartitionBatches(3, [b"abc", b"de"]), PartitionBatches(700, [b"f"])])
    assert b"".join(encoded.parts).hex(" ", -4) == (
        "464c4f45 43484e4b 00010040 00010203 04050607 08090a0b 0c0d0e0f 00000000 00abcdef 00000000 "
        "0000002a 00000000 00000000 00000000 00000000 2b9f2efd 61626364 65660a03 03bc0512 0240451a "
        "02050122 0202012a 0897d650 c4db271a 15000000 1be48c52 23464c4f 45464f4f 54"
    )
