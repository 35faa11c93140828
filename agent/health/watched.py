"""The log and the store as this agent uses them: what becomes of every call is evidence.

Answers such as "there is no such object" are good: the store works. Calls are told after their retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TypeVar

from agent.health.evidence import Evidence
from coordination.log import Chain, Fenced, Full, Log, LogRegressed
from coordination.log_around import LogAround
from objectstore.store import PLAIN, Buffer, NotFound, ObjectMeta, ObjectStore, Precondition, PutMode

_T = TypeVar("_T")
_ANSWERS = (NotFound, Precondition, Fenced, LogRegressed)  # refusals of one that works


SMALL_BYTES_MAX = 256 * 1024  # a PUT of more takes its time on every store


async def watch(evidence: Evidence, call: Awaitable[_T], *, timed: bool = True) -> _T:
    """Await the call and note as evidence how it ended and, with `timed`, how long it took."""
    attempt = evidence.begin(timed=timed)
    try:
        result = await call
    except _ANSWERS:
        evidence.succeeded(attempt)
        raise
    except asyncio.CancelledError:
        evidence.given_up(attempt)
        raise
    except BaseException as error:
        evidence.failed(attempt, f"{type(error).__name__}: {error}", everywhere=isinstance(error, Full))
        raise
    evidence.succeeded(attempt)
    return result


class WatchedStore:
    """Implements objectstore.store.ObjectStore over another one."""

    def __init__(self, store: ObjectStore, reads: Evidence, writes: Evidence) -> None:
        self._store = store
        self._reads = reads
        self._writes = writes

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        small = sum(map(len, parts)) <= SMALL_BYTES_MAX
        return await watch(self._writes, self._store.put(key, parts, mode), timed=small)

    async def get(self, key: str) -> bytes:
        return await watch(self._reads, self._store.get(key))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return await watch(self._reads, self._store.get_range(key, start, length))

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return await watch(self._reads, self._store.get_ranges(key, ranges))

    async def head(self, key: str) -> ObjectMeta:
        return await watch(self._reads, self._store.head(key))

    def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        return self._store.list(prefix, start_after)

    async def list_folders(self, prefix: str) -> Sequence[str]:
        return await watch(self._reads, self._store.list_folders(prefix))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._store.delete(keys)

    async def close(self) -> None:
        await self._store.close()


class WatchedChain:
    """An append chain whose appends are evidence."""

    def __init__(self, chain: Chain, appends: Evidence) -> None:
        self._chain = chain
        self._appends = appends

    @property
    def incarnation(self) -> int:
        return self._chain.incarnation

    async def append(self, payload: bytes) -> int:
        return await watch(self._appends, self._chain.append(payload))

    async def close(self) -> None:
        await self._chain.close()


class WatchedLog(LogAround[Log]):
    """Implements coordination.log.Log over another one."""

    def __init__(self, log: Log, reads: Evidence, appends: Evidence) -> None:
        super().__init__(log)
        self._reads = reads
        self._appends = appends

    async def register(self, incarnation: int, info: bytes, ttl_s: float) -> Chain:
        chain = await watch(self._appends, self._log.register(incarnation, info, ttl_s))
        return WatchedChain(chain, self._appends)

    async def current(self) -> int:
        return await watch(self._reads, self._log.current())
