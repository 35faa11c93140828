"""Long work in steps, so that the event loop never waits for all of it.

A generator does the work, yields wherever others may run, and returns what it made. Not in a thread: there
Python's code, and one call into C that keeps the interpreter (json), hold the loop up all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from heapq import merge
from typing import TypeVar

_T = TypeVar("_T")
_O = TypeVar("_O", bound=tuple[str, ...] | str | int)

THREAD_BYTES_MIN = 64 * 1024
"""Of content: what is smaller is looked at on the event loop."""

RUN = 1024  # things that are put in order at a time: about a millisecond

Turns = Generator[None, None, _T]


async def in_turns(work: Turns[_T]) -> _T:
    """What the work makes, done on the event loop, which serves others at every yield."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            made: _T = done.value
            return made
        await asyncio.sleep(0)


def at_once(work: Turns[_T]) -> _T:
    """The same without turns, where nobody waits."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            made: _T = done.value
            return made


def in_order(items: Sequence[_O]) -> Turns[list[_O]]:
    """As `sorted`, which keeps the interpreter until it is done."""
    runs: list[list[_O]] = []
    for start in range(0, len(items), RUN):
        runs.append(sorted(items[start : start + RUN]))
        yield
    ordered: list[_O] = []
    for each in merge(*runs):
        ordered.append(each)
        if len(ordered) % RUN == 0:
            yield
    return ordered


async def off_loop(size: int, work: Callable[[], _T]) -> _T:
    """Look at content of `size` bytes here when it is little, in a thread else."""
    if size < THREAD_BYTES_MIN:
        return work()
    return await asyncio.to_thread(work)
