"""Long work in steps, so that the event loop never waits for all of it.

A generator does the work, yields wherever others may run, and returns what it made. Not in a thread: there
Python's code, and one call into C that keeps the interpreter (json), hold the loop up all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TypeVar

_T = TypeVar("_T")

THREAD_BYTES_MIN = 64 * 1024
"""Of content: what is smaller is looked at on the event loop."""

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


async def off_loop(size: int, work: Callable[[], _T]) -> _T:
    """Look at content of `size` bytes here when it is little, in a thread else."""
    if size < THREAD_BYTES_MIN:
        return work()
    return await asyncio.to_thread(work)
