"""Finds records in merged ranges: from a partition's manifest to the blocks that hold an offset or a time.

Manifests and the segments' block indexes are read once for all who ask at the same time and kept in a cache
bounded in bytes. What is missing in the store was replaced meanwhile: ChunkMissing, and the caller catches up
with the log and plans again (rule 9). Nothing here reads records; the chunk reader does, from the references.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from objectstore import manifest as manifests
from objectstore import segment as segments
from objectstore import tasks
from objectstore.manifest import CorruptManifest, Manifest
from objectstore.naming import ManifestId, SegmentId, SliceRef, manifest_key, segment_key
from objectstore.reader import ChunkMissing, size_where_cut
from objectstore.segment import BlockIndex, CorruptSegment, SegmentInfo
from objectstore.store import NotFound, Reads, Retryable, StoreError

CACHE_BYTES_MAX = 32 << 20
READS_IN_FLIGHT_MAX = 16
THREAD_BYTES_MIN = 64 * 1024  # larger objects are decoded in a thread
BLOCK_ENTRY_BYTES = 400  # what one block of an index costs in memory, measured with tracemalloc
SWAPS_MET_MAX = 8  # times that a look at one partition begins anew because its manifest moved

_Name = TypeVar("_Name")
_Content = TypeVar("_Content")


class DamagedIndex(StoreError):
    """A manifest or an index is not, twice, what was written, or cut off: damage behind our back.

    `offsets` [start, end) of a segment, as its manifest says.
    """

    offsets: tuple[int, int] | None = None


class Pointer(Protocol):
    """What the state knows of a partition's merged range."""

    @property
    def manifest(self) -> ManifestId: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int: ...


class SlicePlan(Protocol):
    """Where a partition's records are, from `first_offset` on."""

    @property
    def first_offset(self) -> int: ...
    def plan(self, offset: int, max_bytes: int) -> list[SliceRef]: ...


class Tail(SlicePlan, Protocol):
    """The rows of a partition that are not merged (coordination.state.slices)."""

    def by_timestamp(self, timestamp_ms: int, start: int) -> SliceRef | None: ...
    def max_timestamp(self, start: int) -> SliceRef | None: ...


class Partition(Protocol):
    """A partition of the state as far as its records' places go."""

    @property
    def log_start(self) -> int: ...
    @property
    def merged(self) -> Pointer | None: ...
    @property
    def slices(self) -> Tail: ...


class Older(NamedTuple):
    """Blocks that hold all records of the offsets [asked for, covered_to) of one manifest."""

    refs: Sequence[SliceRef]
    covered_to: int


class Slices:
    """A plan over the merged range from one offset on, and the tail behind it; as SliceIndex plans.

    Good for as long as nothing is awaited: the tail is the live one.
    """

    def __init__(self, tail: Tail, first_offset: int, older: Older) -> None:
        self._tail = tail
        self._older = older
        self.first_offset = first_offset

    def plan(self, offset: int, max_bytes: int) -> list[SliceRef]:
        """The slices that hold records from `offset` on, of at most `max_bytes`, the first always."""
        refs: list[SliceRef] = []
        left = max_bytes
        for ref in self._older.refs:
            if ref.end_offset <= offset:
                continue
            left -= ref.length
            if left < 0 and refs:
                return refs
            refs.append(ref)
        covered = self._older.covered_to
        if self._tail.first_offset > covered or (refs and left <= 0):
            return refs  # rows behind `covered` were merged meanwhile: no gap is to be hidden
        following = self._tail.plan(max(offset, covered), max(left, 1))
        if refs and following and following[0].length > left:
            return refs
        return refs + following


class _Kept(Generic[_Name, _Content]):
    """Loads each object once for all who ask at the same time, and keeps what fits, least used out first."""

    def __init__(self, load: Callable[[_Name], Awaitable[tuple[_Content, int]]], bytes_max: int) -> None:
        self._load = load
        self._bytes_max = bytes_max
        self._kept: OrderedDict[_Name, tuple[_Content, int]] = OrderedDict()
        self._flying: dict[_Name, asyncio.Task[_Content]] = {}
        self.bytes = 0

    async def get(self, name: _Name) -> _Content:
        """From memory, or loaded. Raises what loading raises."""
        kept = self._kept.get(name)
        if kept is not None:
            self._kept.move_to_end(name)
            return kept[0]
        task = self._flying.get(name)
        if task is None:
            task = self._flying[name] = tasks.owned(self._fill(name), "load")
            task.add_done_callback(lambda done: self._landed(name, done))
        await asyncio.wait([task])  # when cancelled it gives up waiting; the load goes on for the others
        return task.result()

    def known(self, name: _Name) -> _Content | None:
        """What is in memory, and stays as long as it would have."""
        kept = self._kept.get(name)
        return None if kept is None else kept[0]

    async def close(self) -> None:
        """End what is being loaded."""
        tasks = list(self._flying.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _fill(self, name: _Name) -> _Content:
        content, size = await self._load(name)
        self.keep(name, content, size)
        return content

    def keep(self, name: _Name, content: _Content, size: int) -> None:
        """Keep an object of this many bytes, if it fits at all."""
        if name in self._kept:
            return
        if size <= self._bytes_max:
            self._kept[name] = (content, size)
            self.bytes += size
        while self.bytes > self._bytes_max:
            self.bytes -= self._kept.popitem(last=False)[1][1]

    def _landed(self, name: _Name, task: asyncio.Task[_Content]) -> None:
        del self._flying[name]
        if not task.cancelled():
            task.exception()  # whoever waited may be gone; it is not to be reported as forgotten


class MergedRanges:
    """One agent's view of merged ranges. `bytes_max` bounds what is kept of manifests and indexes."""

    def __init__(self, store: Reads, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._store = store
        self._manifests = _Kept(self._load_manifest, bytes_max // 2)
        self._indexes = _Kept(self._load_index, bytes_max // 2)
        self._pool = asyncio.Semaphore(READS_IN_FLIGHT_MAX)
        self.reads = 0  # of the store, since the start

    @property
    def cached_bytes(self) -> int:
        """Bytes kept, about."""
        return self._manifests.bytes + self._indexes.bytes

    async def manifest(self, named: ManifestId) -> Manifest:
        """The manifest. Raises ChunkMissing, DamagedIndex and what the store raises."""
        return await self._manifests.get(named)

    def remember(self, named: ManifestId, manifest: Manifest) -> None:
        """Keep a manifest that this agent has written itself."""
        self._manifests.keep(named, manifest, manifest.memory_bytes)

    def known_manifest(self, named: ManifestId) -> Manifest | None:
        """The manifest, if it is in memory."""
        return self._manifests.known(named)

    def known_index(self, info: SegmentInfo) -> BlockIndex | None:
        """The blocks of a segment, if they are in memory."""
        return self._indexes.known(info)

    async def index(self, info: SegmentInfo) -> BlockIndex:
        """The blocks of a segment. Raises ChunkMissing, DamagedIndex and what the store raises."""
        return await self._indexes.get(info)

    async def plan(self, named: ManifestId, offset: int, max_bytes: int) -> Older:
        """The blocks with records from `offset` on, of at most `max_bytes` in sum; the first always."""
        manifest = await self.manifest(named)
        refs: list[SliceRef] = []
        left = max_bytes
        for number in range(manifest.find(offset), len(manifest)):
            info = manifest[number]
            try:
                index = await self.index(info)
            except StoreError as error:
                if refs:  # what lies before it is intact
                    return Older(refs, info.base_offset)
                if isinstance(error, ChunkMissing | DamagedIndex):
                    error.offsets = (info.base_offset, info.end_offset)
                raise
            found = index.plan(offset, left)
            if refs and found and found[0].length > left:
                return Older(refs, info.base_offset)
            refs += found
            left -= sum(ref.length for ref in found)
            if found and found[-1] is not index.blocks[-1]:
                return Older(refs, found[-1].end_offset)
        return Older(refs, manifest.end_offset)

    async def slices(self, partition: Partition, offset: int, max_bytes: int) -> SlicePlan:
        """What plans the partition's records from `offset` on, merged ones included, as far as `max_bytes`.

        Raises ChunkMissing, DamagedIndex and what the store raises.
        """
        for _ in range(SWAPS_MET_MAX):
            merged = partition.merged
            if merged is None or offset >= merged.end_offset:
                return partition.slices
            older = await self.plan(merged.manifest, offset, max_bytes)
            planned = Slices(partition.slices, offset, older)
            if older.refs or partition.slices.first_offset <= older.covered_to:
                return planned
        raise StoreError(f"its manifest moved {SWAPS_MET_MAX} times while it was looked at: ask again")

    async def by_timestamp(self, partition: Partition, timestamp_ms: int, start: int = 0) -> SliceRef | None:
        """The first slice from the log start, or `start`, on that claims this timestamp or a later one.

        Raises ChunkMissing, DamagedIndex and what the store raises.
        """
        for _ in range(SWAPS_MET_MAX):
            merged = partition.merged
            if merged is None or merged.max_timestamp_ms < timestamp_ms:
                return partition.slices.by_timestamp(timestamp_ms, max(start, partition.log_start))
            found = await self._by_timestamp(merged.manifest, timestamp_ms, max(start, partition.log_start))
            if found is not None:
                return found
            if partition.merged is merged:
                return partition.slices.by_timestamp(timestamp_ms, max(start, partition.log_start))
        raise StoreError(f"its manifest moved {SWAPS_MET_MAX} times while it was looked at: ask again")

    async def max_timestamp(self, partition: Partition, start: int = 0) -> SliceRef | None:
        """The first slice that claims the highest timestamp (KIP-734), from the log start or `start` on; None
        when there are no records.

        Raises ChunkMissing, DamagedIndex and what the store raises.
        """
        for _ in range(SWAPS_MET_MAX):
            start = max(start, partition.log_start)
            merged, newest = partition.merged, partition.slices.max_timestamp(start)
            if merged is None or (newest and newest.max_timestamp_ms > merged.max_timestamp_ms):
                return newest
            found = await self._max_timestamp(merged.manifest, start)
            if partition.merged is merged:
                newest = partition.slices.max_timestamp(max(start, partition.log_start))
                if found is None or (newest and newest.max_timestamp_ms > found.max_timestamp_ms):
                    return newest
                return found
        raise StoreError(f"its manifest moved {SWAPS_MET_MAX} times while it was looked at: ask again")

    async def close(self) -> None:
        """End reads that are under way."""
        await self._manifests.close()
        await self._indexes.close()

    async def _by_timestamp(self, named: ManifestId, timestamp_ms: int, offset: int) -> SliceRef | None:
        manifest = await self.manifest(named)
        number = manifest.first_newer(timestamp_ms, manifest.find(offset))
        while number < len(manifest):
            found = (await self.index(manifest[number])).by_timestamp(timestamp_ms, offset)
            if found is not None:
                return found
            number = manifest.first_newer(timestamp_ms, number + 1)
        return None

    async def _max_timestamp(self, named: ManifestId, offset: int) -> SliceRef | None:
        """Only the first segment with live records may have dead ones with the highest timestamp."""
        manifest = await self.manifest(named)
        first = manifest.find(offset)
        if first == len(manifest):
            return None
        found = (await self.index(manifest[first])).max_timestamp(offset)
        other = manifest.newest(first + 1)
        if other < len(manifest) and (
            found is None or manifest[other].max_timestamp_ms > found.max_timestamp_ms
        ):
            return (await self.index(manifest[other])).max_timestamp(offset)
        return found

    async def _load_manifest(self, named: ManifestId) -> tuple[Manifest, int]:
        key = manifest_key(named)
        found = await self._decoded(named, lambda: self._store.get(key), manifests.decode, named)
        return found, found.memory_bytes

    async def _load_index(self, info: SegmentInfo) -> tuple[BlockIndex, int]:
        key, length = segment_key(info.segment), info.size - info.index_position

        def reading() -> Awaitable[bytes]:
            return self._store.get_range(key, info.index_position, length)

        try:
            found = await self._decoded(info.segment, reading, segments.decode_index, info)
        except Retryable as first:
            raise await self._cut(info, first) from first
        return found, BLOCK_ENTRY_BYTES * (1 + len(found.blocks))

    async def _cut(self, info: SegmentInfo, first: Retryable) -> DamagedIndex:
        """What is said of a segment that is shorter than what was written. Raises `first` where it is not."""
        key = segment_key(info.segment)
        try:
            size = await size_where_cut(self._store, key, info.size, first)
        except NotFound:
            raise ChunkMissing(info.segment) from None
        return DamagedIndex(f"{key}: it ends at byte {size}, written were {info.size}")

    async def _decoded(
        self,
        named: ManifestId | SegmentId,
        reading: Callable[[], Awaitable[bytes]],
        decode: Callable[[bytes, _Name], _Content],
        known: _Name,
    ) -> _Content:
        """The object, decoded; a second read tells damage on the way from damage at rest."""
        data = await self._read(named, reading())
        try:
            return await _off_loop(len(data), decode, data, known)
        except (CorruptManifest, CorruptSegment):
            data = await self._read(named, reading())
        try:
            return await _off_loop(len(data), decode, data, known)
        except (CorruptManifest, CorruptSegment) as error:
            key = manifest_key(named) if isinstance(named, ManifestId) else segment_key(named)
            raise DamagedIndex(f"{key}: {error}") from error

    async def _read(self, named: ManifestId | SegmentId, reading: Awaitable[bytes]) -> bytes:
        async with self._pool:
            self.reads += 1
            try:
                return await reading
            except NotFound:
                raise ChunkMissing(named) from None


async def _off_loop(
    size: int, decode: Callable[[bytes, _Name], _Content], data: bytes, named: _Name
) -> _Content:
    """Decode here when it is little, in a thread when it would hold up the loop."""
    if size < THREAD_BYTES_MIN:
        return decode(data, named)
    return await asyncio.to_thread(decode, data, named)
