"""Readers of one partition wake up by turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import ExitStack

import pytest

from agent.kafka.fetch.waiters import WOKEN_MAX, Standing, Waiters

MANY = WOKEN_MAX + 5


class Polls:
    """Long polls of partition 1: half of them as Fetches without a session, half with one."""

    def __init__(self, waiters: Waiters, stack: ExitStack) -> None:
        self.events: list[asyncio.Event] = []
        for number in range(MANY):
            if number % 2:
                standing = Standing(waiters)
                standing.add(1)
                self.events.append(stack.enter_context(waiters.park(standing)))
            else:
                self.events.append(stack.enter_context(waiters.watch([1])))

    @property
    def woken(self) -> int:
        return sum(event.is_set() for event in self.events)


@pytest.mark.parametrize("how", ["touched", "wake_all"])
async def test_many_readers_wake_up_by_turns(how: str) -> None:
    waiters = Waiters()
    with ExitStack() as stack:
        polls, other = Polls(waiters, stack), stack.enter_context(waiters.watch([2]))
        if how == "touched":
            waiters.touched([1])
        else:
            waiters.wake_all()
        assert polls.woken in (WOKEN_MAX, WOKEN_MAX - 1), "the other one may be among the first"
        await asyncio.sleep(0)
        assert polls.woken == MANY
        assert other.is_set() is (how == "wake_all")
    assert waiters.count == 0


async def test_who_left_meanwhile_is_passed_over() -> None:
    waiters = Waiters()
    with ExitStack() as stack:
        polls = Polls(waiters, stack)
        waiters.touched([1])
        stack.close()
        assert waiters.count == 0
    await asyncio.sleep(0)
    assert polls.woken == WOKEN_MAX, "who has gone is not woken"


async def test_records_that_come_faster_than_readers_wake_up_wake_each_once() -> None:
    waiters, woken = Waiters(), Counter[int]()

    class Poll:
        def __init__(self, number: int) -> None:
            self.number = number

        def set(self) -> None:
            woken[self.number] += 1

    polls = [Poll(number) for number in range(3 * WOKEN_MAX)]
    for poll in polls:
        waiters.enter(poll, [1])
    for _ in range(50):
        waiters.touched([1])
    for _ in range(5):
        await asyncio.sleep(0)
    assert [woken[poll.number] for poll in polls[:WOKEN_MAX]] == [2] * WOKEN_MAX
    assert [woken[poll.number] for poll in polls[WOKEN_MAX:]] == [1] * (2 * WOKEN_MAX)
    waiters.touched([1])
    waiters.leave(polls.pop(), [1])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert woken[len(polls)] == 1, "who has gone is not woken"
    for poll in polls:
        waiters.leave(poll, [1])
