"""Deadlines: all of them are met, none too early and none too late, by one timer."""

from __future__ import annotations

import asyncio
import random

import pytest

from agent.kafka.fetch.deadlines import DUE_MAX, TICK_S, TICKS_MAX, Deadlines
from objectstore import tasks
from tests.sim.loop import RESOLUTION_S, TURN_S, VirtualLoop
from tests.unit.coordination.conftest import until

LONG_S = 3_600.0
EXACT_S = 2 * (RESOLUTION_S + TURN_S)
"""What virtual time takes from a timer's moment to its callback, at most."""


class One:
    """Notes when it was due, by the loop's clock."""

    def __init__(self, over: list[One]) -> None:
        self.over, self.at = over, 0.0

    def due(self) -> None:
        self.at = asyncio.get_running_loop().time()
        self.over.append(self)


async def all_over(deadlines: Deadlines) -> None:
    await until(lambda: not len(deadlines))


async def test_none_is_too_early_and_the_later_one_is_later() -> None:
    loop, over = asyncio.get_running_loop(), list[One]()
    deadlines, now = Deadlines(loop), loop.time()
    late, soon, same = One(over), One(over), One(over)
    deadlines.add(late, now + 20 * TICK_S)
    deadlines.add(soon, now + 5 * TICK_S)
    deadlines.add(same, now + 5 * TICK_S)
    assert len(deadlines) == 3
    await all_over(deadlines)
    assert over[2] is late, "although it was there first"
    assert soon.at >= now + 5 * TICK_S
    assert late.at >= now + 20 * TICK_S


async def test_many_of_one_moment_take_turns_and_who_is_removed_meanwhile_is_not_due() -> None:
    loop, over = asyncio.get_running_loop(), list[One]()
    deadlines, at = Deadlines(loop), loop.time() + TICK_S
    many = [One(over) for _ in range(2 * DUE_MAX)]
    ticks = [deadlines.add(each, at) for each in many]
    for _ in range(1_000_000):
        await asyncio.sleep(0)
        if over:
            break
    assert over == many[:DUE_MAX], "so many in one round"
    deadlines.remove(many[-1], ticks[-1])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert over == many[:-1]


async def met() -> None:
    """Each is over between its time and a tick later, whichever comes or goes first."""
    loop, over, draw = asyncio.get_running_loop(), list[One](), random.Random(8)
    deadlines, wanted = Deadlines(loop), dict[One, float]()
    for number in range(300):
        one, at = One(over), loop.time() + draw.choice((0.0, 0.003, 0.5, 30.0, LONG_S)) * draw.random()
        tick = deadlines.add(one, at)
        if number % 5:
            wanted[one] = at
        else:  # the first of all, now and then: its tick has nobody
            deadlines.remove(one, tick)
        if number % 7 == 0:
            await asyncio.sleep(draw.random())
    await asyncio.sleep(LONG_S + 2 * TICK_S)
    assert set(over) == set(wanted)
    late_s = [one.at - at for one, at in wanted.items()]
    assert min(late_s) >= -EXACT_S, "none is too early"
    assert max(late_s) <= TICK_S + EXACT_S, "none is too late"


def test_each_is_over_within_a_tick_of_its_time() -> None:
    """By a clock that moves only when everybody waits, so that a tick is a tick on any machine."""
    loop = VirtualLoop(1)
    try:
        loop.run_until_complete(met())
    finally:
        loop.put_away()


async def test_one_that_is_removed_is_not_due() -> None:
    loop, over = asyncio.get_running_loop(), list[One]()
    deadlines, one, other = Deadlines(loop), One(over), One(over)
    tick = deadlines.add(one, loop.time() + TICK_S)
    deadlines.add(other, loop.time() + 3 * TICK_S)
    deadlines.remove(one, tick)
    deadlines.remove(one, tick)
    await all_over(deadlines)
    assert over == [other]


async def test_a_time_that_is_over_is_due_soon_and_may_add_another() -> None:
    loop, over = asyncio.get_running_loop(), list[One]()
    deadlines, last = Deadlines(loop), One(over)

    class Adding(One):
        def due(self) -> None:
            super().due()
            deadlines.add(last, loop.time())

    first = Adding(over)
    deadlines.add(first, loop.time() - 1)
    assert over == [], "not within the call"
    await all_over(deadlines)
    assert over == [first, last]


async def test_one_timer_serves_all() -> None:
    loop, over = asyncio.get_running_loop(), list[One]()
    deadlines, now = Deadlines(loop), loop.time()
    for number in range(1_000):
        deadlines.add(One(over), now + (number % 3 + 1) * TICK_S)
    timers = loop._scheduled  # type: ignore[attr-defined]  # private
    pending = [each for each in timers if not each.cancelled()]
    assert len(pending) == 1
    await all_over(deadlines)
    assert len(over) == 1_000


async def test_one_that_fails_keeps_no_other_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "DEFECTS", tasks.Defects())
    loop, over = asyncio.get_running_loop(), list[One]()
    deadlines, at = Deadlines(loop), loop.time()

    class Failing(One):
        def due(self) -> None:
            raise ValueError("this should not happen")

    for one in (One(over), Failing(over), One(over)):
        deadlines.add(one, at)
    await all_over(deadlines)
    assert len(over) == 2
    assert tasks.DEFECTS.counts == {"deadline": 1}


async def called(one: One) -> None:
    await until(lambda: one.at > 0)


async def test_ticks_that_nobody_waits_for_any_more_are_let_go() -> None:
    loop, over = asyncio.get_running_loop(), list[One]()
    deadlines, begun = Deadlines(loop, 0.01), asyncio.get_running_loop().time()
    for number in range(2 * TICKS_MAX):
        gone = One(over)
        deadlines.remove(gone, deadlines.add(gone, begun + LONG_S + number * 0.01))
    for seconds in (0.02, 0.02):
        one = One(over)
        at = loop.time() + seconds
        deadlines.add(one, at)
        await called(one)
        assert one.at >= at
    assert len(deadlines) == 0
    assert len(over) == 2
