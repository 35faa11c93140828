"""The faulty store fails as asked, the same way for the same seed."""

from __future__ import annotations

import pytest

from objectstore.adapters.memory import MemoryStore
from objectstore.faulty import Dice, Fault, FaultRates, FaultyStore
from objectstore.store import Ambiguous, NotFound, Retryable, StoreError


async def trace(seed: int) -> list[str]:
    rates = FaultRates(refused=0.1, lost_request=0.1, lost_answer=0.1, truncated=0.1, corrupt=0.1, stale=0.2)
    store = FaultyStore(MemoryStore(), seed, rates)
    told = []
    for number in range(60):
        try:
            await store.put(f"k{number}", [b"some bytes"])
            told.append(repr(await store.get(f"k{number}")))
            told.append(repr([meta.key async for page in store.list("k") for meta in page]))
        except StoreError as error:
            told.append(f"{type(error).__name__}: {error}")
    return told


async def test_the_same_seed_fails_the_same_way() -> None:
    assert await trace(7) == await trace(7)
    assert await trace(7) != await trace(8)


def test_dice_are_splitmix64() -> None:
    """Reference value of SplitMix64 for seed 0: 0xE220A8397B1DCDAF."""
    assert Dice(0).random() == (0xE220A8397B1DCDAF >> 11) / (1 << 53)
    dice = Dice(3)
    rolls = [dice.random() for _ in range(4_000)]
    assert 0 <= min(rolls) < 0.01 < 0.99 < max(rolls) < 1
    assert 0.45 < sum(rolls) / len(rolls) < 0.55


async def test_changes_fail_before_and_after_their_effect() -> None:
    memory = MemoryStore()
    store = FaultyStore(memory)
    store.order("put", Fault.REFUSED, Fault.LOST_REQUEST, Fault.LOST_ANSWER)
    with pytest.raises(Retryable):
        await store.put("a", [b"x"])
    with pytest.raises(Ambiguous):
        await store.put("a", [b"x"])
    with pytest.raises(NotFound):
        await memory.get("a")
    with pytest.raises(Ambiguous):
        await store.put("a", [b"x"])
    assert await memory.get("a") == b"x"
    store.order("delete", Fault.LOST_ANSWER)
    with pytest.raises(Ambiguous):
        await store.delete(["a"])
    with pytest.raises(NotFound):
        await store.get("a")


async def test_reads_end_early_or_lie() -> None:
    store = FaultyStore(MemoryStore())
    await store.put("a", [b"0123456789"])
    store.order("get_range", Fault.TRUNCATED, Fault.CORRUPT)
    with pytest.raises(Retryable):
        await store.get_range("a", 2, 5)
    assert await store.get_range("a", 2, 5) != b"23456"
    assert await store.get_range("a", 2, 5) == b"23456"


async def test_a_stale_listing_shows_what_was_before() -> None:
    store = FaultyStore(MemoryStore())
    await store.put("b", [b""])
    await store.put("c", [b""])
    for _ in range(3):
        await store.put("other", [b""])
    await store.delete(["b"])
    await store.put("a", [b""])
    await store.put("d", [b""])

    async def keys() -> list[str]:
        return [meta.key async for page in store.list("") for meta in page]

    assert await keys() == ["a", "c", "d", "other"]
    store.order("list", Fault.STALE)
    assert sorted(await keys()) == ["b", "c", "other"]
    assert await keys() == ["a", "c", "d", "other"]
