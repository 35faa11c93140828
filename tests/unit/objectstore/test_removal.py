"""Objects that the store does not let go of keep no other one, and do not count as a store that is away."""

from __future__ import annotations

import pytest

from objectstore.adapters.memory import MemoryStore
from objectstore.faulty import Fault, FaultyStore
from objectstore.removal import AGAIN_MAX, FAILING_MAX, IN_A_ROW_MAX, Failing, Removal, require_none
from objectstore.store import Denied, Retryable

KEYS = [f"k{number:04d}" for number in range(2_500)]


async def stored(count: int, *held: int) -> tuple[FaultyStore, Removal]:
    store = FaultyStore(MemoryStore())
    for key in KEYS[:count]:
        await store.put(key, [b"x"])
    store.held = {KEYS[at] for at in held}
    return store, Removal(store.delete)


async def keys(store: FaultyStore) -> set[str]:
    return {meta.key async for page in store.list("") for meta in page}


async def test_all_but_what_is_held_go_and_that_is_told_each_time() -> None:
    store, removal = await stored(2_500, 7, 1_700)
    for _ in range(2):
        told: list[str] = []
        gone = await removal(KEYS, told.append)
        assert await keys(store) == store.held == set(KEYS) - gone
        assert [each[:5] for each in told] == ["k0007", "k1700"]
        with pytest.raises(Denied, match="keeps 2 objects that nothing needs; one is k0007"):
            require_none(told)
    store.held.clear()
    told = []
    assert await removal([KEYS[7], KEYS[1_700]], told.append) == {KEYS[7], KEYS[1_700]}
    require_none(told)
    assert await keys(store) == set()


async def test_what_was_held_before_costs_the_others_no_request_of_their_own() -> None:
    store, removal = await stored(1_000, 500)
    await removal(KEYS[:1_000], lambda _: None)
    calls = store.calls["delete"]
    await removal(KEYS[:1_000], lambda _: None)
    assert store.calls["delete"] - calls == 2, "one for all others, one for it"


async def test_a_store_that_is_away_ends_it_and_is_not_asked_for_every_object() -> None:
    store, removal = await stored(1_000)
    store.order("delete", *[Fault.REFUSED] * 1_000)
    told: list[str] = []
    with pytest.raises(Retryable):
        await removal(KEYS[:1_000], told.append)
    assert (store.calls["delete"], len(told)) == (1 + IN_A_ROW_MAX, IN_A_ROW_MAX)


async def test_many_held_in_a_row_are_gone_on_from_in_time() -> None:
    """What was held before does not tell that the store is away."""
    held = range(2 * IN_A_ROW_MAX)
    _, removal = await stored(20, *held)
    for _ in range(2):
        with pytest.raises(Denied):
            await removal(KEYS[:20], lambda _: None)
    gone = await removal(KEYS[:20], lambda _: None)
    assert gone == set(KEYS[len(held) : 20])


async def test_of_many_that_were_held_a_few_are_asked_for_each_time_in_turn() -> None:
    store, removal = await stored(50, *range(50))
    for at in range(50):
        removal.failing.failed(KEYS[at], Denied("before"))
    for turn in range(5):
        told: list[str] = []
        calls = store.calls.get("delete", 0)
        assert await removal(KEYS[:50], told.append) == set()
        assert store.calls["delete"] - calls == AGAIN_MAX
        assert len(told) == 50
        assert [each for each in told if each.endswith("before")] == [
            f"{key}: before" for key in KEYS[(turn + 1) * AGAIN_MAX : 50]
        ]
    store.held.clear()
    assert await removal(KEYS[:50], lambda _: None) == set(KEYS[:50]), "those that go are no bound"


def test_what_is_remembered_is_bounded() -> None:
    failing = Failing()
    for at in range(FAILING_MAX + 5):
        failing.failed(KEYS[at], Denied("held"))
    assert [key in failing for key in KEYS[4:6]] == [False, True]
    assert len(failing.among(KEYS)) == FAILING_MAX
