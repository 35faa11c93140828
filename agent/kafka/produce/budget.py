"""A bound on record bytes that wait or are being written; whoever finds no room waits in line."""

from __future__ import annotations

import asyncio
from collections import deque


class ByteBudget:
    """Counts bytes up to `limit`. Requests that wait for room get it in the order they asked."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """How many requests wait for room."""
        return len(self._waiting)

    def taken(self, size: int) -> bool:
        """Take `size` bytes if there is room and nobody waits for it; whether they are taken."""
        if self._waiting or not self._fits(size):
            return False
        self.used += size
        return True

    async def take(self, size: int) -> None:
        """Take `size` bytes, waiting for room; one above the limit gets in alone. Safe to cancel."""
        if self.taken(size):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, granted)
        self._waiting.append(entry)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.give(size)
            else:
                if entry in self._waiting:  # `_grant` passes by whoever is cancelled and did not run yet
                    self._waiting.remove(entry)
                self._grant()
            raise

    def give(self, size: int) -> None:
        """Give `size` bytes back."""
        self.used -= size
        assert self.used >= 0, f"more bytes given back than taken: {self.used}"
        self._grant()

    def _fits(self, size: int) -> bool:
        return self.used + size <= self.limit or self.used == 0

    def _grant(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, granted = self._waiting.popleft()
            if not granted.done():
                self.used += size
                granted.set_result(None)
