"""Record batches under random content and random damage: the right records, or CorruptBatch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectstore.batch import (
    HEADER_BYTES,
    CorruptBatch,
    NewRecord,
    build,
    check_crc,
    patch_all,
    peek,
    records,
    seal,
    split,
)
from objectstore.compression import Compression

small = st.binary(max_size=40)
record = st.builds(
    NewRecord,
    st.integers(0, 1 << 50),
    st.none() | small,
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=8), st.none() | small), max_size=3),
)
some_records = st.lists(record, min_size=1, max_size=30)
codec = st.sampled_from(list(Compression))


@given(st.lists(st.tuples(some_records, codec), min_size=1, max_size=4), st.integers(0, 1 << 60))
def test_records_survive_any_codec_and_any_offset(given_batches: list[Any], base: int) -> None:
    buf = bytearray(b"".join(build(each, compression=kind) for each, kind in given_batches))
    end = patch_all(buf, base)
    wanted = [each for batch, _ in given_batches for each in batch]
    assert end == base + len(wanted)
    found = list(records(buf))
    assert [each.offset for each in found] == list(range(base, end))
    assert [tuple(each)[1:4] for each in found] == [tuple(each)[:3] for each in wanted]
    assert [list(each.headers) for each in found] == [list(each.headers) for each in wanted]
    for position, size in split(buf):
        assert check_crc(buf, position, position + size)


@given(some_records, codec, st.data())
@settings(max_examples=300)
def test_any_damage_to_the_covered_bytes_fails_the_crc(
    given: list[Any], kind: Compression, data: st.DataObject
) -> None:
    buf = bytearray(build(given, compression=kind))
    position = data.draw(st.integers(17, len(buf) - 1))
    buf[position] ^= data.draw(st.integers(1, 255))
    assert not check_crc(buf, 0, len(buf))


@given(some_records, codec, st.data())
@settings(max_examples=500)
def test_damaged_records_are_read_or_refused(
    given: list[Any], kind: Compression, data: st.DataObject
) -> None:
    """A batch with a right CRC over hostile records, as an evil producer would send it."""
    sent = build(given, compression=kind)
    body = bytearray(sent[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(body) - 1))
        body[position] = data.draw(st.integers(0, 255))
    keep = data.draw(st.integers(0, len(body)))
    try:
        count = len(list(records(seal(peek(sent), body[:keep]), decoded_bytes_max=1 << 20)))
    except CorruptBatch:
        return
    assert count == len(given)


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_random_bytes_are_never_more_than_corrupt(junk: bytes) -> None:
    with pytest.raises(CorruptBatch):
        list(records(junk[:16] + b"\x02" + junk[17:]))
