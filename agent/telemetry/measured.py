"""A log whose appends are measured. Everything else is the log below it."""

from __future__ import annotations

import asyncio

from agent.telemetry.metrics import Metrics
from coordination.log import Chain, Log
from coordination.log_around import LogAround


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


class MeasuredLog(LogAround[Log]):
    """Implements coordination.log.Log over another one."""

    def __init__(self, log: Log, metrics: Metrics) -> None:
        super().__init__(log)
        self._metrics = metrics

    async def register(self, incarnation: int, info: bytes, ttl_s: float) -> Chain:
        chain = await self._log.register(incarnation, info, ttl_s)
        self._metrics.incarnations.inc()
        return MeasuredChain(chain, self._metrics)
