"""Who waits for room in the produce buffer gets it in the order they asked, whoever gives up meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from agent.kafka.produce.budget import ByteBudget


async def waiting(budget: ByteBudget, *sizes: int) -> list[asyncio.Task[None]]:
    """Requests that wait in line."""
    tasks = [asyncio.create_task(budget.take(size)) for size in sizes]
    await asyncio.sleep(0)
    assert budget.waiting == len(sizes)
    return tasks


async def cancelled(task: asyncio.Task[None]) -> bool:
    with suppress(asyncio.CancelledError):
        await task
    return task.cancelled()


async def settled(budget: ByteBudget) -> None:
    """Long enough for whoever was woken."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_room_that_came_as_its_request_was_given_up_goes_to_the_next() -> None:
    budget = ByteBudget(10)
    await budget.take(10)
    first, second = await waiting(budget, 8, 6)
    budget.give(10)  # it is the first one's now
    first.cancel()
    assert await cancelled(first)
    await settled(budget)
    assert second.done()
    assert (budget.used, budget.waiting) == (6, 0)


async def test_those_behind_a_request_that_is_given_up_need_not_wait_for_its_room() -> None:
    budget = ByteBudget(10)
    await budget.take(5)
    first, second, third = await waiting(budget, 8, 3, 8)
    first.cancel()
    assert await cancelled(first)
    await settled(budget)
    assert second.done()
    assert not third.done()
    assert (budget.used, budget.waiting) == (8, 1)
    budget.give(8)
    await third
    assert (budget.used, budget.waiting) == (8, 0)


async def test_nobody_overtakes_who_waits_and_one_above_the_limit_gets_in_alone() -> None:
    budget = ByteBudget(10)
    await budget.take(4)
    large, small = await waiting(budget, 99, 1)
    budget.give(4)
    await large
    await settled(budget)
    assert not small.done()
    assert budget.used == 99
    budget.give(99)
    await small
    assert budget.used == 1


async def test_what_fills_the_limit_to_the_byte_fits() -> None:
    budget = ByteBudget(10)
    await budget.take(4)
    await asyncio.wait_for(budget.take(6), 10)
    assert (budget.used, budget.waiting) == (10, 0)
