"""A store that fails as real ones do, by a seed or on order. For tests, simulation and soak runs."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from objectstore.pace import LoopPace, Pace
from objectstore.store import (
    PLAIN,
    Ambiguous,
    Buffer,
    Denied,
    NotFound,
    ObjectMeta,
    ObjectStore,
    PutMode,
    Retryable,
)

T = TypeVar("T")
Parts = list[bytes]
_MASK = (1 << 64) - 1


class Fault(Enum):
    """What can go wrong with one request."""

    REFUSED = "refused"  # no effect, and that is known
    LOST_REQUEST = "lost request"  # no effect, and that is not known
    LOST_ANSWER = "lost answer"  # the effect happened, and that is not known
    TRUNCATED = "truncated"  # a read ends early; a change has no effect
    CORRUPT = "corrupt"  # a read delivers wrong bytes; a change is not touched
    SLOW = "slow"  # waits up to `slow_s_max`
    STALE = "stale"  # a listing shows what was there before the last changes


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Probability of each fault per request, and how long slow is. The rates' sum is at most 1."""

    refused: float = 0.0
    lost_request: float = 0.0
    lost_answer: float = 0.0
    truncated: float = 0.0
    corrupt: float = 0.0
    slow: float = 0.0
    stale: float = 0.0
    slow_s_max: float = 0.05
    stale_writes: int = 3  # how many of the newest changes a stale listing does not know; 0: it knows all


class Dice:
    """SplitMix64: the same numbers for the same seed on every machine and version."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def random(self) -> float:
        """Uniform in [0, 1)."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((mixed ^ (mixed >> 31)) >> 11) / (1 << 53)


class FaultyStore:
    """Wraps any store. `order` makes the next request of an operation fail; `rates` fail at random.

    `rates` may be replaced at any time: FaultRates() heals. `calls` counts requests by operation. `held`:
    keys that are not deleted; what is asked for with them is.
    """

    def __init__(
        self, store: ObjectStore, seed: int = 0, rates: FaultRates | None = None, pace: Pace | None = None
    ) -> None:
        self._store = store
        self._dice = Dice(seed)
        self._pace = pace or LoopPace()
        self._ordered: dict[str, deque[Fault]] = {}
        self._changes: deque[tuple[str, ObjectMeta | None]] = deque(maxlen=1000)
        self.rates = rates or FaultRates()
        self.calls: dict[str, int] = {}
        self.held: set[str] = set()

    def order(self, operation: str, *faults: Fault) -> None:
        """The next requests named `operation` (put, get, get_ranges, head, list, …) meet these faults."""
        self._ordered.setdefault(operation, deque()).extend(faults)

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        """See ObjectStore."""

        async def change() -> str:
            old = await self._metas([key])
            etag = await self._store.put(key, parts, mode)
            self._changes.extend(old)
            return etag

        return await self._change("put", key, change)

    async def get(self, key: str) -> bytes:
        """See ObjectStore."""
        return (await self._read("get", key, lambda: _listed(self._store.get(key))))[0]

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ObjectStore."""
        read = await self._read("get_range", key, lambda: _listed(self._store.get_range(key, start, length)))
        return read[0]

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See ObjectStore."""
        return await self._read("get_ranges", key, lambda: self._store.get_ranges(key, ranges))

    async def head(self, key: str) -> ObjectMeta:
        """See ObjectStore."""
        await self._before("head", key)
        return await self._store.head(key)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ObjectStore."""
        stale = await self._before("list", prefix) is Fault.STALE
        newest = list(self._changes)[-self.rates.stale_writes :] if stale and self.rates.stale_writes else []
        before = {key: meta for key, meta in reversed(newest) if key.startswith(prefix) and key > start_after}
        async for page in self._store.list(prefix, start_after):
            known = [before.pop(each.key, each) for each in page]
            yield [each for each in known if each is not None]
        gone = [meta for meta in before.values() if meta is not None]
        if gone:
            yield sorted(gone, key=lambda meta: meta.key)

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """See ObjectStore."""
        await self._before("list_folders", prefix)
        return await self._store.list_folders(prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        """See ObjectStore."""

        async def change() -> None:
            free = [key for key in keys if key not in self.held]
            old = await self._metas(free)
            await self._store.delete(free)
            self._changes.extend(old)
            if len(free) < len(keys):
                raise Denied(f"{sorted(self.held.intersection(keys))[0]}: it is under a hold (injected)")

        await self._change("delete", keys[0] if keys else "", change)

    async def close(self) -> None:
        """See ObjectStore."""
        await self._store.close()

    async def _metas(self, keys: Sequence[str]) -> Sequence[tuple[str, ObjectMeta | None]]:
        """What a listing shows of these, for stale ones."""
        return [(key, await _head(self._store, key)) for key in keys] if self.rates.stale_writes else []

    async def _change(self, operation: str, what: str, change: Callable[[], Awaitable[T]]) -> T:
        fault = await self._before(operation, what)
        if fault in (Fault.LOST_REQUEST, Fault.TRUNCATED):
            raise Ambiguous(f"{what}: {operation} got no answer (injected, without effect)")
        result = await change()
        if fault is Fault.LOST_ANSWER:
            raise Ambiguous(f"{what}: {operation} got no answer (injected, after the effect)")
        return result

    async def _read(self, operation: str, what: str, read: Callable[[], Awaitable[Parts]]) -> Parts:
        fault = await self._before(operation, what)
        if fault in (Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.TRUNCATED):
            raise Retryable(f"{what}: {operation} ended early (injected)")
        parts = await read()
        return [self._damage(part) for part in parts] if fault is Fault.CORRUPT else parts

    def _damage(self, data: bytes) -> bytes:
        if not data:
            return data
        at = int(self._dice.random() * len(data))
        return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]

    async def _before(self, operation: str, what: str) -> Fault | None:
        """Draw the request's fault; waits for SLOW and raises for REFUSED by itself."""
        self.calls[operation] = self.calls.get(operation, 0) + 1
        ordered = self._ordered.get(operation)
        fault = ordered.popleft() if ordered else self._draw()
        if fault is Fault.SLOW:
            await self._pace.sleep(self._dice.random() * self.rates.slow_s_max)
        if fault is Fault.REFUSED:
            raise Retryable(f"{what}: {operation} refused (injected)")
        return fault

    def _draw(self) -> Fault | None:
        rest = self._dice.random()
        rates = self.rates
        for fault, rate in (
            (Fault.REFUSED, rates.refused),
            (Fault.LOST_REQUEST, rates.lost_request),
            (Fault.LOST_ANSWER, rates.lost_answer),
            (Fault.TRUNCATED, rates.truncated),
            (Fault.CORRUPT, rates.corrupt),
            (Fault.SLOW, rates.slow),
            (Fault.STALE, rates.stale),
        ):
            if rest < rate:
                return fault
            rest -= rate
        return None


async def _listed(read: Awaitable[bytes]) -> Parts:
    return [await read]


async def _head(store: ObjectStore, key: str) -> ObjectMeta | None:
    try:
        return await store.head(key)
    except NotFound:
        return None
