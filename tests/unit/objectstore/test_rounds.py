"""What is due at once is done by turns, in its order."""

from __future__ import annotations

import asyncio
from typing import Any

from objectstore.rounds import Rounds

MOST = 3


async def test_so_many_in_a_round_and_nobody_passes_who_waits() -> None:
    done: list[int] = []
    rounds = Rounds(done.append, MOST)
    for one in range(8):
        rounds.come(one)
    assert done == [0, 1, 2]
    await asyncio.sleep(0)
    assert done == [0, 1, 2, 3, 4, 5]
    rounds.come(8)
    assert 8 not in done
    await asyncio.sleep(0)
    assert done == list(range(9))
    await asyncio.sleep(0)
    rounds.come(9)
    assert done[-1] == 9, "at once again"


async def test_what_is_due_already_is_done_once_and_may_leave() -> None:
    done: list[int] = []
    rounds = Rounds(done.append, MOST)
    for _ in range(5):
        for one in range(2 * MOST):
            rounds.come(one)
    rounds.leave(MOST)
    rounds.leave(1_000)
    for _ in range(20):
        await asyncio.sleep(0)
    assert sorted(done[MOST:]) == [0, 1, 2, 4, 5], "those of the first round came again, once"
    assert done[:MOST] == [0, 1, 2]


async def test_all_that_wait_can_be_done_now() -> None:
    done: list[int] = []
    rounds = Rounds(done.append, MOST)
    for one in range(8):
        rounds.come(one)
    rounds.all()
    assert done == list(range(8))
    await asyncio.sleep(0)
    assert done == list(range(8))


async def test_one_that_fails_does_not_hold_up_the_others() -> None:
    done: list[int] = []
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))

    def do(one: int) -> None:
        done.append(one)
        if one == MOST:
            raise ValueError(one)

    rounds = Rounds(do, MOST)
    for one in range(2 * MOST):
        rounds.come(one)
    for _ in range(4):
        await asyncio.sleep(0)
    assert done == list(range(2 * MOST))
    assert [str(each) for each in told] == [str(MOST)]


async def test_what_is_done_may_bring_more() -> None:
    done: list[int] = []

    def do(one: int) -> None:
        done.append(one)
        if one < 2 * MOST:
            rounds.come(one + 1)

    rounds = Rounds(do, MOST)
    rounds.come(0)
    assert done == [0, 1, 2]
    for _ in range(4):
        await asyncio.sleep(0)
    assert done == list(range(2 * MOST + 1))
