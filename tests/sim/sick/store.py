"""One agent's way to the store: cut, so that nothing is answered until it is whole again, or full."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from objectstore.store import PLAIN, Buffer, Denied, ObjectMeta, ObjectStore, PutMode

if TYPE_CHECKING:
    from tests.sim.node import AgentNode


class Road:
    """Wraps any store. What is on its way when it is cut arrives when it is whole, as TCP sends it again."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._whole = asyncio.Event()
        self._whole.set()
        self.full = False
        """Nothing can be written; reads and deletions work."""

    @classmethod
    def of(cls, agent: AgentNode) -> Road | None:
        """The agent's, made when it has none yet; None while it is not there."""
        faulty = agent.store
        if faulty is None:
            return None
        if not isinstance(faulty._store, cls):
            faulty._store = cls(faulty._store)
        return faulty._store

    def cut(self, *, cut: bool) -> None:
        """Cut it, or make it whole."""
        if cut:
            self._whole.clear()
        else:
            self._whole.set()

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        """See ObjectStore."""
        data = b"".join(parts)  # taken as they are now
        await self._whole.wait()
        if self.full:
            raise Denied(f"{key}: the bucket is full (injected)")
        etag = await self._store.put(key, [data], mode)
        await self._whole.wait()
        return etag

    async def get(self, key: str) -> bytes:
        """See ObjectStore."""
        await self._whole.wait()
        return await self._store.get(key)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ObjectStore."""
        await self._whole.wait()
        return await self._store.get_range(key, start, length)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See ObjectStore."""
        await self._whole.wait()
        return await self._store.get_ranges(key, ranges)

    async def head(self, key: str) -> ObjectMeta:
        """See ObjectStore."""
        await self._whole.wait()
        return await self._store.head(key)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ObjectStore."""
        await self._whole.wait()
        async for page in self._store.list(prefix, start_after):
            yield page

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """See ObjectStore."""
        await self._whole.wait()
        return await self._store.list_folders(prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        """See ObjectStore."""
        await self._whole.wait()
        await self._store.delete(keys)

    async def close(self) -> None:
        """See ObjectStore."""
        await self._store.close()
