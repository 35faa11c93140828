"""Chunk PUTs: stored once whatever happens, hedged when late, within the budget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from objectstore.adapters.memory import MemoryStore
from objectstore.budget import PutBudget
from objectstore.faulty import Fault, FaultyStore
from objectstore.flush import ChunkPutter
from objectstore.lateness import EARNED_MAX, SAMPLES_MAX, SAMPLES_MIN, HedgePolicy, Lateness
from objectstore.naming import ChunkId, chunk_key
from objectstore.retry import RetryingStore, RetryPolicy
from objectstore.store import (
    PLAIN,
    Ambiguous,
    Buffer,
    NotFound,
    ObjectMeta,
    Precondition,
    PutMode,
    Retryable,
)

QUICK = HedgePolicy(delay_s_max=0.01, delay_s_min=0.001, share_max=1.0)
CHUNK = ChunkId(1, 1)
PARTS = [b"a", memoryview(b"chunk")]
BYTES = b"achunk"


class Script(MemoryStore):
    """Each PUT follows the next line: (before, after) wait for these events around the effect."""

    def __init__(self, *lines: tuple[asyncio.Event | None, asyncio.Event | None]) -> None:
        super().__init__()
        self.lines = list(lines)
        self.puts = 0
        self.second = asyncio.Event()

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        self.puts += 1
        if self.puts == 2:
            self.second.set()
        before, after = self.lines.pop(0) if self.lines else (None, None)
        if before is not None:
            await before.wait()
        etag = await super().put(key, parts, mode)
        if after is not None:
            await after.wait()
        return etag


async def test_a_chunk_is_put_once_when_the_store_is_quick() -> None:
    store = Script()
    putter = ChunkPutter(store)
    assert await putter.put(CHUNK, PARTS) == 0
    assert await store.get(chunk_key(CHUNK)) == BYTES
    assert (putter.stats.puts, putter.stats.hedges, putter.stats.put_bytes) == (1, 0, len(BYTES))


async def test_a_request_stuck_before_its_effect_is_overtaken() -> None:
    never = asyncio.Event()
    store = Script((never, None))
    putter = ChunkPutter(store, policy=QUICK)
    assert await putter.put(CHUNK, PARTS) == 1
    assert await store.get(chunk_key(CHUNK)) == BYTES
    assert (putter.stats.hedges, putter.stats.hedges_won) == (1, 1)


async def test_a_request_stuck_after_its_effect_is_found_by_its_hedge() -> None:
    """The hedge is refused by the first request's effect: our own bytes are success."""
    never = asyncio.Event()
    store = Script((None, never))
    putter = ChunkPutter(store, policy=QUICK)
    await putter.put(CHUNK, PARTS)
    assert (store.puts, putter.stats.hedges_won) == (2, 1)


async def test_the_first_request_may_still_win() -> None:
    late, never = asyncio.Event(), asyncio.Event()
    store = Script((late, None), (never, None))
    putting = asyncio.create_task((putter := ChunkPutter(store, policy=QUICK)).put(CHUNK, PARTS))
    await store.second.wait()
    late.set()
    await putting
    assert (putter.stats.hedges, putter.stats.hedges_won) == (1, 0)


async def test_another_authors_bytes_under_our_name_are_refused() -> None:
    for stuck in (None, asyncio.Event()):
        store = Script()
        await store.put(chunk_key(CHUNK), [b"theirs"])
        store.lines = [(stuck, None)]
        with pytest.raises(Precondition):
            await ChunkPutter(store, policy=QUICK).put(CHUNK, PARTS)
        assert await store.get(chunk_key(CHUNK)) == b"theirs"


async def test_when_all_fail_the_worse_knowledge_is_told() -> None:
    memory = MemoryStore()
    faulty = FaultyStore(memory)
    faulty.order("put", Fault.REFUSED)
    with pytest.raises(Retryable):
        await ChunkPutter(faulty).put(CHUNK, PARTS)
    faulty.order("put", Fault.LOST_ANSWER)
    with pytest.raises(Ambiguous):
        await ChunkPutter(faulty).put(CHUNK, PARTS)


async def test_with_retries_below_a_lost_answer_is_success() -> None:
    faulty = FaultyStore(MemoryStore())
    faulty.order("put", Fault.LOST_ANSWER, Fault.REFUSED)
    store = RetryingStore(faulty, RetryPolicy(wait_s_first=0.001))
    await ChunkPutter(store).put(CHUNK, PARTS)
    assert await faulty.get(chunk_key(CHUNK)) == BYTES


async def test_who_looks_does_not_keep_the_answer_of_the_first_waiting() -> None:
    """The hedge is refused and looks at what is there; the first request's answer comes meanwhile."""
    answered, never = asyncio.Event(), asyncio.Event()

    class SlowToRead(Script):
        async def head(self, key: str) -> ObjectMeta:
            answered.set()
            await never.wait()
            return await super().head(key)

    store = SlowToRead((None, answered))
    putter = ChunkPutter(store, policy=QUICK)
    assert await putter.put(CHUNK, PARTS) == 1
    assert (store.puts, putter.stats.hedges_won) == (2, 0)


async def test_a_look_that_fails_leaves_it_to_the_first_request() -> None:
    answered = asyncio.Event()

    class Blind(Script):
        async def head(self, key: str) -> ObjectMeta:
            asyncio.get_running_loop().call_later(0.05, answered.set)
            raise NotFound(key)

    store = Blind((None, answered))
    assert await ChunkPutter(store, policy=QUICK).put(CHUNK, PARTS) == 1


async def test_hedges_are_a_small_share_of_all_puts() -> None:
    """A store that is late for everybody must not get twice the load."""

    class Slow(MemoryStore):
        async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
            await asyncio.sleep(0.005)
            return await super().put(key, parts, mode)

    putter = ChunkPutter(Slow(), policy=HedgePolicy(delay_s_max=0.001, delay_s_min=0.001, share_max=0.05))
    await asyncio.gather(*(putter.put(ChunkId(1, number), PARTS) for number in range(100)))
    assert putter.stats.puts == 100
    assert 1 <= putter.stats.hedges <= 6


@pytest.mark.parametrize(("factor", "delay"), [(0.0, 0.05), (1e12, 2.0)])
async def test_the_delay_follows_what_puts_take_within_its_bounds(factor: float, delay: float) -> None:
    putter = ChunkPutter(MemoryStore(), policy=HedgePolicy(factor, delay_s_min=0.05, delay_s_max=2.0))
    assert putter.lateness.delay_s == 2.0  # nothing is known yet
    for number in range(SAMPLES_MIN):
        await putter.put(ChunkId(1, number), PARTS)
    assert putter.lateness.delay_s == delay


def test_a_request_is_late_when_nine_in_ten_took_less() -> None:
    lateness = Lateness(HedgePolicy(delay_s_min=0.001))
    for milliseconds in range(1000, 1000 + SAMPLES_MAX):  # forgotten
        lateness.took(milliseconds / 1000)
    for milliseconds in range(1, SAMPLES_MAX + 1):
        lateness.took(milliseconds / 1000)
    assert lateness.delay_s == pytest.approx(0.9 * SAMPLES_MAX / 1000, abs=0.001)


def test_what_was_earned_in_good_times_is_not_spent_all_at_once() -> None:
    lateness = Lateness(HedgePolicy(share_max=0.1))
    for _ in range(1_000):
        lateness.began()
    spent = 0
    while lateness.affordable:
        lateness.hedged()
        spent += 1
    assert spent == EARNED_MAX
    for _ in range(9):
        lateness.began()
    assert not lateness.affordable
    lateness.began()
    lateness.began()
    assert lateness.affordable


async def test_a_cancelled_put_leaves_nothing_running() -> None:
    never = asyncio.Event()
    store = Script((never, None), (never, None))
    putting = asyncio.create_task(ChunkPutter(store, policy=QUICK).put(CHUNK, PARTS))
    await store.second.wait()
    putting.cancel()
    await asyncio.wait([putting])
    await asyncio.sleep(0)
    assert [task.get_name() for task in asyncio.all_tasks() if "chunk" in task.get_name()] == []


class Pace:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def random(self) -> float:
        return 0.5

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


async def test_the_budget_allows_a_burst_and_then_an_even_rate() -> None:
    pace = Pace()
    budget = PutBudget(per_second=10, burst=3, pace=pace)
    times = []
    for _ in range(6):
        await budget.take()
        times.append(round(pace.now, 6))
    assert times == [0, 0, 0, 0.1, 0.2, 0.3]
    assert budget.wait() == pytest.approx(0.1)
    pace.now += 100
    assert budget.wait() == 0
    for _ in range(4):
        await budget.take()
    assert pace.now == pytest.approx(100.4)


async def test_turns_are_in_the_order_of_the_calls() -> None:
    budget = PutBudget(per_second=1_000, burst=1)
    order: list[int] = []

    async def take(number: int) -> None:
        await budget.take()
        order.append(number)

    await asyncio.gather(*map(take, range(10)))
    assert order == list(range(10))


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="above zero"):
        PutBudget(0, 1)


async def test_hedges_keep_to_the_budget() -> None:
    late = asyncio.Event()
    store = Script((late, None))
    putter = ChunkPutter(store, PutBudget(per_second=0.001, burst=1), QUICK)
    putting = asyncio.create_task(putter.put(CHUNK, PARTS))
    await asyncio.sleep(0.03)
    late.set()
    await putting
    assert (store.puts, putter.stats.hedges) == (1, 0)
