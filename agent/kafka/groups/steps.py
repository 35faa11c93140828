"""Going through very many groups: a step at a time, and none of them in the way of the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import TypeVar

from objectstore import tasks

_T = TypeVar("_T")

GROUPS_PER_STEP = 64  # groups looked at before the event loop gets its turn


async def steps(what: Iterable[_T]) -> AsyncIterator[_T]:
    """Each one that is there now; the event loop has its turn in between."""
    left = iter(list(what))
    while step := list(islice(left, GROUPS_PER_STEP)):
        for one in step:
            yield one
        await asyncio.sleep(0)


async def each(what: Iterable[_T], do: Callable[[_T], object], place: str) -> None:
    """Do something with each one that is there now; what that raises is told, and the next one follows."""
    async for one in steps(what):
        apart(do, one, place)


def apart(do: Callable[[_T], object], one: _T, place: str) -> bool:
    """Do something with one of many; whether that did not fail. What it raises is told."""
    try:
        do(one)
    except BaseException as error:
        tasks.tell(place, error)
        return False
    return True
