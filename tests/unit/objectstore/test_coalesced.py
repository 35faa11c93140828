"""Pauses that end together: none is longer than it was asked for, and one wake-up serves all that are due."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from objectstore import coalesced
from objectstore.coalesced import GRID_S, ROUNDED_S, pause_s
from tests.sim.loop import VirtualLoop

OFTEN, SECOND, LEASE_S = GRID_S, 1.0, 10 / 3
BEGAN_S, WATCHED_S = 0.717, 60
TURNS_S = 0.001
"""What turns of the virtual loop may take on the way."""


async def beating(seconds: float, begins_s: float, woken: list[float]) -> None:
    """Looks at nothing, again and again; notes when, and that it did not oversleep."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(begins_s)
    while True:
        before = loop.time()
        await asyncio.sleep(pause_s(seconds))
        assert loop.time() - before <= seconds + TURNS_S
        woken.append(loop.time())


async def beats(together: bool) -> list[list[float]]:
    """When each of several woke up that began at different times."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(BEGAN_S)
    if together:
        coalesced.coalesce(loop)
    whens: list[list[float]] = []
    working = []
    for number, seconds in enumerate((OFTEN, OFTEN, SECOND, SECOND, LEASE_S)):
        whens.append([])
        working.append(asyncio.create_task(beating(seconds, 0.037 * number, whens[-1])))
    await asyncio.sleep(WATCHED_S + GRID_S / 2)
    for each in working:
        each.cancel()
    for ended in await asyncio.gather(*working, return_exceptions=True):
        assert isinstance(ended, asyncio.CancelledError), ended
    return whens


def virtually(together: bool) -> list[list[float]]:
    loop = VirtualLoop(1)
    try:
        return loop.run_until_complete(beats(together))
    finally:
        loop.put_away()


def test_all_wake_up_at_the_same_moments_as_often_as_before() -> None:
    often, too, second, other, lease = virtually(True)
    for when in (often, too, second, other, lease):
        assert all((at - BEGAN_S) % GRID_S <= TURNS_S for at in when), "at a moment of the grid"
    assert len(often) == len(too) == WATCHED_S / GRID_S
    assert len(second) == len(other) == WATCHED_S
    assert {round(b - a, 2) for a, b in pairwise(lease)} == {3.25}, "sooner, never later"


def test_elsewhere_a_pause_is_as_long_as_it_is() -> None:
    """The simulation's nodes do not beat in step."""
    often, too, *_ = virtually(False)
    assert not {round(at % GRID_S, 2) for at in often} & {round(at % GRID_S, 2) for at in too}


async def test_a_pause_that_ends_before_the_next_moment_is_what_was_asked_for() -> None:
    loop = asyncio.get_running_loop()
    assert pause_s(0.3) == 0.3
    coalesced.coalesce(loop)
    for seconds in (0.001, 0.1, 0.25, 0.3, 1.0, 4.5):
        assert 0 < pause_s(seconds) <= seconds + ROUNDED_S
