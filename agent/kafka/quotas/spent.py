"""How long something held the event loop: the time in which nobody else was served."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class Spent:
    """Adds up, seconds."""

    __slots__ = ("_now", "seconds")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.seconds = 0.0

    @coroutine
    def on(self, work: Coroutine[Any, Any, _T]) -> Generator[Any, Any, _T]:
        """Await the work, and count its steps, not what it waits for."""
        step: Callable[[Any], Any] = work.send
        value: Any = None
        while True:
            begun = self._now()
            try:
                awaited = step(value)
            except StopIteration as done:
                result: _T = done.value
                return result
            finally:
                self.seconds += self._now() - begun
            try:
                value = yield awaited
                step = work.send
            except BaseException as error:
                step, value = work.throw, error
