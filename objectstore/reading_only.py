"""A store that is read and never written: for who must not change a bucket, whatever the code above does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from objectstore.store import PLAIN, Buffer, Denied, ObjectMeta, ObjectStore, PutMode


class ReadOnlyStore:
    """Implements objectstore.store.ObjectStore over another one; what would write raises Denied."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        raise Denied(f"{key}: this process only reads the bucket")

    async def delete(self, keys: Sequence[str]) -> None:
        if keys:
            raise Denied(f"{keys[0]}: this process only reads the bucket")

    async def get(self, key: str) -> bytes:
        return await self._store.get(key)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return await self._store.get_range(key, start, length)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return await self._store.get_ranges(key, ranges)

    async def head(self, key: str) -> ObjectMeta:
        return await self._store.head(key)

    def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        return self._store.list(prefix, start_after)

    async def list_folders(self, prefix: str) -> Sequence[str]:
        return await self._store.list_folders(prefix)

    async def close(self) -> None:
        await self._store.close()
