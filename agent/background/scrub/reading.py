"""Reads objects at the scrubber's pace, large ones in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent.background.scrub.damage import Counts
from iceberg.sealed import Sums
from objectstore.steady import Steady
from objectstore.store import ObjectStore

PIECE_BYTES = 4 << 20  # of one request


class Reader:
    """`counts` learns of every byte."""

    def __init__(self, store: ObjectStore, pace: Steady, counts: Callable[[], Counts]) -> None:
        self.store = store
        self.pace = pace
        self._counts = counts

    async def whole(self, key: str, size: int) -> bytes:
        """An object of about `size` bytes (0: not known). Raises StoreError."""
        if size <= PIECE_BYTES:
            await self.pace.take(size)
            content = await self.store.get(key)
            self._counts().bytes += len(content)
            if len(content) > size:
                await self.pace.take(len(content) - size)
            return content
        out = bytearray()
        total = (await self.store.head(key)).size
        while len(out) < total:
            out += await self._piece(key, len(out), total)
        return bytes(out)

    async def sum(self, key: str, kind: str) -> str:
        """The checksum of an object that is too large to be held. Raises StoreError."""
        total, sums, at = (await self.store.head(key)).size, Sums(), 0
        while at < total:
            piece = await self._piece(key, at, total)
            await asyncio.to_thread(sums.add, piece, kind)
            at += len(piece)
        return sums.of(kind)

    async def _piece(self, key: str, at: int, total: int) -> bytes:
        length = min(PIECE_BYTES, total - at)
        await self.pace.take(length)
        piece = await self.store.get_range(key, at, length)
        self._counts().bytes += length
        return piece
