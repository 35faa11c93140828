"""The newest entries as an agent heard them of etcd, shared by all who follow it. Bounded by bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

OVERHEAD_BYTES = 200  # of an entry in memory beside its bytes


class Cursor(NamedTuple):
    """Where a follower is: behind the entry before `serial`, in one life of the ring."""

    life: int
    serial: int


class Ring:
    """Open while this agent follows etcd itself. `news` is set, and replaced, at every change."""

    def __init__(self, bytes_max: int) -> None:
        self.through = 0
        self.open = False
        self.news = asyncio.Event()
        self._bytes_max = bytes_max
        self._bytes = 0
        self._life = 0
        self._items: dict[int, tuple[int, bytes]] = {}  # revision and bytes, by serial
        self._first = self._next = 0  # serials
        self._after = 0  # everything above this revision is here

    @property
    def size(self) -> int:
        """What is remembered, bytes."""
        return self._bytes

    def begin(self, after: int) -> None:
        """From now on everything above `after` is added."""
        self.end()
        self.open, self.through, self._after = True, after, after

    def end(self) -> None:
        """Nothing is added any more: who follows is cut."""
        if self.open:
            self.open = False
            self._items.clear()
            self._bytes, self._first, self._life = 0, self._next, self._life + 1
            self.wake()

    def add(self, revision: int, item: bytes) -> None:
        """The next entry."""
        self._items[self._next] = revision, item
        self._next += 1
        self._bytes += len(item) + OVERHEAD_BYTES
        while self._bytes > self._bytes_max and self._first < self._next - 1:
            self._after, oldest = self._items.pop(self._first)
            self._first += 1
            self._bytes -= len(oldest) + OVERHEAD_BYTES
        self.reach(revision)

    def reach(self, through: int) -> None:
        """There is nothing else at or below `through`."""
        if through > self.through:
            self.through = through
            self.wake()

    def find(self, after: int) -> Cursor | None:
        """Where somebody begins who has everything through `after`; None where that is not remembered."""
        if not self.open or not self._after <= after:
            return None
        low, high = self._first, self._next
        while low < high:
            middle = (low + high) // 2
            if self._items[middle][0] <= after:
                low = middle + 1
            else:
                high = middle
        return Cursor(self._life, low)

    def take(self, cursor: Cursor, bytes_goal: int) -> tuple[Sequence[bytes], int, Cursor] | None:
        """What comes next, through which revision that is all, and where to go on.

        None when it is forgotten, or the ring was ended meanwhile.
        """
        life, serial = cursor
        if life != self._life or not self.open or serial < self._first:
            return None
        parts: list[bytes] = []
        size, through = 0, self.through
        while serial < self._next and size < bytes_goal:
            revision, item = self._items[serial]
            parts.append(item)
            size += len(item)
            serial += 1
            through = revision
        return parts, self.through if serial == self._next else through, Cursor(life, serial)

    def wake(self) -> None:
        """Have everybody look."""
        news, self.news = self.news, asyncio.Event()
        news.set()
