"""Puts chunks: create-only, within the PUT budget, and hedged when the store straggles.

A second request with the same name and the same bytes can do no harm: the name is created once, and
whoever finds it taken by our bytes has succeeded. So the slowest few PUTs are not waited for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from objectstore import tasks
from objectstore.budget import PutBudget
from objectstore.naming import ChunkId, chunk_key
from objectstore.retry import find_ours
from objectstore.store import CREATE, Ambiguous, Buffer, ObjectStore, Precondition, StoreError

SAMPLES_MAX = 64  # newest PUTs whose durations decide when one is late
SAMPLES_MIN = 16  # before that the longest delay holds


@dataclass(frozen=True, slots=True)
class HedgePolicy:
    """A PUT is late after `factor` times the 90th percentile, within the bounds."""

    factor: float = 3.0
    delay_s_min: float = 0.05
    delay_s_max: float = 2.0
    share_max: float = 0.05  # of all PUTs; more would feed the overload that made them late


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
        self._policy = policy or HedgePolicy()
        self._durations: deque[float] = deque(maxlen=SAMPLES_MAX)
        self.stats = PutStats()

    @property
    def delay_s(self) -> float:
        """How long a PUT may take before it is hedged, from the newest PUTs' durations."""
        policy = self._policy
        if len(self._durations) < SAMPLES_MIN:
            return policy.delay_s_max
        percentile = sorted(self._durations)[len(self._durations) * 9 // 10]
        return min(policy.delay_s_max, max(policy.delay_s_min, policy.factor * percentile))

    async def put(self, chunk: ChunkId, parts: Sequence[Buffer]) -> None:
        """Store the chunk; durable on return. A cancelled put may land all the same.

        Raises Precondition when the name holds other bytes (two authors with one incarnation: a broken
        invariant), else what the store raises; Ambiguous is as harmless as the others, since a chunk that
        no log entry names is garbage.
        """
        if self._budget is not None:
            await self._budget.take()
        self.stats.puts += 1
        self.stats.put_bytes += sum(map(len, parts))
        loop = asyncio.get_running_loop()
        started = loop.time()
        await self._race(chunk_key(chunk), parts)
        self._durations.append(loop.time() - started)

    async def _race(self, key: str, parts: Sequence[Buffer]) -> None:
        first = tasks.owned(self._store.put(key, parts, CREATE), "put")
        runners = [first]
        try:
            await asyncio.wait(runners, timeout=self.delay_s)
            if not first.done() and self._may_hedge():
                self.stats.hedges += 1
                if self._budget is not None:
                    await self._budget.take()
                runners.append(tasks.owned(self._store.put(key, parts, CREATE), "hedged put"))
            await self._first_good(key, parts, runners)
            if len(runners) > 1 and not first.done():
                self.stats.hedges_won += 1
        finally:
            for runner in runners:
                runner.cancel()
                runner.add_done_callback(_seen)

    def _may_hedge(self) -> bool:
        affordable = self._budget is None or self._budget.wait() == 0
        return affordable and self.stats.hedges < 1 + self._policy.share_max * self.stats.puts

    async def _first_good(
        self, key: str, parts: Sequence[Buffer], runners: Sequence[asyncio.Task[str]]
    ) -> None:
        """Return at the first success; raise when all have failed."""
        waiting = list(runners)
        errors: list[StoreError] = []
        while waiting:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for runner in [each for each in waiting if each.done()]:
                waiting.remove(runner)
                try:
                    runner.result()
                except Precondition as refusal:
                    if len(runners) > 1 and await find_ours(self._store, key, parts) is not None:
                        return
                    raise refusal
                except StoreError as error:
                    errors.append(error)
                else:
                    return
        raise next((error for error in errors if isinstance(error, Ambiguous)), errors[0])


def _seen(runner: asyncio.Task[str]) -> None:
    """The loser's outcome does not matter any more."""
    if not runner.cancelled():
        runner.exception()
