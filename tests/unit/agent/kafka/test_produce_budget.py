"""Who waits for room in the produce buffer gets it in the order they asked, whoever gives up meanwhile."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from functools import partial

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


class Crowd:
    """Many who wait, all with the same time-out: in one turn of the loop some waits end, bytes come back, and
    others come. What a wait ends by is noted, and who was passed by somebody that came later."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.budget = ByteBudget(100)
        self.line: dict[int, asyncio.Timeout] = {}
        self.out: dict[int, int] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.got: list[int] = []
        self.wrong: list[str] = []
        self.ended = 0

    async def wait(self, number: int, size: int) -> None:
        try:
            async with asyncio.timeout(None) as self.line[number]:
                await self.budget.take(size)
        except TimeoutError:
            self.ended += 1
        except BaseException as error:
            self.wrong.append(f"{number} ended by {error!r}")
        else:
            self.out[number] = size
            self.got.append(number)
        finally:
            del self.line[number]

    def come(self) -> None:
        size = self.random.choice((1, 10, 40, 80, 120))
        self.tasks.append(asyncio.create_task(self.wait(len(self.tasks), size)))

    def give(self, number: int) -> None:
        self.budget.give(self.out.pop(number))

    async def turn(self) -> None:
        """All in one turn: what ends a wait comes between what gives back."""
        loop, chance = asyncio.get_running_loop(), self.random.random()
        ends = [partial(each.reschedule, 0) for each in self.line.values() if self.random.random() < chance]
        gives = [partial(loop.call_soon, self.give, one) for one in self.out if self.random.random() < 0.5]
        acts = [*ends, *gives, *[self.come] * self.random.randrange(4)]
        self.random.shuffle(acts)
        for act in acts:
            act()
        await settled(self.budget)
        passed = [(later, one) for one in self.line for later in self.got if one < later]
        self.got.clear()
        if passed:
            self.wrong.append(f"{passed[0][0]} passed {passed[0][1]}")
        if self.budget.used != sum(self.out.values()):
            self.wrong.append(f"{self.budget.used} bytes are taken, {self.out} have them")
        if self.budget.used > 100 and len(self.out) > 1:
            self.wrong.append(f"more than there is: {self.out}")
        if self.budget.waiting != len(self.line):
            self.wrong.append(f"{self.budget.waiting} are in line, {list(self.line)} wait")


async def test_waits_that_end_together_while_bytes_come_back() -> None:
    ended = stored = 0
    for seed in range(300):
        crowd = Crowd(seed)
        for _ in range(40):
            await crowd.turn()
            assert not crowd.wrong, f"seed {seed}: {crowd.wrong}"
        for task in crowd.tasks:
            task.cancel()
        await asyncio.gather(*crowd.tasks, return_exceptions=True)
        ended, stored = ended + crowd.ended, stored + len(crowd.tasks)
    assert stored > ended > 300
