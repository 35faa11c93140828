"""The waits of a run end as asyncio's do: the same outcomes, in the same order of callbacks."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass, fields
from random import Random

import pytest

from tests.sim import thaw
from tests.sim.loop import VirtualLoop
from tests.sim.waits import quick_waits


async def _ends(kind: str, delay_s: float, told: list[str], name: str) -> str:
    try:
        await asyncio.sleep(delay_s)
        if kind == "fails":
            raise RuntimeError(name)
        return name
    finally:
        told.append(f"{name} is over")


async def _waits(random: Random, told: list[str], number: int) -> None:
    """Some tasks, waited for in one of the ways, and perhaps cancelled meanwhile."""
    some = [
        asyncio.create_task(
            _ends(random.choice(["ends", "fails"]), random.choice([0, 1, 2]), told, f"{number}.{at}")
        )
        for at in range(random.randrange(1, 4))
    ]
    if random.random() < 0.2:
        some[0].cancel()
    how = random.choice([asyncio.FIRST_COMPLETED, asyncio.FIRST_EXCEPTION, asyncio.ALL_COMPLETED])
    done, pending = await asyncio.wait(some, timeout=random.choice([None, 0, 1, 1.5]), return_when=how)
    told.append(
        f"{number}: {sorted(map(some.index, done))} of {sorted(map(some.index, pending))} after {how}"
    )
    for each in pending:
        each.cancel()
    await asyncio.gather(*some, return_exceptions=True)


async def _story(seed: int) -> list[str]:
    random, told, event = Random(seed), list[str](), asyncio.Event()

    async def listens(name: str) -> None:
        try:
            told.append(f"{name} heard {await event.wait()}")
        finally:
            told.append(f"{name} goes")

    listeners = [asyncio.create_task(listens(f"listener {at}")) for at in range(3)]
    await asyncio.gather(*[_waits(random, told, number) for number in range(5)])
    listeners[random.randrange(3)].cancel()
    event.set()
    await asyncio.gather(*listeners, return_exceptions=True)
    told.append(
        f"{await event.wait()}, {await asyncio.sleep(0, 'at once')}, {await asyncio.sleep(-1, 'before')}"
    )
    told.append(str(await asyncio.sleep(1, "later")))
    told.append(f"at {asyncio.get_running_loop().time():.1f}")
    return told


def _told(seed: int, *, quick: bool) -> list[str]:
    loop = VirtualLoop(1)
    try:
        with quick_waits() if quick else nullcontext():
            return loop.run_until_complete(_story(seed))
    finally:
        loop.put_away()


@pytest.mark.parametrize("seed", range(60))
def test_waits_end_as_they_did(seed: int) -> None:
    assert _told(seed, quick=True) == _told(seed, quick=False)


def test_they_are_asyncios_own_again() -> None:
    before = asyncio.sleep, asyncio.wait, asyncio.Event.wait, asyncio.iscoroutine
    with quick_waits():
        assert asyncio.sleep is not before[0]
    assert (asyncio.sleep, asyncio.wait, asyncio.Event.wait, asyncio.iscoroutine) == before


def test_nothing_to_wait_for_is_refused() -> None:
    async def story() -> None:
        await asyncio.wait([])

    loop = VirtualLoop(1)
    with quick_waits(), pytest.raises(ValueError, match="empty"):
        loop.run_until_complete(story())
    loop.put_away()


@dataclass(frozen=True, slots=True)
class Frozen:
    """As the product has them."""

    first: int
    second: tuple[str, ...] = ("a",)
    third: int = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "third", self.third + 1)


def test_a_thawed_dataclass_is_made_as_before() -> None:
    before = [Frozen(1), Frozen(1, ("b",), 4), Frozen(first=1, third=9)]
    thaw._thaw(Frozen)
    after = [Frozen(1), Frozen(1, ("b",), 4), Frozen(first=1, third=9)]
    assert after == before
    assert list(map(hash, after)) == list(map(hash, before))
    assert [each.name for each in fields(Frozen)] == ["first", "second", "third"]
    with pytest.raises(TypeError, match="first"):
        Frozen()  # type: ignore[call-arg]  # that is the point
