"""Asking the log and the store whether they are there, without pounding them.

One question is under way at a time and its answer serves everybody for PROBE_AGE_MS_MAX.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordination.log import LogError
from objectstore.store import NotFound, StoreError

if TYPE_CHECKING:
    from agent.http.parts import Parts
    from coordination.clock import Clock

PROBE_AGE_MS_MAX = 1_000
STORE_PROBE_KEY = "cluster.json"


@dataclass(frozen=True, slots=True)
class Health:
    """One dependency's answer. `latency_ms` of the question; `message` says what is wrong."""

    name: str
    ok: bool
    latency_ms: float
    message: str = ""


class Probe:
    """One dependency, asked at most once a second."""

    def __init__(
        self, name: str, ask: Callable[[], Awaitable[object]], clock: Clock, timeout_ms: int
    ) -> None:
        self.name = name
        self._ask = ask
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._lock = asyncio.Lock()
        self._last: tuple[float, Health] | None = None

    async def health(self) -> Health:
        """The newest answer, not older than PROBE_AGE_MS_MAX. Never raises for the dependency's failure."""
        async with self._lock:
            now = self._clock.monotonic()
            if self._last is not None and (now - self._last[0]) * 1000 < PROBE_AGE_MS_MAX:
                return self._last[1]
            message = await self._question()
            latency_ms = round((self._clock.monotonic() - now) * 1000, 3)
            health = Health(self.name, not message, latency_ms, message)
            self._last = (self._clock.monotonic(), health)
            return health

    async def _question(self) -> str:
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                await self._ask()
        except TimeoutError:
            return f"no answer within {self._timeout_ms} ms"
        except (LogError, StoreError, OSError) as error:
            return f"{type(error).__name__}: {error}"
        return ""


def probes(parts: Parts) -> tuple[Probe, Probe]:
    """The agent's two dependencies. The log's probe is a read barrier: reached, and applied up to it."""
    timeout_ms = parts.config.http.barrier_timeout_ms

    async def ask_store() -> None:
        with contextlib.suppress(NotFound):  # that is an answer, too
            await parts.store.head(STORE_PROBE_KEY)

    return (
        Probe("log", parts.replica.barrier, parts.clock, timeout_ms),
        Probe("store", ask_store, parts.clock, timeout_ms),
    )
