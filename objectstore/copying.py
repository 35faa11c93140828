"""Objects of one store, as they are, in another: what is missing there two listings side by side say.

Where both are buckets of one store it copies objects itself (across.py); else every object is read whole and
written whole. Either way what has a name at the destination is complete, and a copy that died goes on by what
is there. Objects are never overwritten under their names, so one of the right size is the right one; one that
is not is written again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from objectstore import tasks
from objectstore.pace import LoopPace, Pace
from objectstore.steady import Steady
from objectstore.store import NotFound, ObjectMeta, ObjectStore, Retryable, StoreError

VANISHED_MAX = 100_000  # keys that one look remembers; it is followed by another one anyhow
WRITES_MAX = 3
"""Of one object that does not come out as it was read."""
COMPARED_BYTES = 8 << 20
"""Of an object that is read on both sides to be compared, at a time."""


class DamagedCopy(StoreError):
    """An object at the destination is not what was written there, again and again."""


class Refused(StoreError):
    """The store does not copy from the one bucket into the other (definite). Says why."""


class Vanished(Exception):
    """Objects are gone from the source since they were listed: it goes on meanwhile, so look again."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(f"{len(keys)} objects are gone from the source since they were listed")
        self.keys = keys


class Copies(Protocol):
    """What has a store copy objects by itself, from the source's prefix into the target's."""

    async def copy(self, key: str, size: int) -> None:
        """Copy an object of `size` bytes over whatever is there. It is durable when this returns.

        Raises NotFound (the source has none), Refused, StoreError.
        """
        ...


class Verify(StrEnum):
    """What of an object that was copied is compared. Where ETags differ, `etag` reads both, too."""

    LENGTH = "length"  # of what the store copied by itself; else as `etag`
    ETAG = "etag"
    READ = "read"


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """`objects_max`: that are under way at once. `bytes_max`: of these, in memory; a larger one is alone.

    A process holds about twice as much: what was read, and what the client has of it. `bytes_per_s`: of
    objects that are begun, 0: as fast as it goes.
    """

    objects_max: int = 16
    bytes_max: int = 128 << 20
    bytes_per_s: float = 0.0
    verify: Verify = Verify.ETAG


@dataclass(slots=True)
class Counts:
    """What was done. `there`: objects that were at the destination already. `by_store`: of those copied, what
    the store copied by itself. `refused`: why it does not."""

    objects: int = 0
    bytes: int = 0
    there: int = 0
    by_store: int = 0
    read_back: int = 0
    deleted: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """One key in two listings; one of both at least is there."""

    source: ObjectMeta | None
    target: ObjectMeta | None

    @property
    def key(self) -> str:
        """The key of both."""
        found = self.source or self.target
        assert found is not None
        return found.key

    @property
    def due(self) -> bool:
        """Whether it is to be copied."""
        return self.source is not None and (self.target is None or self.target.size != self.source.size)


async def side_by_side(source: ObjectStore, target: ObjectStore, prefix: str) -> AsyncIterator[Pair]:
    """Every key below the prefix in both stores, in key order, from a page of each. Raises StoreError."""
    ours, theirs = _each(source, prefix), _each(target, prefix)
    here, there = await anext(ours, None), await anext(theirs, None)
    while here is not None or there is not None:
        if there is None or (here is not None and here.key < there.key):
            yield Pair(here, None)
            here = await anext(ours, None)
        elif here is None or there.key < here.key:
            yield Pair(None, there)
            there = await anext(theirs, None)
        else:
            yield Pair(here, there)
            here, there = await anext(ours, None), await anext(theirs, None)


async def _each(store: ObjectStore, prefix: str) -> AsyncIterator[ObjectMeta]:
    async for page in store.list(prefix):
        for meta in page:
            yield meta


class Copier:
    """Copies objects, some at once, within its bounds. After `end` all are there.

    `across`: what has the store copy by itself; once it is refused, this copier reads and writes.
    """

    def __init__(
        self,
        source: ObjectStore,
        target: ObjectStore,
        options: CopyOptions | None = None,
        across: Copies | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._source, self._target, self._across = source, target, across
        self._options = options or CopyOptions()
        self._room = asyncio.Condition()
        self._objects = self._bytes = 0  # under way
        self._failed: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._vanished: list[str] = []
        clock, rate = pace or LoopPace(), self._options.bytes_per_s
        self._steady = Steady(rate, clock.monotonic, clock.sleep) if rate else None
        self.counts = Counts()

    async def begin(self, meta: ObjectMeta) -> None:
        """Copy an object as soon as there is room. Raises StoreError of whichever came before."""
        if self._steady is not None:
            await self._steady.take(meta.size)
        async with self._room:
            await self._room.wait_for(
                lambda: (
                    self._failed is not None
                    or (
                        self._objects < self._options.objects_max and (self._served(meta) or self._fits(meta))
                    )
                )
            )
            self._look()
            held = 0 if self._served(meta) else meta.size
            self._objects += 1
            self._bytes += held
        task = tasks.owned(self._run(meta, held), f"copy {meta.key}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Wait for all. Raises StoreError of one that failed, Vanished where the source has some no more."""
        async with self._room:
            await self._room.wait_for(lambda: self._objects == 0)
            self._look()
        if self._vanished:
            vanished, self._vanished = self._vanished, []
            raise Vanished(vanished)

    async def abandon(self) -> None:
        """Give up what is under way, and wait until it is."""
        tasks = list(self._tasks)
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _served(self, meta: ObjectMeta) -> bool:
        """Whether the store is asked to copy it. What is not known by an ETag would be read anyhow."""
        return self._across is not None and bool(meta.etag)

    def _fits(self, meta: ObjectMeta) -> bool:
        return self._bytes == 0 or self._bytes + meta.size <= self._options.bytes_max

    def _look(self) -> None:
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    async def _run(self, meta: ObjectMeta, held: int) -> None:
        try:
            if held or not await self._by_store(meta):
                if not held:
                    await self._hold(meta)
                    held = meta.size
                await self._by_reading(meta)
        except NotFound:
            if len(self._vanished) < VANISHED_MAX:
                self._vanished.append(meta.key)
        except Exception as error:  # told by whoever begins or ends the next
            self._failed = self._failed or error
        finally:
            async with self._room:
                self._objects -= 1
                self._bytes -= held
                self._room.notify_all()

    async def _hold(self, meta: ObjectMeta) -> None:
        """Wait for room for the object's bytes."""
        async with self._room:
            await self._room.wait_for(lambda: self._fits(meta))
            self._bytes += meta.size

    async def one(self, meta: ObjectMeta) -> None:
        """Copy and verify one object. Raises NotFound where the source has none, DamagedCopy, StoreError."""
        if not await self._by_store(meta):
            await self._by_reading(meta)

    def _done(self, meta: ObjectMeta) -> None:
        self.counts.objects += 1
        self.counts.bytes += meta.size

    # By the store.

    async def _by_store(self, meta: ObjectMeta) -> bool:
        """Whether the store made the copy, and what it made is what is meant by `Verify`."""
        if self._across is None or not meta.etag:
            return False
        try:
            await self._across.copy(meta.key, meta.size)
        except Refused as refused:
            self._across, self.counts.refused = None, str(refused)
            return False
        if not await self._same(meta):
            self._across, self.counts.refused = None, f"{meta.key}: the store's own copy is another object"
            return False
        self.counts.by_store += 1
        self._done(meta)
        return True

    async def _same(self, meta: ObjectMeta) -> bool:
        try:
            made = await self._target.head(meta.key)
        except NotFound:
            return False
        if made.size != meta.size:
            return False
        verify = self._options.verify
        if verify is Verify.LENGTH or (verify is Verify.ETAG and made.etag == meta.etag):
            return True
        self.counts.read_back += 1
        for start in range(0, meta.size, COMPARED_BYTES):
            length = min(COMPARED_BYTES, meta.size - start)
            sides = [each.get_range(meta.key, start, length) for each in (self._source, self._target)]
            ours, theirs = await asyncio.gather(*sides)
            if ours != theirs:
                return False
        return True

    # Through here.

    async def _by_reading(self, meta: ObjectMeta) -> None:
        for _ in range(WRITES_MAX):
            content = await self._source.get(meta.key)
            if len(content) != meta.size:
                raise Retryable(
                    f"{meta.key}: {len(content)} bytes, listed with {meta.size}: is it being mended?"
                )
            etag = await self._target.put(meta.key, [content])
            if etag and etag == meta.etag and self._options.verify is not Verify.READ:
                break  # both stores name content by its digest, and it is the same
            self.counts.read_back += 1
            if await self._written(meta.key) == content:
                break
        else:
            raise DamagedCopy(
                f"{meta.key}: the destination gave other bytes than were written, {WRITES_MAX} times: is "
                "its store well? `floe bucket check` looks"
            )
        self._done(meta)

    async def _written(self, key: str) -> bytes | None:
        try:
            return await self._target.get(key)
        except NotFound:
            return None
