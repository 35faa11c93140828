"""A bucket that the store itself replicates: each object arrives after a time of its own, in any order.

Only versions of one object keep their order. What is deleted goes after everything that was written before
has arrived, as where deletions are replicated behind (docs/replica.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context
from random import Random

from objectstore.adapters.memory import MemoryStore, _Object
from objectstore.store import PLAIN, Buffer, PutMode
from tests.sim.loop import VirtualLoop

REPLICATED = "replicated"
"""Of a plan's `follows`."""
DELAY_S_MAX = 4.0
"""That an object takes at most."""


class Replicated:
    """Fills `there` with what `here` gets."""

    def __init__(self, loop: VirtualLoop, here: MemoryStore, there: MemoryStore) -> None:
        self._loop, self._here, self._there = loop, here, there
        self._random = Random(loop.random.getrandbits(48))
        self._due: dict[str, float] = {}
        self._coming: dict[str, _Object] = {}
        self.overtaken = 0
        """Objects that arrived before one that was written earlier."""
        self._newest_s = 0.0
        self._put, self._delete = here.put, here.delete
        here.put = self.put  # type: ignore[method-assign]  # what is written is sent on
        here.delete = self.delete  # type: ignore[method-assign]  # likewise

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        """See ObjectStore."""
        etag = await self._put(key, parts, mode)
        written = self._coming[key] = self._here._objects[key]
        self._later(key, self._random.random() * DELAY_S_MAX, lambda: self._arrive(key, written))
        return etag

    async def delete(self, keys: Sequence[str]) -> None:
        """See ObjectStore."""
        await self._delete(keys)
        for key in keys:
            self._later(key, DELAY_S_MAX, lambda key=key: self._there._objects.pop(key, None))  # type: ignore[misc]  # bound now

    def _later(self, key: str, delay_s: float, change: Callable[[], object]) -> None:
        now = self._loop.time()
        due = self._due[key] = max(self._due.get(key, 0.0), now + delay_s)
        self.overtaken += due < self._newest_s
        self._newest_s = max(self._newest_s, due)
        self._loop.call_at(due, change, context=Context())  # whoever wrote it may be dead by then

    def _arrive(self, key: str, written: _Object) -> None:
        self._there._objects[key] = written
        if self._coming.get(key) is written:
            del self._coming[key]

    def arrived(self) -> dict[str, _Object]:
        """What is there when all that was written has arrived; what was deleted may still be there."""
        return self._there._objects | self._coming
