"""Much that is due at once, done by turns: so many in one round of the event loop, in their order.

What one event of a log or a socket sets off may be thousands of small steps. Done at once they are a round of
the loop half a second long, in which nobody else is served. What is due already is not due twice: events may
come faster than what they set off is done.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Rounds(Generic[_T]):
    """In one event loop. `do` is called with each (they are hashable), at most `most` in one round."""

    def __init__(self, do: Callable[[_T], object], most: int) -> None:
        self._do, self._most = do, most
        self._waiting: OrderedDict[_T, None] = OrderedDict()
        self._done = 0

    def come(self, one: _T) -> None:
        """Do it now, or in a later round behind those that wait; once, where it waits already."""
        if self._waiting or self._done >= self._most:
            self._waiting[one] = None
        else:
            self._take(one)

    def leave(self, one: _T) -> None:
        """Do not do it, if it waits."""
        self._waiting.pop(one, None)

    def all(self) -> None:
        """Do those that wait now."""
        while self._waiting:
            self._do(self._waiting.popitem(last=False)[0])

    def _take(self, one: _T) -> None:
        if not self._done:
            asyncio.get_running_loop().call_soon(self._next)
        self._done += 1
        self._do(one)

    def _next(self) -> None:
        self._done = 0
        while self._waiting and self._done < self._most:
            self._take(self._waiting.popitem(last=False)[0])
