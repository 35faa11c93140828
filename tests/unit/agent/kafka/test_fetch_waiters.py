"""Readers of one partition wake up by turns."""

from __future__ import annotations

import asyncio
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
    assert polls.woken == MANY, "an event that nobody waits for is set in vain"
