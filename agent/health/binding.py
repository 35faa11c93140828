"""Whether the bucket still belongs to the log that this agent writes to; a restore binds it to another one.

An agent of a log that was given up for lost may be alive, and its etcd come back. What it acknowledged from
then on would be in nobody's log. So it looks at `cluster.json` again and again, and stops when that names
another log. And it commits no chunk unless a look that began less than FRESH_S before found the log's name
still there: the chunk was then in the bucket less than FRESH_S after the name went, and a restore, which
waits longer than that before it lists the chunks, has found it. That needs no clock but each one's own, and
holds however long a look, a PUT or an append takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from objectstore import coalesced, fingerprint, tasks
from objectstore.fingerprint import BrokenFingerprint, Fingerprint, ForeignBucket
from objectstore.naming import FINGERPRINT_KEY, ChunkId
from objectstore.store import Buffer, NotFound, ObjectStore, Retryable, StoreError

LOOK_S = 5.0  # between two looks
PutChunk = Callable[[ChunkId, Sequence[Buffer]], Awaitable[int | None]]
FRESH_S = 15.0  # a restore waits 20 s (coordination/restore/run.py)


class Binding:
    """Looks at the fingerprint of a running agent; `lost` is told once, when it is another log's."""

    def __init__(self, store: ObjectStore, lost: Callable[[ForeignBucket], None]) -> None:
        self._store, self._lost = store, lost
        self._loop = asyncio.get_running_loop()
        self._ours: Fingerprint | None = None
        self._seen_at = 0.0  # when the newest look that found it began
        self._looking: asyncio.Task[None] | None = None
        self._runs: asyncio.Task[None] | None = None
        self._gone: ForeignBucket | None = None

    def start(self, ours: Fingerprint) -> None:
        """It was found so, some time ago."""
        self._ours, self._seen_at = ours, self._loop.time() - FRESH_S
        self._runs = tasks.start(self._run(), "looks at cluster.json")

    async def stop(self) -> None:
        """End the looks."""
        for each in (self._runs, self._looking):
            if each is not None:
                each.cancel()
                with suppress(asyncio.CancelledError, StoreError):
                    await each

    def guarding(self, put_chunk: PutChunk) -> PutChunk:
        """The same, which fails where the chunk may be of a log that the bucket belongs to no more."""

        async def put(chunk: ChunkId, parts: Sequence[Buffer]) -> int | None:
            hedges = await put_chunk(chunk, parts)
            await self.confirm()
            return hedges

        return put

    async def confirm(self) -> None:
        """Return when a look that began less than FRESH_S ago found it. Raises StoreError."""
        while self._ours is not None and self._gone is None and self._stale():
            if self._looking is None or self._looking.done():
                self._looking = tasks.owned(self._look(), "look at cluster.json")
            await asyncio.shield(self._looking)
        if self._gone is not None:
            raise Retryable(str(self._gone))

    def _stale(self) -> bool:
        return self._loop.time() - self._seen_at >= FRESH_S

    async def _run(self) -> None:
        while self._gone is None:
            await asyncio.sleep(coalesced.pause_s(LOOK_S))
            with suppress(StoreError):  # who needs to know looks itself
                await self._look()

    async def _look(self) -> None:
        began = self._loop.time()
        try:
            found = fingerprint.decode(await self._store.get(FINGERPRINT_KEY))
            if self._ours is not None:
                fingerprint.check(found, self._ours)
        except (NotFound, BrokenFingerprint):
            pass  # no restore leaves it so
        except ForeignBucket as error:
            if self._gone is None:
                self._gone = error
                self._lost(error)
            return
        self._seen_at = max(self._seen_at, began)
