"""Clocks of the simulation: one per node, over the loop's virtual time, with a skew of the wall clock."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.sim.loop import VirtualLoop

START_MS = 1_700_000_000_000


class SimClock:
    """A node's clock; implements coordination.clock.Clock."""

    def __init__(self, loop: VirtualLoop, seed: int, skew_ms: int = 0) -> None:
        self._loop = loop
        self._random = random.Random(seed)
        self.skew_ms = skew_ms
        self._wrong_ms, self._rate, self._since_s = 0.0, 1.0, 0.0

    @property
    def wrong(self) -> bool:
        """Whether it was made to jump or drift."""
        return bool(self._wrong_ms) or self._rate != 1.0

    def jump(self, milliseconds: int) -> None:
        """Show so much more, or less."""
        self._wrong_ms += milliseconds

    def drift(self, rate: float) -> None:
        """From now on show so many seconds per second."""
        self._rate, self._since_s = rate, self._loop.time()

    def set_right(self) -> None:
        """Show again what it would have shown."""
        self._wrong_ms, self._rate = 0.0, 1.0

    def _off_ms(self) -> float:
        return self.skew_ms + self._wrong_ms + (self._rate - 1) * (self._loop.time() - self._since_s) * 1000

    def now_ms(self) -> int:
        """Virtual wall clock, Unix ms."""
        return START_MS + int(self._off_ms() + self._loop.time() * 1000)

    def now_us(self) -> int:
        """Virtual wall clock, Unix µs."""
        return START_MS * 1000 + int(self._off_ms() * 1000 + self._loop.time() * 1_000_000)

    def monotonic(self) -> float:
        """The loop's time."""
        return self._loop.time()

    def random(self) -> float:
        """Uniform in [0, 1)."""
        return self._random.random()

    def random_bits(self, bits: int) -> int:
        """`bits` random bits."""
        return self._random.getrandbits(bits)

    def random_bytes(self, size: int) -> bytes:
        """`size` random bytes."""
        return self._random.getrandbits(size * 8).to_bytes(size, "big")

    async def sleep(self, seconds: float) -> None:
        """Suspend the task in virtual time."""
        await asyncio.sleep(seconds)


@contextmanager
def virtual_time(loop: VirtualLoop, seed: int) -> Iterator[None]:
    """Python's own clock, dice and the machine's entropy follow the simulation: libraries of other makes ask
    them directly (pyiceberg marks the blocks of its Avro files with os.urandom, and names with uuid4).
    """
    saved = (time.time, time.monotonic, time.perf_counter, time.time_ns, time.monotonic_ns)
    entropy = os.urandom, vars(random)["_urandom"]
    state = random.getstate()
    random.seed(seed)
    os.urandom = random._urandom = random.Random(f"entropy {seed}").randbytes  # type: ignore[attr-defined]  # of SystemRandom, and secrets
    time.time = lambda: START_MS / 1000 + loop.time()
    time.monotonic = loop.time
    time.perf_counter = loop.time
    time.time_ns = lambda: START_MS * 1_000_000 + int(loop.time() * 1e9)
    time.monotonic_ns = lambda: int(loop.time() * 1e9)
    try:
        yield
    finally:
        time.time, time.monotonic, time.perf_counter, time.time_ns, time.monotonic_ns = saved
        random.setstate(state)
        os.urandom, random._urandom = entropy  # type: ignore[attr-defined]  # likewise
