"""A log whose appends are measured. Everything else is the log below it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from agent.telemetry.metrics import Metrics
from coordination.log import Chain, Entries, EntryName, Log, Member


class MeasuredChain:
    """An append chain that notes how long each append took and how large it was."""

    def __init__(self, chain: Chain, metrics: Metrics) -> None:
        self._chain = chain
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()

    @property
    def incarnation(self) -> int:
        return self._chain.incarnation

    async def append(self, payload: bytes) -> int:
        started = self._loop.time()
        revision = await self._chain.append(payload)
        self._metrics.append_seconds.observe(self._loop.time() - started)
        self._metrics.append_bytes.inc(len(payload))
        return revision

    async def close(self) -> None:
        await self._chain.close()


class MeasuredLog:
    """Implements coordination.log.Log over another one."""

    def __init__(self, log: Log, metrics: Metrics) -> None:
        self._log = log
        self._metrics = metrics

    @property
    def entry_bytes_max(self) -> int:
        return self._log.entry_bytes_max

    async def identity(self) -> str:
        return await self._log.identity()

    async def register(self, incarnation: int, info: bytes, ttl_s: float) -> Chain:
        chain = await self._log.register(incarnation, info, ttl_s)
        self._metrics.incarnations.inc()
        return MeasuredChain(chain, self._metrics)

    def follow(self, after: int, last: EntryName | None = None) -> AsyncIterator[Entries]:
        return self._log.follow(after, last)

    async def current(self) -> int:
        return await self._log.current()

    async def members(self) -> Sequence[Member]:
        return await self._log.members()

    async def fence(self, incarnation: int) -> None:
        await self._log.fence(incarnation)

    async def trim(self, through: int) -> None:
        await self._log.trim(through)

    async def trimmed(self) -> int:
        return await self._log.trimmed()

    async def close(self) -> None:
        await self._log.close()
