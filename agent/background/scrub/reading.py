"""Reads objects at the scrubber's pace, large ones in pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from io import BytesIO

from agent.background.scrub.damage import Counts
from objectstore.steady import Steady
from objectstore.store import ObjectStore

PIECE_BYTES = 4 << 20  # of one request
WHOLE_BYTES_MAX = 128 << 20  # of a table's file that is held for nothing but to be looked at


class Reader:
    """`counts` learns of every byte. `whole_bytes_max`: of a file that is not needed whole."""

    def __init__(
        self,
        store: ObjectStore,
        pace: Steady,
        counts: Callable[[], Counts],
        whole_bytes_max: int = WHOLE_BYTES_MAX,
    ) -> None:
        self.store = store
        self.pace = pace
        self.whole_bytes_max = whole_bytes_max
        self._counts = counts

    async def size(self, key: str) -> int:
        """Bytes of an object. Raises StoreError."""
        return (await self.store.head(key)).size

    async def whole(self, key: str, size: int) -> bytes:
        """An object of `size` bytes, or of a few others than were told. Raises StoreError."""
        if size <= PIECE_BYTES:
            await self.pace.take(size)
            content = await self.store.get(key)
            self._counts().bytes += len(content)
            if len(content) > size:
                await self.pace.take(len(content) - size)
            return content
        out = BytesIO()  # which hands out what it holds without a copy
        async for piece in self.pieces(key, size):
            out.write(piece)
        return out.getvalue()

    async def pieces(self, key: str, size: int) -> AsyncIterator[bytes]:
        """An object of so many bytes, one piece after another. Raises StoreError."""
        for at in range(0, size, PIECE_BYTES):
            yield await self._piece(key, at, size)

    async def _piece(self, key: str, at: int, total: int) -> bytes:
        length = min(PIECE_BYTES, total - at)
        await self.pace.take(length)
        piece = await self.store.get_range(key, at, length)
        self._counts().bytes += length
        return piece
