"""Objects made again from what is held twice: byte for byte as they were, or not at all.

What comes in was checked (a slice by its batches' CRCs and offsets, a block by its CRC), and what goes out is
checked again as a whole before anybody writes it. None says that it cannot be made from that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from crc32c import crc32c

from objectstore import chunk as chunks
from objectstore import manifest as manifests
from objectstore import segment as segments
from objectstore.batch import CorruptBatch, check_crc, peek, split
from objectstore.chunk import CorruptChunk, FooterSlice
from objectstore.manifest import CorruptManifest, Manifest, Summary
from objectstore.naming import ChunkId, ManifestId, SliceRef
from objectstore.reader import patched
from objectstore.segment import (
    HEADER_BYTES,
    BlockIndex,
    CorruptSegment,
    SegmentInfo,
    SegmentWriter,
)
from objectstore.store import Buffer

Held = tuple[int, SliceRef, Buffer]
"""The handle of a partition, its slice of a chunk, and the slice's batches."""


def chunk(cluster_id: bytes, named: ChunkId, before: Buffer, held: Sequence[Held]) -> bytes | None:
    """A chunk with each slice that the state refers to at its place. `before`: what lies there now.

    Bytes that no slice covers stay as they are, and the footer names them where the one of `before` does and
    they are what it says.
    """
    held = sorted(held, key=lambda each: each[1].position)
    end = max((ref.position + ref.length for _, ref, _ in held), default=0)
    rows = _rows(before, held)
    end = max([end, *(row.position + row.length for row in rows)])
    out = bytearray(end)
    out[: min(end, len(before))] = memoryview(before)[:end]
    out[: chunks.HEADER_SIZE] = chunks.encode_header(cluster_id, named)
    for _, ref, data in held:
        if len(data) != ref.length:
            return None
        out[ref.position : ref.position + ref.length] = data
    rows = [
        row._replace(crc=crc32c(out[row.position : row.position + row.length]), batches=count)
        for row in rows
        if (count := _batches(memoryview(out)[row.position : row.position + row.length]))
    ]
    made = bytes(out + chunks.encode_footer(rows))
    try:
        chunks.verify(made, named, mended=True)
        for _, ref, _ in held:
            patched(memoryview(made)[ref.position : ref.position + ref.length], ref)
    except (CorruptChunk, CorruptBatch):
        return None
    return made


def _rows(before: Buffer, held: Sequence[Held]) -> list[FooterSlice]:
    """The footer's rows: the old one's where its bytes are known, one for each partition's slices else."""
    try:
        old = chunks.decode_footer(before)
    except CorruptChunk:
        old = []
    view = memoryview(before)
    kept = []
    for row in old:
        inside = [ref for handle, ref, _ in held if handle == row.partition]
        sound = crc32c(view[row.position : row.position + row.length]) == row.crc
        if sound or sum(ref.length for ref in inside) == row.length:
            kept.append(row)
    told = {row.partition for row in kept}
    for handle, group in groupby((each for each in held if each[0] not in told), key=lambda each: each[0]):
        for start, stop in _runs([ref for _, ref, _ in group]):
            kept.append(FooterSlice(handle, start, stop - start, 0, 0))
    return sorted(kept, key=lambda row: row.position)


def _runs(refs: Sequence[SliceRef]) -> list[tuple[int, int]]:
    """Byte ranges of slices, those side by side as one."""
    runs: list[tuple[int, int]] = []
    for ref in refs:
        if runs and runs[-1][1] == ref.position:
            runs[-1] = (runs[-1][0], ref.position + ref.length)
        else:
            runs.append((ref.position, ref.position + ref.length))
    return runs


def _batches(data: memoryview) -> int:
    """How many batches fill the buffer, each with a right CRC; 0 when they do not."""
    try:
        found = split(data)
    except CorruptBatch:
        return 0
    return len(found) if all(check_crc(data, at, at + size) for at, size in found) else 0


def segment(
    cluster_id: bytes, info: SegmentInfo, index: BlockIndex, blocks: Mapping[int, Buffer]
) -> bytes | None:
    """A segment of blocks, by position, that its index describes; None unless all of them match it."""
    out = bytearray(segments.encode_header(cluster_id, info.segment))
    for block in index.blocks:
        data = blocks.get(block.position)
        if data is None or len(out) != block.position:
            return None
        if len(data) != block.length or crc32c(data) != block.crc:
            return None
        out += data
    return _checked(bytes(out + segments.encode_index(index.blocks)), info)


def segment_of_batches(
    cluster_id: bytes, info: SegmentInfo, batches: Buffer, span: tuple[int, int], *, dense: bool
) -> bytes | None:
    """A segment of all its batches, whose index is lost; None unless they are what its manifest says.

    Nothing but their density says that offsets are right, where nobody vouches for the batches (`dense`).
    `span`: the offsets that the manifest has it answer for.
    """
    view, due = memoryview(batches), span[0]
    writer = SegmentWriter(cluster_id, info.segment)
    try:
        for position, size in split(view):
            header = peek(view, position)
            whole = check_crc(view, position, position + size) and not header.partition_leader_epoch
            if not whole or (dense and header.base_offset != due):
                return None
            due = header.last_offset + 1
        if dense and due != span[1]:
            return None
        writer.add(view)
        made = writer.finish()
    except (CorruptBatch, ValueError):
        return None
    again = made.info._replace(first_timestamp_ms=info.first_timestamp_ms)  # older versions told another one
    if again[3:] != info[3:]:  # the manifest's offsets may be wider than the batches'
        return None
    return _checked(b"".join(made.parts), info)


def _checked(made: bytes, info: SegmentInfo) -> bytes | None:
    try:
        segments.verify(made, info)
    except (CorruptSegment, CorruptBatch):
        return None
    return made


def donors(data: Buffer) -> dict[int, memoryview]:
    """The batches of a run with their offsets, by base offset; none where it is not sound."""
    view = memoryview(data)
    try:
        found = split(view)
    except CorruptBatch:
        return {}
    return {peek(view, at).base_offset: view[at : at + size] for at, size in found}


def block_of(block: SliceRef, batches: Mapping[int, memoryview]) -> bytes | None:
    """A block of batches by base offset; None unless its checksum says that they are it."""
    wanted = [at for at in batches if block.base_offset <= at < block.end_offset]
    data = b"".join(batches[at] for at in sorted(wanted))
    return data if len(data) == block.length and crc32c(data) == block.crc else None


def info_of(data: Buffer) -> SegmentInfo | None:
    """What a manifest would say of a sound segment, by its own bytes; None when it is not sound."""
    view = memoryview(data)
    try:
        found = segments.described(view)
        writer = SegmentWriter(bytes(16), found.segment)
        writer.add(view[HEADER_BYTES : found.index_position])
        made = writer.finish().info
    except (CorruptSegment, CorruptBatch, ValueError):
        return None
    return made if made.size == len(view) and made.index_position == found.index_position else None


def manifest(
    named: ManifestId, infos: Sequence[SegmentInfo], start: int, wanted: Summary, size: int
) -> bytes | None:
    """The manifest that names these segments and answers from `start` on; None unless it is of this summary
    and as many bytes.
    """
    ordered = sorted(infos, key=lambda each: each.base_offset)
    try:
        made = Manifest.empty(named.partition, start).appended(ordered, wanted.end_offset)
        dirty = made.find(wanted.first_dirty_offset)
        if dirty < len(ordered):  # as it was told, which older versions did otherwise than `info_of`
            ordered[dirty] = ordered[dirty]._replace(first_timestamp_ms=wanted.first_dirty_ms)
            made = Manifest.empty(named.partition, start).appended(ordered, wanted.end_offset)
    except ValueError:
        return None
    return manifest_again(named, made.with_first_dirty(wanted.first_dirty_offset), wanted, size)


def manifest_again(named: ManifestId, known: Manifest, wanted: Summary, size: int) -> bytes | None:
    """A manifest that is in memory; None unless it is of this summary and as many bytes."""
    if known.summary() != wanted:
        return None
    content = known.encode(named)
    try:
        manifests.decode(content, named)
    except CorruptManifest:
        return None
    return content if len(content) == size else None
