"""Objects of one store, as they are, in another: what is missing there two listings side by side say.

Every object is read whole and written whole, so what has a name at the destination is complete, and a copy
that died goes on by what is there. Objects are never overwritten under their names, so one of the right size
is the right one; one that is not is written again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from objectstore import tasks
from objectstore.store import NotFound, ObjectMeta, ObjectStore, Retryable, StoreError

VANISHED_MAX = 100_000  # keys that one look remembers; it is followed by another one anyhow
WRITES_MAX = 3
"""Of one object that does not come out as it was read."""


class DamagedCopy(StoreError):
    """An object at the destination is not what was written there, again and again."""


class Vanished(Exception):
    """Objects are gone from the source since they were listed: it goes on meanwhile, so look again."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(f"{len(keys)} objects are gone from the source since they were listed")
        self.keys = keys


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """`objects_max`: that are under way at once. `bytes_max`: of these, in memory; a larger one is alone.

    A process holds about twice as much: what was read, and what the client has of it.
    """

    objects_max: int = 16
    bytes_max: int = 128 << 20


@dataclass(slots=True)
class Counts:
    """What was done. `there`: objects that were at the destination already."""

    objects: int = 0
    bytes: int = 0
    there: int = 0
    read_back: int = 0
    deleted: int = 0


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
    """Copies objects, some at once, within its bounds. An async context manager: at its end all are there."""

    def __init__(self, source: ObjectStore, target: ObjectStore, options: CopyOptions | None = None) -> None:
        self._source, self._target = source, target
        self._options = options or CopyOptions()
        self._room = asyncio.Condition()
        self._objects = self._bytes = 0  # under way
        self._failed: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._vanished: list[str] = []
        self.counts = Counts()

    async def begin(self, meta: ObjectMeta) -> None:
        """Copy an object as soon as there is room. Raises StoreError of whichever came before."""
        options = self._options
        async with self._room:
            await self._room.wait_for(
                lambda: (
                    self._failed is not None
                    or self._objects == 0
                    or (self._objects < options.objects_max and self._bytes + meta.size <= options.bytes_max)
                )
            )
            self._look()
            self._objects += 1
            self._bytes += meta.size
        task = tasks.owned(self._run(meta), f"copy {meta.key}")
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

    def _look(self) -> None:
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    async def _run(self, meta: ObjectMeta) -> None:
        try:
            await self.one(meta)
        except NotFound:
            if len(self._vanished) < VANISHED_MAX:
                self._vanished.append(meta.key)
        except Exception as error:  # told by whoever begins or ends the next
            self._failed = self._failed or error
        finally:
            async with self._room:
                self._objects -= 1
                self._bytes -= meta.size
                self._room.notify_all()

    async def one(self, meta: ObjectMeta) -> None:
        """Copy and verify one object. Raises NotFound where the source has none, DamagedCopy, StoreError."""
        for _ in range(WRITES_MAX):
            content = await self._source.get(meta.key)
            if len(content) != meta.size:
                raise Retryable(
                    f"{meta.key}: {len(content)} bytes, listed with {meta.size}: is it being mended?"
                )
            etag = await self._target.put(meta.key, [content])
            if etag and etag == meta.etag:  # both stores name content by its digest, and it is the same
                break
            self.counts.read_back += 1
            if await self._written(meta.key) == content:
                break
        else:
            raise DamagedCopy(
                f"{meta.key}: the destination gave other bytes than were written, {WRITES_MAX} times: is "
                "its store well? `floe bucket check` looks"
            )
        self.counts.objects += 1
        self.counts.bytes += meta.size

    async def _written(self, key: str) -> bytes | None:
        try:
            return await self._target.get(key)
        except NotFound:
            return None
