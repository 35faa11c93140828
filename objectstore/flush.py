"""Puts chunks: create-only, within the PUT budget, and hedged when the store straggles.

A second request with the same name and the same bytes can do no harm: the name is created once, and
whoever finds it taken by our bytes has succeeded. So the slowest few PUTs are not waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from objectstore import tasks
from objectstore.budget import PutBudget
from objectstore.lateness import HedgePolicy, Lateness
from objectstore.naming import ChunkId, chunk_key
from objectstore.retry import find_ours
from objectstore.store import CREATE, Ambiguous, Buffer, ObjectStore, Precondition, StoreError


@dataclass(slots=True)
class PutStats:
    """Counts since the start."""

    puts: int = 0
    hedges: int = 0
    hedges_won: int = 0
    put_bytes: int = 0


class ChunkPutter:
    """Stores chunks; `put` may run many times side by side. `store` has retries of its own."""

    def __init__(
        self, store: ObjectStore, budget: PutBudget | None = None, policy: HedgePolicy | None = None
    ) -> None:
        self._store = store
        self._budget = budget
        self.lateness = Lateness(policy or HedgePolicy())
        self.stats = PutStats()

    async def put(self, chunk: ChunkId, parts: Sequence[Buffer]) -> int:
        """Store the chunk; durable on return. A cancelled put may land all the same. How many hedges it took.

        Raises Precondition when the name holds other bytes (two authors with one incarnation: a broken
        invariant), else what the store raises; Ambiguous is as harmless as the others, since a chunk that
        no log entry names is garbage.
        """
        if self._budget is not None:
            await self._budget.take()
        self.lateness.began()
        self.stats.puts += 1
        self.stats.put_bytes += sum(map(len, parts))
        loop = asyncio.get_running_loop()
        started = loop.time()
        hedges = await self._race(chunk_key(chunk), parts)
        self.lateness.took(loop.time() - started)
        return hedges

    async def _race(self, key: str, parts: Sequence[Buffer]) -> int:
        first = tasks.owned(self._store.put(key, parts, CREATE), "put")
        runners, hedges = [first], 0
        try:
            await asyncio.wait(runners, timeout=self.lateness.delay_s)
            if not first.done() and self._may_hedge():
                hedges = 1
                self.stats.hedges += 1
                self.lateness.hedged()
                if self._budget is not None:
                    await self._budget.take()
                runners.append(tasks.owned(self._store.put(key, parts, CREATE), "hedged put"))
            await self._first_good(key, parts, runners)
            if hedges and not first.done():
                self.stats.hedges_won += 1
            return hedges
        finally:
            tasks.let_go(runners)

    def _may_hedge(self) -> bool:
        return self.lateness.affordable and (self._budget is None or self._budget.wait() == 0)

    async def _first_good(self, key: str, parts: Sequence[Buffer], runners: list[asyncio.Task[str]]) -> None:
        """Return at the first success; raise when all have failed, or when other bytes have the name.

        Who is refused looks at what is there, which takes as long as several reads; meanwhile the answer of
        the request that took the name may come, and is as good. Looks are added to `runners`.
        """
        puts, waiting = len(runners), list(runners)
        errors: list[StoreError] = []
        while waiting:
            if not any(each.done() for each in waiting):
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for runner in [each for each in waiting if each.done()]:
                waiting.remove(runner)
                try:
                    runner.result()
                except Precondition as refusal:
                    if puts == 1 or runner in runners[puts:]:
                        raise
                    runners.append(tasks.owned(self._look(key, parts, refusal), "look at a chunk"))
                    waiting.append(runners[-1])
                except StoreError as error:
                    errors.append(error)
                else:
                    return
        raise next((error for error in errors if isinstance(error, Ambiguous)), errors[0])

    async def _look(self, key: str, parts: Sequence[Buffer], refusal: Precondition) -> str:
        """The etag of our bytes under the name; raises the refusal when they are others."""
        etag = await find_ours(self._store, key, parts)
        if etag is None:
            raise refusal
        return etag
