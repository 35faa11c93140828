"""Objects of one store, as they are, in another: what is missing there two listings side by side say.

Where both are buckets of one store it copies objects itself (across.py); else every object is read whole and
written whole. Either way what has a name at the destination is complete, and a copy that died goes on by what
is there. Objects are never overwritten under their names but to mend them, so one of the right size is the
right one; one that is not is written again. What is read is looked at before it is put (`CopyOptions.check`):
a damaged object is not put, and told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import NamedTuple, Protocol

from objectstore import tasks
from objectstore.pace import LoopPace, Pace
from objectstore.steady import Steady
from objectstore.store import NotFound, ObjectMeta, ObjectStore, Retryable, StoreError
from objectstore.turns import off_loop

VANISHED_MAX = 100_000  # keys that one look remembers; it is followed by another one anyhow
WRITES_MAX = 3
"""Of one object that does not come out as it was read."""
READS_MAX = 2
"""Of one object that does not look whole: damage on the way is no damage."""
COMPARED_BYTES = 8 << 20
"""Of an object that is read on both sides to be compared, at a time."""
CHECKED_BYTES_MAX = 512 << 20
"""Of an object that the store copies by itself and `Verify.READ` has read whole: larger ones are compared."""
DAMAGED_MAX = 1_000
"""Objects of one copier that are told as damaged; more are counted."""
Check = Callable[[str, bytes], str]
"""What is wrong with these bytes under this name; empty when nothing is. In a thread, where they are many."""


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


class Damaged(NamedTuple):
    """An object that the source gave twice as it cannot be, and why."""

    meta: ObjectMeta
    reason: str


def believed(_key: str, _content: bytes) -> str:
    """A check that knows nothing."""
    return ""


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """`objects_max`: that are under way at once. `bytes_max`: of these, in memory; a larger one is alone.

    A process holds about twice as much: what was read, and what the client has of it. `bytes_per_s`: of
    objects that are begun, 0: as fast as it goes. `check`: of what is read.
    """

    objects_max: int = 16
    bytes_max: int = 128 << 20
    bytes_per_s: float = 0.0
    verify: Verify = Verify.ETAG
    check: Check = believed


@dataclass(slots=True)
class Counts:
    """What was done. `there`: objects that were at the destination already. `by_store`: of those copied, what
    the store copied by itself. `damaged`: that were not put. `refused`: why the store does not copy."""

    objects: int = 0
    bytes: int = 0
    there: int = 0
    by_store: int = 0
    read_back: int = 0
    deleted: int = 0
    damaged: int = 0
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

    @property
    def mended(self) -> bool:
        """Whether the source's is other content, written after the copy was: where one clock stamped both."""
        if self.source is None or self.target is None or not self.source.etag:
            return False
        return self.source.etag != self.target.etag and self.source.modified_ms > self.target.modified_ms


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
    """Copies objects, some at once, within its bounds. After `end` all are there, but for those in `damaged`.

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
        self.damaged: dict[str, Damaged] = {}

    async def begin(self, meta: ObjectMeta) -> None:
        """Copy an object as soon as there is room. Raises StoreError of whichever came before."""
        if self._steady is not None:
            await self._steady.take(meta.size)
        async with self._room:
            await self._room.wait_for(
                lambda: (
                    self._failed is not None
                    or (
                        self._objects < self._options.objects_max and (self._unread(meta) or self._fits(meta))
                    )
                )
            )
            self._look()
            held = 0 if self._unread(meta) else meta.size
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

    def _unread(self, meta: ObjectMeta) -> bool:
        """Whether no memory is needed for it."""
        return self._served(meta) and not self._read_first(meta)

    def _read_first(self, meta: ObjectMeta) -> bool:
        """Whether it is looked at before the store copies it."""
        options = self._options
        checks = options.verify is Verify.READ and options.check is not believed
        return checks and meta.size <= CHECKED_BYTES_MAX

    def _fits(self, meta: ObjectMeta) -> bool:
        return self._bytes == 0 or self._bytes + meta.size <= self._options.bytes_max

    def _look(self) -> None:
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    async def _run(self, meta: ObjectMeta, held: int) -> None:
        try:
            if not await self._by_store(meta):
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

    async def one(self, meta: ObjectMeta, *, by_store: bool = True) -> bool:
        """Copy and verify one object; whether it is there, and not in `damaged`.

        Raises NotFound where the source has none, DamagedCopy, StoreError.
        """
        if by_store and await self._by_store(meta):
            return meta.key not in self.damaged
        return await self._by_reading(meta)

    async def as_it_is(self, meta: ObjectMeta, *, put: bool) -> bytes:
        """What the source gives, whole or not; `put`: and copy it. Raises as `one` does."""
        content = await self._read(meta)
        if put:
            await self._put(meta, content)
        return content

    async def _sound(self, meta: ObjectMeta) -> bytes | None:
        """What the source gives where it is what it must be; else None, and it is in `damaged`."""
        problem = ""
        for _ in range(READS_MAX):
            content = await self._read(meta)
            problem = await off_loop(len(content), partial(self._options.check, meta.key, content))
            if not problem:
                self.damaged.pop(meta.key, None)
                return content
        if meta.key not in self.damaged:
            self.counts.damaged += 1
        if len(self.damaged) < DAMAGED_MAX:
            self.damaged[meta.key] = Damaged(meta, problem)
        return None

    async def _read(self, meta: ObjectMeta) -> bytes:
        content = await self._source.get(meta.key)
        if len(content) != meta.size:
            raise Retryable(f"{meta.key}: {len(content)} bytes, listed with {meta.size}: is it being mended?")
        return content

    def _done(self, meta: ObjectMeta) -> None:
        self.counts.objects += 1
        self.counts.bytes += meta.size

    # By the store.

    async def _by_store(self, meta: ObjectMeta) -> bool:
        """Whether the store made the copy, and it is what `Verify` means; or the source is damaged."""
        if self._across is None or not meta.etag:
            return False
        content = None
        if self._read_first(meta):
            content = await self._sound(meta)
            if content is None:
                return True
        try:
            await self._across.copy(meta.key, meta.size)
        except Refused as refused:
            self._across, self.counts.refused = None, str(refused)
            return False
        if not await self._same(meta, content):
            self._across, self.counts.refused = None, f"{meta.key}: the store's own copy is another object"
            return False
        self.counts.by_store += 1
        self._done(meta)
        return True

    async def _same(self, meta: ObjectMeta, content: bytes | None) -> bool:
        """`content`: of the source, where it was read."""
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
        if content is not None:
            return await self._written(meta.key) == content
        for start in range(0, meta.size, COMPARED_BYTES):
            length = min(COMPARED_BYTES, meta.size - start)
            sides = [each.get_range(meta.key, start, length) for each in (self._source, self._target)]
            ours, theirs = await asyncio.gather(*sides)
            if ours != theirs:
                return False
        return True

    # Through here.

    async def _by_reading(self, meta: ObjectMeta) -> bool:
        content = await self._sound(meta)
        if content is not None:
            await self._put(meta, content)
        return content is not None

    async def _put(self, meta: ObjectMeta, content: bytes) -> None:
        for _ in range(WRITES_MAX):
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
