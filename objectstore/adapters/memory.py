"""A store in memory, for tests and simulation: no threads, no clock of its own, the same every time."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from objectstore.naming import check_key
from objectstore.store import (
    PLAIN,
    Buffer,
    Create,
    NotFound,
    ObjectMeta,
    Precondition,
    PutMode,
    Replace,
    Retryable,
)

PAGE_OBJECTS = 1000


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    etag: str
    modified_ms: int


class MemoryStore:
    """An ObjectStore that forgets everything when the process ends.

    `now_ms` stamps objects; without one they are stamped 1, 2, 3 … in the order of their writes.
    """

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self._objects: dict[str, _Object] = {}
        self._writes = 0
        self._now_ms = now_ms

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        """See ObjectStore."""
        check_key(key)
        data = b"".join(parts)
        await asyncio.sleep(0)
        found = self._objects.get(key)
        if isinstance(mode, Create) and found is not None:
            raise Precondition(f"{key} exists already")
        if isinstance(mode, Replace) and (found is None or found.etag != mode.etag):
            raise Precondition(f"{key} is no longer what etag {mode.etag} names")
        self._writes += 1
        etag = f"{self._writes:x}"
        self._objects[key] = _Object(data, etag, self._now_ms() if self._now_ms else self._writes)
        return etag

    async def get(self, key: str) -> bytes:
        """See ObjectStore."""
        return (await self._find(key)).data

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ObjectStore."""
        return _cut(key, (await self._find(key)).data, start, length)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See ObjectStore."""
        data = (await self._find(key)).data
        return [_cut(key, data, start, length) for start, length in ranges]

    async def head(self, key: str) -> ObjectMeta:
        """See ObjectStore."""
        return _meta(key, await self._find(key))

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ObjectStore."""
        keys = sorted(key for key in self._objects if key.startswith(prefix))
        position = bisect_right(keys, start_after)
        while position < len(keys):
            page = keys[position : position + PAGE_OBJECTS]
            position += PAGE_OBJECTS
            await asyncio.sleep(0)
            yield [_meta(key, self._objects[key]) for key in page if key in self._objects]

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """See ObjectStore."""
        await asyncio.sleep(0)
        rests = (key[len(prefix) :] for key in self._objects if key.startswith(prefix))
        return sorted(dict.fromkeys(rest.partition("/")[0] for rest in rests if "/" in rest))

    async def delete(self, keys: Sequence[str]) -> None:
        """See ObjectStore."""
        for key in keys:
            check_key(key)
        await asyncio.sleep(0)
        for key in keys:
            self._objects.pop(key, None)

    async def close(self) -> None:
        """See ObjectStore."""

    async def _find(self, key: str) -> _Object:
        check_key(key)
        await asyncio.sleep(0)
        found = self._objects.get(key)
        if found is None:
            raise NotFound(key)
        return found


def _meta(key: str, found: _Object) -> ObjectMeta:
    return ObjectMeta(key, len(found.data), found.etag, found.modified_ms)


def _cut(key: str, data: bytes, start: int, length: int) -> bytes:
    part = data[start : start + length]
    if len(part) != length:
        raise Retryable(f"{key}: bytes {start}+{length} of an object of {len(data)}")
    return part
