"""Reads that are late are sent a second time.

What has a name never changes, so two reads of it give the same bytes, or one of them NotFound, which is as
true of the other a moment later. Only small reads are doubled: how long a large one takes is a matter of
bandwidth, of which a second one leaves less.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence

from objectstore import tasks
from objectstore.lateness import HedgePolicy, Lateness
from objectstore.store import NotFound, ObjectMeta, Reads, StoreError

BYTES_MAX = 1 << 20  # of a read that is sent twice

Read = Callable[[], Coroutine[None, None, bytes]]


class HedgedReads:
    """Implements Reads over another one's. `hedged` is called for each read that is sent a second time."""

    def __init__(self, store: Reads, policy: HedgePolicy, hedged: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._hedged = hedged
        self.lateness = Lateness(policy)

    async def get(self, key: str) -> bytes:
        """See Reads. Whole objects are asked for that are small: manifests."""
        return await self._race(lambda: self._store.get(key))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See Reads."""
        if length > BYTES_MAX:
            return await self._store.get_range(key, start, length)
        return await self._race(lambda: self._store.get_range(key, start, length))

    async def head(self, key: str) -> ObjectMeta:
        """See Reads."""
        return await self._store.head(key)

    async def _race(self, read: Read) -> bytes:
        loop, lateness = asyncio.get_running_loop(), self.lateness
        lateness.began()
        began, runners = loop.time(), [tasks.owned(read(), "read")]
        try:
            await asyncio.wait(runners, timeout=lateness.delay_s)
            if not runners[0].done() and lateness.affordable:
                lateness.hedged()
                self._hedged()
                runners.append(tasks.owned(read(), "hedged read"))
            data = await _first(runners)
        finally:
            tasks.let_go(runners)
        lateness.took(loop.time() - began)
        return data


async def _first(runners: Sequence[asyncio.Task[bytes]]) -> bytes:
    """What the first one gives that gives anything, or says that there is nothing. Raises the first error."""
    waiting, errors = set(runners), list[StoreError]()
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for runner in done:
            try:
                return runner.result()
            except NotFound:
                raise
            except StoreError as error:
                errors.append(error)
    raise errors[0]
