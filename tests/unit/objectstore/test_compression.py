"""Compression as Kafka's clients frame it."""

from __future__ import annotations

import gzip
import struct

import cramjam
import pytest
import zstandard

from objectstore.compression import CannotDecompress, Compression, compress, decompress

DATA = b"".join(b"%d some text that repeats " % number for number in range(20_000))
LIMIT = 1 << 20


def plain(codec: Compression, data: bytes, limit: int = LIMIT) -> bytes:
    return bytes(decompress(codec, data, limit, 0, 0))


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("data", [b"", b"x", DATA], ids=["empty", "one", "many"])
def test_round_trip_with_room_around(codec: Compression, data: bytes) -> None:
    packed = compress(codec, memoryview(data))
    out = decompress(codec, packed, LIMIT, 3, 5)
    assert out == bytes(3) + data + bytes(5)


def test_lz4_frames_have_independent_blocks_and_no_content_checksum() -> None:
    """What Java's reader insists on: version 01, block independence set, content checksum clear."""
    frame = bytes(compress(Compression.LZ4, DATA))
    assert struct.unpack_from("<I", frame)[0] == 0x184D2204
    flags = frame[4]
    assert flags >> 6 == 1
    assert flags & 0x20
    assert not flags & 0x04


def test_snappy_is_read_raw_and_in_xerial_blocks() -> None:
    framed = bytes(compress(Compression.SNAPPY, DATA))
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert plain(Compression.SNAPPY, framed) == DATA
    assert plain(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(DATA))) == DATA


def test_zstd_without_a_content_size_and_concatenated_gzip() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    frame = stream.compress(DATA) + stream.flush()
    assert zstandard.frame_content_size(frame) == -1
    assert plain(Compression.ZSTD, frame) == DATA
    assert plain(Compression.GZIP, gzip.compress(b"a") + gzip.compress(b"b")) == b"ab"


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_broken_input_says_which_codec(codec: Compression) -> None:
    packed = bytes(compress(codec, DATA))
    for broken in (b"", packed[: len(packed) // 2], b"junk" * 5):
        with pytest.raises(CannotDecompress, match=codec.name.lower()):
            plain(codec, broken)


@pytest.mark.parametrize("codec", list(Compression))
def test_the_limit_is_exact(codec: Compression) -> None:
    packed = bytes(compress(codec, DATA))
    assert plain(codec, packed, len(DATA)) == DATA
    with pytest.raises(CannotDecompress, match="limit"):
        plain(codec, packed, len(DATA) - 1)


@pytest.mark.parametrize("size", [-1, 1 << 30])
def test_a_lying_xerial_block_is_refused(size: int) -> None:
    header = bytes(compress(Compression.SNAPPY, b""))
    with pytest.raises(CannotDecompress, match="claims"):
        plain(Compression.SNAPPY, header + struct.pack(">i", size))
    with pytest.raises(CannotDecompress, match="cut short"):
        plain(Compression.SNAPPY, header + b"\0")
