"""Segments and manifests: what was written is read, gaps stay, damage is noticed."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from objectstore import manifest as manifests
from objectstore import rebuilding
from objectstore.batch import (
    DELETE_HORIZON,
    HEADER_BYTES,
    CorruptBatch,
    NewRecord,
    build,
    patch,
    peek,
    seal,
    with_append_time,
)
from objectstore.manifest import CorruptManifest, Manifest
from objectstore.naming import (
    ChunkId,
    ManifestId,
    SegmentId,
    manifest_key,
    object_key,
    parse_manifest_key,
    parse_segment_key,
    segment_key,
)
from objectstore.segment import (
    CorruptSegment,
    EncodedSegment,
    SegmentInfo,
    SegmentWriter,
    decode_header,
    decode_index,
    verify,
)

CLUSTER = b"0123456789abcdef"
NAME = SegmentId(0xABC, 7, 0xDEF)


def batch(base: int, records: int = 2, timestamp: int = 1000) -> memoryview:
    """Records of about 100 bytes at these offsets."""
    made = [NewRecord(timestamp + n, b"key", b"v" * 80) for n in range(records)]
    return memoryview(build(made, base_offset=base))


def written(*bases: int, block_bytes: int = 400) -> EncodedSegment:
    writer = SegmentWriter(CLUSTER, NAME, block_bytes)
    for base in bases:
        writer.add(batch(base, timestamp=1000 + base))
    return writer.finish()


def test_names_are_found_again_and_strangers_are_not() -> None:
    assert parse_segment_key(segment_key(NAME)) == NAME
    manifest = ManifestId(*NAME)
    assert parse_manifest_key(manifest_key(manifest)) == manifest
    assert object_key(NAME) == segment_key(NAME)
    assert object_key(ChunkId(1, 2)).startswith("chunks/")
    for stranger in (manifest_key(manifest), segment_key(NAME) + "x", "segments/x", ""):
        assert parse_segment_key(stranger) is None
    for stranger in (segment_key(NAME), "manifests/0000000000000abc/00000007-0000000000000def.seg"):
        assert parse_manifest_key(stranger) is None


def test_a_segment_tells_whose_it_is_and_where_its_blocks_are() -> None:
    parts, info = written(0, 2, 4, 10, 12)
    data = b"".join(parts)
    assert decode_header(data) == (CLUSTER, NAME)
    assert info == SegmentInfo(NAME, 0, 14, len(data), info.index_position, 10, 1000, 1013)
    index = verify(data, info)
    assert [(b.base_offset, b.end_offset) for b in index.blocks] == [(0, 4), (4, 12), (12, 14)]
    for block in index.blocks:
        content = data[block.position : block.position + block.length]
        assert (peek(content).base_offset, crc32c(content)) == (block.base_offset, block.crc)
    assert (
        index.blocks[-1].position + index.blocks[-1].length == info.index_position == info.record_bytes + 64
    )


def test_blocks_are_found_by_offset_also_in_gaps() -> None:
    parts, info = written(0, 2, 10, 12, 40)
    index = verify(b"".join(parts), info)
    assert [(b.base_offset, b.end_offset) for b in index.blocks] == [(0, 4), (10, 14), (40, 42)]
    assert [b.base_offset for b in index.plan(3, 1 << 20)] == [0, 10, 40]
    assert [b.base_offset for b in index.plan(4, 1 << 20)] == [10, 40], "5 lies in a gap: the next record"
    assert [b.base_offset for b in index.plan(0, 1)] == [0], "the first always, however large (rule 7)"
    assert [b.base_offset for b in index.plan(0, 2 * index.blocks[0].length)] == [0, 10]
    assert index.plan(42, 1 << 20) == []


def test_blocks_are_found_by_time() -> None:
    parts, info = written(0, 2, 10, 12, 40)
    index = verify(b"".join(parts), info)
    assert [index.by_timestamp(at, 0).base_offset for at in (0, 1003, 1004, 1040)] == [0, 0, 10, 40]  # type: ignore[union-attr]  # each is found
    assert index.by_timestamp(1042, 0) is None
    assert index.by_timestamp(0, 14).base_offset == 40, "from the log start on"  # type: ignore[union-attr]  # it is found
    assert index.max_timestamp(0) == index.blocks[2]
    assert index.max_timestamp(42) is None


def test_slices_may_be_added_in_pieces_of_any_number_of_batches() -> None:
    apart = written(*range(0, 40, 2), block_bytes=1000)
    writer = SegmentWriter(CLUSTER, NAME, 1000)
    for first in range(0, 40, 10):
        piece = b"".join(batch(base, timestamp=1000 + base) for base in range(first, first + 10, 2))
        writer.add(memoryview(piece))
    together = writer.finish()
    assert b"".join(together.parts) == b"".join(apart.parts)
    assert together.info == apart.info


def test_a_first_time_is_one_that_a_record_has() -> None:
    """A delete horizon, or what a producer's clock said where the agent's counts, is none."""
    plain = build([NewRecord(at, b"key", b"v") for at in (1000, 1001)])
    header = peek(plain)._replace(attributes=DELETE_HORIZON, base_timestamp=90_000)
    for first in (
        seal(header, plain[HEADER_BYTES:]),
        with_append_time(build([NewRecord(7, b"k", b"v")]), 1001),
    ):
        writer = SegmentWriter(CLUSTER, NAME)
        writer.add(memoryview(first))
        writer.add(batch(2, timestamp=2000))
        info = writer.finish().info
        assert (info.first_timestamp_ms, info.begun_ms, info.max_timestamp_ms) == (1001, 1001, 2001)
    assert info._replace(first_timestamp_ms=90_000).begun_ms == 2001, "as older versions told it"


def test_what_older_versions_wrote_is_made_again() -> None:
    """They told another first time, which must not keep a segment or a manifest from being had back."""
    writer, batches = SegmentWriter(CLUSTER, NAME), bytearray(batch(0))
    patch(batches, 0, 0)
    writer.add(memoryview(batches))
    parts, info = writer.finish()
    older = info._replace(first_timestamp_ms=90_000)
    assert rebuilding.segment_of_batches(CLUSTER, older, batches, (0, 2), dense=True) == b"".join(parts)
    other = older._replace(records=5)
    assert rebuilding.segment_of_batches(CLUSTER, other, batches, (0, 2), dense=True) is None
    name, named = ManifestId(3, 7, 4), [entry(1, 0, 10, 50), entry(2, 10, 20, 90)]
    before = [named[0], named[1]._replace(first_timestamp_ms=120)]
    manifest = Manifest.empty(7, 0).appended(before, 20).with_first_dirty(10)
    content = manifest.encode(name)
    made = rebuilding.manifest(name, named, 0, manifest.summary(), len(content))
    assert made == content
    assert rebuilding.manifest(name, named[:1], 0, manifest.summary(), len(content)) is None


def test_offsets_must_rise_and_batches_be_whole() -> None:
    writer = SegmentWriter(CLUSTER, NAME)
    writer.add(batch(10))
    with pytest.raises(ValueError, match="after offset 12"):
        writer.add(batch(11))
    with pytest.raises(CorruptBatch):
        SegmentWriter(CLUSTER, NAME).add(batch(0)[:-1])
    with pytest.raises(CorruptBatch):
        SegmentWriter(CLUSTER, NAME).add(batch(0)[:20])
    with pytest.raises(ValueError, match="at least one batch"):
        SegmentWriter(CLUSTER, NAME).finish()
    with pytest.raises(ValueError, match="16 bytes"):
        SegmentWriter(b"short", NAME)


def test_a_flipped_bit_anywhere_in_a_segment_is_noticed() -> None:
    parts, info = written(0, 2, 4)
    data = b"".join(parts)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises((CorruptSegment, CorruptBatch)):
            verify(damaged, info)
    with pytest.raises(CorruptSegment):
        decode_index(data[info.index_position + 1 :], info)


def entry(number: int, base: int, end: int, newest: int = 5) -> SegmentInfo:
    return SegmentInfo(SegmentId(1, 7, number), base, end, 1100, 1064, end - base, newest - 2, newest)


def spans(manifest: Manifest) -> list[tuple[int, int, int]]:
    return [(each.segment.number, each.base_offset, each.end_offset) for each in manifest]  # type: ignore[attr-defined]  # by __getitem__


def test_a_manifest_tiles_whatever_is_put_in() -> None:
    manifest = Manifest.empty(7, 100).appended([entry(1, 100, 120), entry(2, 130, 140)], 150)
    assert spans(manifest) == [(1, 100, 130), (2, 130, 150)]
    manifest = manifest.appended([entry(3, 150, 160)], 160).appended([entry(4, 161, 170)], 170)
    assert spans(manifest) == [(1, 100, 130), (2, 130, 150), (3, 150, 160), (4, 160, 170)]
    assert spans(manifest.replaced(1, 3, [entry(9, 135, 155)])) == [
        (1, 100, 130),
        (9, 130, 160),
        (4, 160, 170),
    ]
    assert spans(manifest.replaced(1, 3, [])) == [(1, 100, 130), (4, 130, 170)]
    assert spans(manifest.replaced(3, 4, [])) == [(1, 100, 130), (2, 130, 150), (3, 150, 170)]
    assert spans(manifest.replaced(0, 4, [])) == []
    assert manifest.replaced(0, 4, []).end_offset == 170
    assert [manifest.find(offset) for offset in (0, 129, 130, 169, 170)] == [0, 0, 1, 3, 4]
    assert spans(manifest.without_first(1)) == [(2, 130, 150), (3, 150, 160), (4, 160, 170)]
    assert manifest.segments(0, manifest.find(149)) == [SegmentId(1, 7, 1)]


def test_a_manifest_refuses_what_does_not_fit() -> None:
    manifest = Manifest.empty(7, 0).appended([entry(1, 0, 10)], 10)
    for wrong in (entry(2, 5, 20), entry(2, 10, 21), entry(2, 10, 20)._replace(segment=SegmentId(1, 8, 2))):
        with pytest.raises(ValueError, match=r"segment|SegmentInfo"):
            manifest.appended([wrong], 20)
    with pytest.raises(ValueError, match="at least one"):
        manifest.replaced(1, 1, [])


def test_a_manifest_finds_times_and_sums_up() -> None:
    added = [entry(1, 0, 10, 50), entry(2, 10, 20, 90), entry(3, 20, 30, 90), entry(4, 30, 40, 10)]
    manifest = Manifest.empty(7, 0).appended(added, 40).with_first_dirty(20)
    assert [manifest.first_newer(at, 0) for at in (0, 51, 91)] == [0, 1, 4]
    assert (manifest.newest(0), manifest.newest(2), manifest.newest(4)) == (1, 2, 4)
    summary = manifest.summary()
    assert summary == (0, 40, 4000, 40, 4, 90, 10, 1000, 50, 20, 2000, 88)
    assert Manifest.empty(7, 9).summary() == (9, 9, 0, 0, 0, -1, 9, 0, -1, 0, 0, -1)


def test_a_manifest_is_read_as_it_was_written_and_damage_is_noticed() -> None:
    name = ManifestId(3, 7, 4)
    manifest = Manifest.empty(7, 0).appended([entry(1, 0, 10), entry(2, 10, 20)], 20).with_first_dirty(10)
    data = manifest.encode(name)
    found = manifests.decode(data, name)
    assert (spans(found), found.summary()) == (spans(manifest), manifest.summary())
    assert manifests.decode(Manifest.empty(7, 5).encode(name), name).end_offset == 5
    with pytest.raises(CorruptManifest, match="is the manifest of"):
        manifests.decode(data, ManifestId(3, 8, 4))
    for position in range(40):  # of the header, 8 bytes at the end are padding
        damaged = bytearray(data)
        damaged[position] ^= 1
        if position not in (10, 11):  # the header's own size is not needed yet
            with pytest.raises(CorruptManifest):
                manifests.decode(damaged, name)
    for position in range(48, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(CorruptManifest):
            manifests.decode(damaged, name)
