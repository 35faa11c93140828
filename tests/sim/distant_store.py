"""A store that is some way off: each request takes time to get there, and its answer to come back.

What a store in memory does at once overlaps with nothing. With both ways a PUT has its effect in the middle
of its time, so that listings, commits and what other agents apply fall before and behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from objectstore.naming import parse_chunk_key
from objectstore.store import PLAIN, Buffer, ObjectMeta, ObjectStore, PutMode
from tests.sim.loop import NODE

T = TypeVar("T")
HANGING_SHARE, HANGING_S = 0.12, (1.0, 60.0)  # many land after the end of the run: never


def drawn(random: Random, bounds_s: tuple[float, float]) -> float:
    """Seconds between the bounds; nothing is drawn where there is no distance."""
    low, high = bounds_s
    return low + random.random() * (high - low) if high else 0.0


@dataclass(slots=True)
class Hanging:
    """Which PUTs hang: while `on`, a share of those of chunks."""

    random: Random
    on: bool = False
    landed: int = 0
    """How many have come to the store in the end."""

    def seconds(self, key: str) -> float:
        """How long a PUT of this name hangs on its way; 0: it does not."""
        if not self.on or parse_chunk_key(key) is None or self.random.random() > HANGING_SHARE:
            return 0.0
        return self.random.uniform(*HANGING_S)


class DistantStore:
    """Wraps any store. `way_s` is asked for the time of every single way.

    A PUT that hangs lands in the end, whether its caller waits, has been answered by a hedge, or is dead.
    """

    def __init__(
        self, store: ObjectStore, way_s: Callable[[], float], hanging: Hanging | None = None
    ) -> None:
        self._store = store
        self._way_s = way_s
        self._hanging = hanging or Hanging(Random(0))

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        """See ObjectStore. Bytes are taken as they are now."""
        data = b"".join(parts)
        hangs_s = self._hanging.seconds(key)
        if not hangs_s:
            return await self._travel(lambda: self._store.put(key, [data], mode))
        elsewhere = copy_context()
        elsewhere.run(NODE.set, "")
        landing = asyncio.get_running_loop().create_task(
            self._land(hangs_s, key, data, mode), context=elsewhere
        )
        landing.add_done_callback(_seen)
        return await asyncio.shield(landing)

    async def _land(self, hangs_s: float, key: str, data: bytes, mode: PutMode) -> str:
        await asyncio.sleep(hangs_s)
        self._hanging.landed += 1
        return await self._store.put(key, [data], mode)

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


def _seen(landing: asyncio.Task[str]) -> None:
    """Nobody may wait for its outcome any more."""
    if not landing.cancelled():
        landing.exception()
