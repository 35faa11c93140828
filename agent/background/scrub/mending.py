"""Mends an object from what is held twice, exactly or not at all; else says which records are lost with it.

An object is never overwritten whose bytes are somebody else's that is not well elsewhere: these are set aside
first (scrub/spare/…), so that a death between any two steps loses nothing. `write` false: nothing is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agent.background.scrub.donors import Donors
from agent.background.scrub.needs import Need, OfManifest, OfPointer
from agent.background.scrub.spares import Spares
from agent.background.scrub.walks import summary_of
from coordination.places import Place, lost_of_chunk, lost_of_segment, refs_in, slice_of
from coordination.replica import Replica
from coordination.state.types import SnapshotRecord
from iceberg import contents
from objectstore import rebuilding
from objectstore import segment as segments
from objectstore.fingerprint import Fingerprint
from objectstore.merged import MergedRanges
from objectstore.naming import (
    FINGERPRINT_KEY,
    SEGMENTS,
    ChunkId,
    PieceId,
    SegmentId,
    parse_segment_key,
    segment_key,
)
from objectstore.reader import ChunkReader
from objectstore.segment import HEADER_BYTES, BlockIndex, CorruptSegment, SegmentInfo
from objectstore.store import NotFound, ObjectStore
from objectstore.turns import off_loop

RENEWALS_MAX = 4  # snapshots written to be rid of a damaged one
REBUILT_SEGMENTS_MAX = 4_096  # segments that are read to make one manifest again


@dataclass(frozen=True, slots=True)
class Sources:
    """Where else things are. `renew` writes a snapshot now."""

    store: ObjectStore
    replica: Replica
    ranges: MergedRanges
    reader: ChunkReader
    donors: Donors
    spares: Spares
    fingerprint: Fingerprint
    renew: Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Mended:
    """How an object was mended (or would be), and its bytes where there are any of that name."""

    how: str
    content: bytes | None = None


class Mender:
    """Of one scrubber."""

    def __init__(self, sources: Sources, *, write: bool) -> None:
        self._from = sources
        self._write = write

    async def mend(self, need: Need, content: bytes | None) -> Mended | None:
        """Mend what lies under a name and is `content` (None: nothing does); None: it cannot be done.

        Raises StoreError, LogError.
        """
        if content is not None and await self._from.spares.exchange(need.key, content, write=self._write):
            return await self._again(need)
        if isinstance(need.what, SnapshotRecord | PieceId):
            return await self._renewed(need)
        made = await self._made(need, content or b"")
        if made is None or await _wrong(need, made):
            return None
        if self._write:
            await self._from.spares.put(need.key, made, need.check)
        return Mended("made again from what is held twice", made)

    async def _again(self, need: Need) -> Mended | None:
        """Bytes that had changed places are back, or would be."""
        if not self._write:
            return Mended("its bytes lie under another name")
        content = await self._from.store.get(need.key)
        if await _wrong(need, content):
            return None
        return Mended("its bytes lay under another name", content)

    async def _made(self, need: Need, content: bytes) -> bytes | None:
        what = need.what
        if isinstance(what, ChunkId):
            return await self._chunk(what, content)
        if isinstance(what, OfManifest):
            return await self._segment(what, content)
        if isinstance(what, OfPointer):
            return await self._manifest(what)
        return self._from.fingerprint.encode() if need.key == FINGERPRINT_KEY else None

    async def _renewed(self, need: Need) -> Mended | None:
        """Newer snapshots take the place of a damaged one, and of the archived entries before them."""
        if self._write:
            for _ in range(RENEWALS_MAX):
                if not need.needed():
                    break
                await self._from.renew()
            if need.needed():
                return None
        return Mended("newer snapshots take its place")

    # Chunks.

    async def _chunk(self, chunk: ChunkId, content: bytes) -> bytes | None:
        held: list[rebuilding.Held] = []
        for handle, ref in await refs_in(self._from.replica.state, chunk):
            data = slice_of(content, ref)
            if data is None:
                (read,) = await self._from.reader.read_each([ref])  # memory, other agents' too
                if not isinstance(read, memoryview):
                    return None
                data = read
            held.append((handle, ref, data))
        if not held:
            return None
        return rebuilding.chunk(self._from.fingerprint.cluster_id, chunk, content, held)

    # Segments and manifests.

    async def _segment(self, what: OfManifest, content: bytes) -> bytes | None:
        handle, info = what
        cluster_id = self._from.fingerprint.cluster_id
        index = self._index(info, content)
        span = (info.base_offset, info.end_offset)
        if index is not None:
            blocks = await self._blocks(handle, info, index, content)
            return rebuilding.segment(cluster_id, info, index, blocks)
        if len(content) >= info.index_position:
            bare = content[HEADER_BYTES : info.index_position]
            made = rebuilding.segment_of_batches(cluster_id, info, bare, span, dense=True)
            if made is not None:
                return made
        found = await self._from.donors.batches(handle, *span)
        whole = b"".join(found[at] for at in sorted(found) if span[0] <= at < span[1])
        return rebuilding.segment_of_batches(cluster_id, info, whole, span, dense=False)

    def _index(self, info: SegmentInfo, content: bytes) -> BlockIndex | None:
        try:
            return segments.decode_index(content[info.index_position : info.size], info)
        except CorruptSegment:
            return self._from.ranges.known_index(info)

    async def _blocks(
        self, handle: int, info: SegmentInfo, index: BlockIndex, content: bytes
    ) -> dict[int, bytes | memoryview]:
        """Each block from where it is sound."""
        found: dict[int, bytes | memoryview] = {}
        for block in index.blocks:
            data = slice_of(content, block)
            known = data if data is not None else self._from.reader.cached(block)
            if known is not None and slice_of(known, block._replace(position=0)) is not None:
                found[block.position] = known
        bad = [block for block in index.blocks if block.position not in found]
        if bad:
            batches = await self._from.donors.batches(handle, bad[0].base_offset, bad[-1].end_offset)
            for block in bad:
                made = rebuilding.block_of(block, batches)
                if made is not None:
                    found[block.position] = made
        return found

    async def _manifest(self, what: OfPointer) -> bytes | None:
        named, wanted = what.pointer.manifest, summary_of(what.pointer)
        size = what.pointer.manifest_bytes
        known = self._from.ranges.known_manifest(named)
        if known is not None and (made := rebuilding.manifest_again(named, known, wanted, size)):
            return made
        infos = [
            info
            for each in await self._segments_of(what.partition)
            if (info := await self._info(each)) is not None
            and info.end_offset > wanted.start_offset
            and info.base_offset < wanted.end_offset
        ]
        return rebuilding.manifest(named, infos, wanted.start_offset, wanted, size)

    async def _segments_of(self, handle: int) -> list[SegmentId]:
        """The partition's segments in the bucket that the state has not let go of."""
        found: list[SegmentId] = []
        for folder in await self._from.store.list_folders(SEGMENTS):
            async for page in self._from.store.list(f"{SEGMENTS}{folder}/{handle:08x}-"):
                named = [parse_segment_key(meta.key) for meta in page]
                found += [each for each in named if each is not None]
        released = self._from.replica.state.segment_garbage
        left = [each for each in found if each not in released]
        return left if len(left) <= REBUILT_SEGMENTS_MAX else []

    async def _info(self, named: SegmentId) -> SegmentInfo | None:
        try:
            content = await self._from.store.get(segment_key(named))
        except NotFound:
            return None
        info = await asyncio.to_thread(rebuilding.info_of, content)
        return info if info is not None and info.segment == named else None

    # What is lost.

    async def lost(self, need: Need, content: bytes | None) -> tuple[Place, ...]:
        """The records that cannot be read because of this object."""
        state, content = self._from.replica.state, content or b""
        if isinstance(need.what, ChunkId):
            return await lost_of_chunk(state, need.what, content)
        if isinstance(need.what, OfManifest):
            return lost_of_segment(state, need.what.partition, need.what.info, content)
        return need.places


async def _wrong(need: Need, content: bytes) -> str:
    """Why these bytes are not what is needed; empty when they are."""
    return await off_loop(len(content), lambda: contents.problem(need.key, content) or need.check(content))
