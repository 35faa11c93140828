"""A store that is some way off: each request takes time to get there, and its answer to come back.

What a store in memory does at once overlaps with nothing. With both ways a PUT has its effect in the middle
of its time, so that listings, commits and what other agents apply fall before and behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from random import Random
from typing import TypeVar

from objectstore.store import PLAIN, Buffer, ObjectMeta, ObjectStore, PutMode

T = TypeVar("T")


def drawn(random: Random, bounds_s: tuple[float, float]) -> float:
    """Seconds between the bounds; nothing is drawn where there is no distance."""
    low, high = bounds_s
    return low + random.random() * (high - low) if high else 0.0


class DistantStore:
    """Wraps any store. `way_s` is asked for the time of every single way."""

    def __init__(self, store: ObjectStore, way_s: Callable[[], float]) -> None:
        self._store = store
        self._way_s = way_s

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        """See ObjectStore. Bytes are taken as they are now."""
        data = b"".join(parts)
        return await self._travel(lambda: self._store.put(key, [data], mode))

    async def get(self, key: str) -> bytes:
        """See ObjectStore."""
        return await self._travel(lambda: self._store.get(key))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ObjectStore."""
        return await self._travel(lambda: self._store.get_range(key, start, length))

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See ObjectStore."""
        return await self._travel(lambda: self._store.get_ranges(key, ranges))

    async def head(self, key: str) -> ObjectMeta:
        """See ObjectStore."""
        return await self._travel(lambda: self._store.head(key))

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ObjectStore. A page is as old as its way back."""
        await self._way()
        async for page in self._store.list(prefix, start_after):
            await self._way()
            yield page

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """See ObjectStore."""
        return await self._travel(lambda: self._store.list_folders(prefix))

    async def delete(self, keys: Sequence[str]) -> None:
        """See ObjectStore."""
        await self._travel(lambda: self._store.delete(keys))

    async def close(self) -> None:
        """See ObjectStore."""
        await self._store.close()

    async def _way(self) -> None:
        if seconds := self._way_s():
            await asyncio.sleep(seconds)

    async def _travel(self, request: Callable[[], Awaitable[T]]) -> T:
        await self._way()
        try:
            return await request()
        finally:
            await self._way()
