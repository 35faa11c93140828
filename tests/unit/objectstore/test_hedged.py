"""Reads of the store: small ones that are late are sent a second time, and never a large share of them."""

from __future__ import annotations

import asyncio

import pytest

from objectstore.adapters.memory import MemoryStore
from objectstore.hedged import BYTES_MAX, HedgedReads
from objectstore.lateness import EARNED_MAX, SAMPLES_MIN, HedgePolicy
from objectstore.store import NotFound, Retryable, StoreError

QUICK = HedgePolicy(delay_s_max=0.01, delay_s_min=0.001, share_max=1.0)


class Script(MemoryStore):
    """Each read follows the next line: an event that it waits for, or an error that it ends with, or None."""

    def __init__(self, *lines: asyncio.Event | StoreError | None) -> None:
        super().__init__()
        self.lines, self.reads, self.cancelled = list(lines), 0, 0
        self.second = asyncio.Event()

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        self.reads += 1
        if self.reads == 2:
            self.second.set()
        line = self.lines.pop(0) if self.lines else None
        if isinstance(line, StoreError):
            await asyncio.sleep(0.02)
            raise line
        if line is not None:
            try:
                await line.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return await super().get_range(key, start, length)


async def over(*lines: asyncio.Event | StoreError | None) -> tuple[Script, HedgedReads, list[int]]:
    store, hedges = Script(*lines), list[int]()
    await store.put("a", [bytes(BYTES_MAX + 1)])
    return store, HedgedReads(store, QUICK, lambda: hedges.append(1)), hedges


async def test_what_is_read_in_time_is_read_once() -> None:
    store, reads, hedges = await over()
    for _ in range(SAMPLES_MIN):
        assert await reads.get_range("a", 1, 5) == bytes(5)
    assert (store.reads, hedges) == (SAMPLES_MIN, [])
    assert await reads.get("a") == bytes(BYTES_MAX + 1)
    assert (await reads.head("a")).size == BYTES_MAX + 1


async def test_a_read_that_hangs_is_overtaken_and_given_up() -> None:
    store, reads, hedges = await over(asyncio.Event())
    assert await reads.get_range("a", 1, 5) == bytes(5)
    await asyncio.sleep(0)
    assert (store.reads, len(hedges), store.cancelled) == (2, 1, 1)


async def test_the_first_may_still_win() -> None:
    late = asyncio.Event()
    store, reads, hedges = await over(late, asyncio.Event())
    reading = asyncio.create_task(reads.get_range("a", 1, 5))
    await store.second.wait()
    late.set()
    assert await reading == bytes(5)
    assert len(hedges) == 1


async def test_one_that_fails_leaves_it_to_the_other() -> None:
    store, reads, _ = await over(Retryable("busy"), None)
    assert await reads.get_range("a", 1, 5) == bytes(5)
    assert store.reads == 2


async def test_when_both_fail_the_first_error_is_told_and_what_is_gone_is_told_at_once() -> None:
    _, reads, _ = await over(Retryable("first"), Retryable("second"))
    with pytest.raises(Retryable, match="first"):
        await reads.get_range("a", 1, 5)
    _, reads, _ = await over(asyncio.Event(), NotFound("a"))
    with pytest.raises(NotFound):
        await reads.get_range("a", 1, 5)


async def test_large_reads_are_sent_once() -> None:
    late = asyncio.Event()
    store, reads, _ = await over(late)
    reading = asyncio.create_task(reads.get_range("a", 0, BYTES_MAX + 1))
    await asyncio.sleep(0.05)
    late.set()
    await reading
    assert store.reads == 1


async def test_who_gives_up_leaves_no_read_behind() -> None:
    store, reads, _ = await over(asyncio.Event(), asyncio.Event())
    reading = asyncio.create_task(reads.get_range("a", 1, 5))
    await store.second.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await asyncio.sleep(0)
    assert store.cancelled == 2


async def test_hedges_are_a_small_share_of_all_reads() -> None:
    """A store that is late for everybody must not get twice the load."""
    hedges = list[int]()

    class Slow(MemoryStore):
        async def get_range(self, key: str, start: int, length: int) -> bytes:
            await asyncio.sleep(0.003)
            return await super().get_range(key, start, length)

    store = Slow()
    await store.put("a", [b"abc"])
    policy = HedgePolicy(delay_s_min=0.0001, delay_s_max=0.0001, share_max=0.1)
    reads = HedgedReads(store, policy, lambda: hedges.append(1))
    count = 200
    for _ in range(count // 10):
        await asyncio.gather(*(reads.get_range("a", 0, 3) for _ in range(10)))
    assert 1 <= len(hedges) <= count * policy.share_max + EARNED_MAX
