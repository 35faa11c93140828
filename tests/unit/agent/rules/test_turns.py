"""Whose turn it is at the workers."""

from __future__ import annotations

import asyncio

from agent.rules.turns import Turns


async def taken(turns: Turns[int], topic: str) -> asyncio.Task[int]:
    """A task that waits for a worker, or has it."""
    task = asyncio.ensure_future(turns.take(topic))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def test_a_topic_has_all_workers_but_one() -> None:
    turns = Turns([1, 2, 3])
    poisoned = [await taken(turns, "poisoned") for _ in range(5)]
    assert [each.done() for each in poisoned] == [True, True, False, False, False]
    other = await taken(turns, "other")
    assert other.done()
    turns.give("other", other.result())
    assert [each.done() for each in poisoned] == [True, True, False, False, False], "the last one stays free"
    turns.give("poisoned", poisoned[0].result())
    await asyncio.sleep(0)
    assert poisoned[2].done()
    for each in poisoned[3:]:
        each.cancel()
    await asyncio.gather(*poisoned[3:], return_exceptions=True)
    assert turns.waiting == 0


async def test_one_worker_is_shared_in_turn() -> None:
    turns = Turns([1])
    assert turns.topic_max == 1
    holder = await taken(turns, "a")
    lines = [(name, await taken(turns, name)) for name in ("a", "a", "b", "c")]
    order = []
    turns.give("a", holder.result())
    for _ in lines:
        await asyncio.sleep(0)
        ((name, task),) = [(name, task) for name, task in lines if task.done() and task not in order]
        order.append(task)
        turns.give(name, task.result())
    assert [name for task in order for name, each in lines if each is task] == ["a", "b", "c", "a"]


async def test_who_leaves_gives_back_what_it_just_got() -> None:
    turns = Turns([1])
    holder = await taken(turns, "a")
    leaving, staying = await taken(turns, "b"), await taken(turns, "c")
    turns.give("a", holder.result())
    leaving.cancel()  # its turn has come, and it does not know yet
    await asyncio.gather(leaving, return_exceptions=True)
    await asyncio.sleep(0)
    assert await staying == 1


async def test_how_many_have_nothing_else_to_do() -> None:
    """A large batch is shared by these, and none is kept from anybody who waits."""
    turns = Turns([1, 2, 3])
    assert turns.idle("a") == 2
    held = await taken(turns, "a")
    assert (turns.idle("a"), turns.idle("b")) == (1, 2)
    more = [await taken(turns, "a") for _ in range(2)]
    assert (turns.idle("a"), turns.idle("b")) == (0, 0), "one waits"
    turns.give("a", held.result())
    await asyncio.gather(*more)
    assert turns.idle("a") == 0
    for each in more:
        turns.give("a", each.result())
    assert turns.idle("a") == 2
