"""Reads slices of chunks: from memory where the agent's own flushes left them, else from the store once.

Two caches. The tail holds what this agent flushed and is filled by `put_own` alone; the cold cache holds
what was read from the store. So whoever reads old records cannot push out what everybody reads now.
Reads of the store are bounded in number, joined where they lie close together, and done once for all who
ask at the same time. Every batch's CRC is checked after it was read (rule 13).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast

from crc32c import crc32c

from objectstore import tasks
from objectstore.batch import CorruptBatch, check_crc, offsets_of, patch, peek
from objectstore.cache import Key, SliceCache
from objectstore.markers import marker_batch
from objectstore.naming import ChunkId, ManifestId, MarkerId, SegmentId, SliceRef, manifest_key, object_key
from objectstore.ranges import Span, coalesce
from objectstore.salvage import Run, sound_runs
from objectstore.store import Buffer, NotFound, Reads, Retryable, StoreError

GAP_BYTES_MAX = 64 * 1024  # slices of a chunk nearer than this are read together …
SPAN_BYTES_MAX = 8 * 1024 * 1024  # … up to this size
THREAD_BYTES_MIN = 256 * 1024  # larger spans are checked and copied in a thread

Flight = tuple[SliceRef, asyncio.Future[memoryview]]


class ChunkMissing(StoreError):
    """A chunk, segment or manifest is gone: trimmed or replaced. Catch up and plan again (rule 9).

    Where the state names it still, it is lost. `offsets` [start, end) of a segment, as its manifest says.
    """

    offsets: tuple[int, int] | None = None

    def __init__(self, chunk: ChunkId | SegmentId | ManifestId) -> None:
        key = manifest_key(chunk) if isinstance(chunk, ManifestId) else object_key(chunk)
        super().__init__(f"{key} does not exist (any more)")
        self.chunk = chunk


class CorruptSlice(StoreError):
    """What the store returned, twice, is not what was committed. Evidence of damage behind our back.

    `runs`: what of the slice is sound. `wanted`: the slice.
    """

    def __init__(self, text: str, wanted: SliceRef, runs: Sequence[Run] = ()) -> None:
        super().__init__(text)
        self.wanted = wanted
        self.runs = runs


@dataclass(slots=True)
class ReaderStats:
    """Counts since the start. Slices by where they were found; requests and bytes of the store."""

    tail_hits: int = 0
    cold_hits: int = 0
    joined: int = 0  # waited for a read that was under way
    misses: int = 0
    gets: int = 0
    get_bytes: int = 0
    corrupt: int = 0


class Nearby(Protocol):
    """Finds slices of a chunk nearer than in the store."""

    async def read(
        self,
        chunk: ChunkId,
        members: Sequence[SliceRef],
        store: Callable[[], Awaitable[list[memoryview]]],
        alone: bool,
    ) -> list[memoryview]:
        """Each slice's batches, checked and patched; with `alone` nobody else is asked.

        `store` reads them from the store; its errors are raised.
        """
        ...


class ChunkReader:
    """One agent's reader. `cache_bytes_max` bounds the tail; `cold_bytes_max` what is read from the store.

    `concurrency_max` bounds the store's requests under way. A simulation keeps threads away by a
    `thread_bytes_min` above every span.
    """

    def __init__(
        self,
        store: Reads,
        cache_bytes_max: int,
        *,
        cold_bytes_max: int | None = None,
        concurrency_max: int = 8,
        thread_bytes_min: int = THREAD_BYTES_MIN,
    ) -> None:
        self._store = store
        self._tail = SliceCache(cache_bytes_max)
        self._cold = SliceCache(cache_bytes_max // 4 if cold_bytes_max is None else cold_bytes_max)
        self._thread_bytes_min = thread_bytes_min
        self._pool = asyncio.Semaphore(concurrency_max)
        self._flying: dict[Key, Flight] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.near: Nearby | None = None
        self.stats = ReaderStats()

    @property
    def cached_bytes(self) -> int:
        """Bytes that both caches hold."""
        return self._tail.bytes + self._cold.bytes

    def put_own(self, chunk: ChunkId, position: int, parts: Sequence[Buffer], base_offset: int) -> None:
        """Keep batches that this agent flushed: side by side in the chunk from `position` on, offsets dense.

        They are copied: the originals may still be on their way to the store. They were admitted, so they are
        sound: their headers are not looked at again.
        """
        data = bytearray().join(parts)
        at, offset = 0, base_offset
        for part in parts:
            patch(data, at, offset)
            offset += offsets_of(data, at)
            at += len(part)
        self._tail.put((chunk, position), base_offset, memoryview(data).toreadonly())

    def cached(self, wanted: SliceRef) -> memoryview | None:
        """The slice's batches if they are in memory; markers, which no object holds, always are."""
        base_offset, _, chunk, position, length, stamp_ms, _ = wanted
        if isinstance(chunk, MarkerId):
            return memoryview(marker_batch(chunk, base_offset, stamp_ms))
        key = (chunk, position)
        found = self._tail.get(key, base_offset, length)
        if found is not None:
            self.stats.tail_hits += 1
            return found
        found = self._cold.get(key, base_offset, length)
        if found is not None:
            self.stats.cold_hits += 1
        return found

    async def read(self, wanted: SliceRef) -> memoryview:
        """The slice's batches with base offsets patched and leader epoch 0.

        Raises ChunkMissing, CorruptSlice and what the store raises.
        """
        found = self.cached(wanted)
        return found if found is not None else (await self.read_many([wanted]))[0]

    async def read_many(self, slices: Sequence[SliceRef], *, alone: bool = False) -> list[memoryview]:
        """Each slice's batches, in the order asked for. Raises what `read` raises, for the first failure.

        With `alone` other agents are not asked for what is not here.
        """
        found = [self.cached(wanted) for wanted in slices]
        if None not in found:
            return cast("list[memoryview]", found)
        late = iter(await self._late(slices, found, alone))
        return [next(late).result() if data is None else data for data in found]

    async def read_each(self, slices: Sequence[SliceRef]) -> list[memoryview | StoreError | TimeoutError]:
        """As `read_many`, but each slice answers for itself: with its batches, or with why there are none."""
        found = [self.cached(wanted) for wanted in slices]
        if None not in found:
            return cast("list[memoryview | StoreError | TimeoutError]", found)
        late = iter(await self._late(slices, found, alone=False))
        return [_outcome(next(late)) if data is None else data for data in found]

    async def close(self) -> None:
        """End reads that are under way. The store is its owner's to close."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _, future in self._flying.values():  # of tasks that never began
            future.set_exception(StoreError("the reader is closing"))
        self._flying.clear()

    async def _late(
        self, slices: Sequence[SliceRef], found: Sequence[memoryview | None], alone: bool
    ) -> list[asyncio.Future[memoryview]]:
        """Reads, done by now, of the slices that were not in memory."""
        missing = [wanted for wanted, data in zip(slices, found, strict=True) if data is None]
        futures = self._fetch(missing, alone)
        await asyncio.wait(dict.fromkeys(futures))  # when cancelled it gives up waiting; the read goes on
        return futures

    def _fetch(self, missing: Sequence[SliceRef], alone: bool) -> list[asyncio.Future[memoryview]]:
        """One future per slice; starts reads for those that nobody is reading yet."""
        futures = []
        new: dict[ChunkId | SegmentId, list[Flight]] = {}
        for wanted in missing:
            assert not isinstance(wanted.chunk, MarkerId), "markers are in memory"
            key = (wanted.chunk, wanted.position)
            flight = self._flying.get(key)
            if flight is not None and flight[0] == wanted:
                self.stats.joined += 1
            else:
                self.stats.misses += 1
                flight = (wanted, asyncio.get_running_loop().create_future())
                flight[1].add_done_callback(_seen)
                self._flying[key] = flight
                new.setdefault(wanted.chunk, []).append(flight)
            futures.append(flight[1])
        for chunk, flights in new.items():
            self._start(chunk, flights, alone)
        return futures

    def _start(self, chunk: ChunkId | SegmentId, flights: Sequence[Flight], alone: bool) -> None:
        ranges = [(wanted.position, wanted.length) for wanted, _ in flights]
        for span in coalesce(ranges, GAP_BYTES_MAX, SPAN_BYTES_MAX):
            members = [flights[member] for member in span.members]
            work = self._read_span(chunk, span, members, alone)
            task = tasks.start(work, "read")
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    async def _read_span(
        self, chunk: ChunkId | SegmentId, span: Span, flights: Sequence[Flight], alone: bool
    ) -> None:
        members = [wanted for wanted, _ in flights]
        slices: Sequence[memoryview | CorruptSlice]
        try:
            try:
                slices = await self._find(chunk, span, members, alone)
            except CorruptBatch as first:
                self.stats.corrupt += 1
                slices = await self._again(chunk, span, members, first)
            except Retryable as first:
                slices = await self._short(chunk, span, members, first)
        except BaseException as error:
            failure = (
                StoreError("the reader is closing") if isinstance(error, asyncio.CancelledError) else error
            )
            for _, future in flights:
                future.set_exception(failure)
            if not isinstance(error, StoreError):
                raise
        else:
            for (wanted, future), data in zip(flights, slices, strict=True):
                if isinstance(data, CorruptSlice):
                    future.set_exception(data)
                    continue
                self._cold.put((chunk, wanted.position), wanted.base_offset, data)
                future.set_result(data)
        finally:
            for wanted, future in flights:
                flying = self._flying.get((chunk, wanted.position))
                if flying is not None and flying[1] is future:
                    del self._flying[chunk, wanted.position]

    async def _find(
        self, chunk: ChunkId | SegmentId, span: Span, members: Sequence[SliceRef], alone: bool
    ) -> list[memoryview]:
        if self.near is None or isinstance(chunk, SegmentId):
            return await self._get(chunk, span, members)
        return await self.near.read(chunk, members, partial(self._get, chunk, span, members), alone)

    async def _get(
        self, chunk: ChunkId | SegmentId, span: Span, members: Sequence[SliceRef]
    ) -> list[memoryview]:
        data = await self._bytes(chunk, span.start, span.length)
        if span.length < self._thread_bytes_min:
            return _cut(data, span.start, members)
        return await asyncio.to_thread(_cut, data, span.start, members)

    async def _bytes(self, chunk: ChunkId | SegmentId, start: int, length: int) -> bytes:
        # Only here is the pool held, never while another agent is asked: two that ask each other with all
        # they have would have nothing left to answer with.
        async with self._pool:
            self.stats.gets += 1
            self.stats.get_bytes += length
            try:
                return await self._store.get_range(object_key(chunk), start, length)
            except NotFound:
                raise ChunkMissing(chunk) from None

    async def _again(
        self, chunk: ChunkId | SegmentId, span: Span, members: Sequence[SliceRef], first: CorruptBatch
    ) -> list[memoryview | CorruptSlice]:
        """A second read tells damage on the way from damage at rest, and one slice's from another's."""
        data = await self._bytes(chunk, span.start, span.length)
        return await self._judged(data, span.start, members, first)

    async def _short(
        self, chunk: ChunkId | SegmentId, span: Span, members: Sequence[SliceRef], first: Retryable
    ) -> list[memoryview | CorruptSlice]:
        """Whether a range cannot be read because the object is shorter than what was committed."""
        try:
            size = await size_where_cut(self._store, object_key(chunk), span.start + span.length, first)
        except NotFound:
            raise ChunkMissing(chunk) from None
        left = size - span.start
        data = await self._bytes(chunk, span.start, left) if left > 0 else b""
        return await self._judged(data, span.start, members, first)

    async def _judged(
        self, data: bytes, start: int, members: Sequence[SliceRef], first: Exception
    ) -> list[memoryview | CorruptSlice]:
        if len(data) < self._thread_bytes_min:
            found = _cut_each(data, start, members, first)
        else:
            found = await asyncio.to_thread(_cut_each, data, start, members, first)
        self.stats.corrupt += any(isinstance(each, CorruptSlice) for each in found)
        return found


async def size_where_cut(store: Reads, key: str, end: int, first: Retryable) -> int:
    """The size of an object that ends before `end`, so that a range to there could not be read.

    Raises `first` where that is not why, and NotFound.
    """
    try:
        size = (await store.head(key)).size
    except NotFound:
        raise
    except StoreError:
        raise first from None
    if size >= end:
        raise first
    return size


def patched(data: Buffer, wanted: SliceRef) -> memoryview:
    """A read-only copy of a slice's stored bytes with the offsets that the log gave it. Raises CorruptBatch.

    Checks everything that was committed: the CRC of each batch, and that they take the slice's offsets.
    """
    if isinstance(wanted.chunk, SegmentId):
        return checked(data, wanted)
    out = bytearray(data)
    position, offset = 0, wanted.base_offset
    while position < len(out):
        header = peek(out, position)
        end = position + header.size
        if not check_crc(out, position, end):
            raise CorruptBatch(f"the CRC of the batch at byte {wanted.position + position} does not match")
        patch(out, position, offset)
        offset += header.last_offset_delta + 1
        position = end
    if offset != wanted.end_offset:
        raise CorruptBatch(
            f"the batches end at offset {offset}, committed were offsets to {wanted.end_offset}"
        )
    return memoryview(out).toreadonly()


def checked(data: Buffer, wanted: SliceRef) -> memoryview:
    """A read-only copy of a segment's block, which has its offsets already. Raises CorruptBatch."""
    out = bytes(data)
    if crc32c(out) != wanted.crc:
        raise CorruptBatch(f"the CRC of the block at byte {wanted.position} does not match")
    return memoryview(out)


def _cut(data: bytes, start: int, members: Sequence[SliceRef]) -> list[memoryview]:
    with memoryview(data) as view:
        return [
            patched(view[each.position - start : each.position - start + each.length], each)
            for each in members
        ]


def _cut_each(
    data: bytes, start: int, members: Sequence[SliceRef], first: Exception
) -> list[memoryview | CorruptSlice]:
    """Each slice's batches, or what is wrong with them. `first`: what was met at the read before."""
    found: list[memoryview | CorruptSlice] = []
    with memoryview(data) as view:
        for each in members:
            content = view[each.position - start : each.position - start + each.length]
            try:
                found.append(patched(content, each))
            except CorruptBatch as error:
                where = f"{object_key(each.chunk)} bytes {each.position}+{each.length}"
                text = f"{where}: {error}; the read before: {first}"
                found.append(CorruptSlice(text, each, sound_runs(content, each)))
    return found


def _outcome(done: asyncio.Future[memoryview]) -> memoryview | StoreError | TimeoutError:
    """What a read gave. Raises what is neither the store's nor a time limit's."""
    error = done.exception()
    if error is None:
        return done.result()
    if isinstance(error, StoreError | TimeoutError):
        return error
    raise error


def _seen(future: asyncio.Future[memoryview]) -> None:
    """Whoever waited may be gone; the failure is not to be reported as forgotten."""
    if not future.cancelled():
        future.exception()
