"""Time and entropy. The only module of the core that may touch either (lint enforces it).

Everything else receives a Clock. Deadlines and sleeps inside asyncio use the event loop's own
clock, which a simulation replaces together with this one.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Protocol


class Clock(Protocol):
    """A source of time and entropy."""

    def now_ms(self) -> int:
        """Wall clock, Unix milliseconds. Stamps commands; never decides safety."""
        ...

    def now_us(self) -> int:
        """Wall clock, Unix microseconds. For measurements such as freshness."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    def random(self) -> float:
        """Uniform in [0, 1). For jitter."""
        ...

    def random_bits(self, bits: int) -> int:
        """`bits` uniform random bits as a non-negative integer."""
        ...

    def random_bytes(self, size: int) -> bytes:
        """`size` random bytes (topic ids, cluster ids)."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend this task."""
        ...


_Generator = random.Random


class _Entropy:
    """The part of a Clock that draws from a generator."""

    def __init__(self, generator: _Generator) -> None:
        self._random = generator

    def random(self) -> float:
        return self._random.random()

    def random_bits(self, bits: int) -> int:
        return self._random.getrandbits(bits)

    def random_bytes(self, size: int) -> bytes:
        return self._random.getrandbits(size * 8).to_bytes(size, "big")


class SystemClock(_Entropy):
    """The machine's clock and a generator seeded from the operating system."""

    def __init__(self) -> None:
        super().__init__(random.SystemRandom())

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock(_Entropy):
    """A clock that moves only when told, with seeded entropy. For tests and simulation."""

    def __init__(self, seed: int = 0, start_ms: int = 1_700_000_000_000) -> None:
        super().__init__(random.Random(seed))
        self._us = start_ms * 1000

    def advance(self, seconds: float) -> None:
        """Move time forward by `seconds`."""
        self._us += int(seconds * 1_000_000)

    def now_ms(self) -> int:
        return self._us // 1000

    def now_us(self) -> int:
        return self._us

    def monotonic(self) -> float:
        return self._us / 1_000_000

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)
