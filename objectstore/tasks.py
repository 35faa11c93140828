"""The last resort: no task and no callback ends by an unexpected exception without a word.

Three ways to begin a task, and no other in the product (tests/tidy/rules.py):

| | whose is an exception | what becomes of it |
|---|---|---|
| `owned` | of whoever made the task, who awaits it | raised there |
| `start` | nobody's | told; `failed` decides what else: answer who waits, end the agent |
| `kept` | nobody's, of work that must go on for ever | told; the work begins anew after a pause |

Unexpected is every exception that reaches the end, BaseException included: native code panics with one. Told
means: an error with its traceback in the log, a count by place for the metrics, the newest in /status.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

_T = TypeVar("_T")
_logger = logging.getLogger("floe.tasks")

PAUSE_S = 1.0  # before work that must go on begins anew
PAUSE_S_MAX = 60.0  # the same when it fails again and again
NEWEST_MAX = 20  # unexpected exceptions remembered
PLACES_MAX = 256  # places counted apart
FATAL = (KeyboardInterrupt, SystemExit)
"""What ends the process, and is nobody's mistake."""


@dataclass(frozen=True, slots=True)
class Defect:
    """An unexpected exception. `at`: when, by the event loop's clock, seconds."""

    place: str
    error: str
    at: float


class Defects:
    """The unexpected exceptions of this process."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._newest: deque[Defect] = deque(maxlen=NEWEST_MAX)
        self._times: dict[str, float] = {}

    @property
    def times(self) -> dict[str, float]:
        """When the newest was, by place, by the event loop's clock."""
        return self._times

    @property
    def counts(self) -> Counter[str]:
        """How many there were, by place."""
        return self._counts

    @property
    def newest(self) -> list[Defect]:
        """The newest, oldest first."""
        return list(self._newest)

    def note(self, place: str, error: BaseException, at: float) -> int:
        """Remember one; how many there were at its place."""
        if place not in self._counts and len(self._counts) >= PLACES_MAX:
            place = "elsewhere"
        self._counts[place] += 1
        self._times[place] = at
        self._newest.append(Defect(place, f"{type(error).__name__}: {error}", at))
        return self._counts[place]


DEFECTS = Defects()


def tell(place: str, error: BaseException) -> None:
    """Tell of an exception that should not happen. Raises it again when it ends the process."""
    if isinstance(error, FATAL):
        raise error
    count = DEFECTS.note(place, error, asyncio.get_running_loop().time())
    if count.bit_count() == 1:  # 1, 2, 4, 8 …: what every request runs into is not a flood of lines
        _logger.error("%s: this should not happen (%d times)", place, count, exc_info=error)


def cancelled(error: BaseException) -> bool:
    """Whether `error` says that the running task is cancelled, or was thrown away with its event loop.

    Not so for another's cancellation.
    """
    if not isinstance(error, asyncio.CancelledError):
        return isinstance(error, GeneratorExit)
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def owned(work: Coroutine[Any, Any, _T], place: str) -> asyncio.Task[_T]:
    """A task whose outcome is taken by whoever makes it."""
    return asyncio.get_running_loop().create_task(work, name=place)


def let_go(runners: Iterable[asyncio.Task[_T]]) -> None:
    """End those of a race that still run. What becomes of any of them does not matter any more."""
    for runner in runners:
        runner.cancel()
        runner.add_done_callback(_seen)


def _seen(runner: asyncio.Task[_T]) -> None:
    if not runner.cancelled():
        runner.exception()


def start(
    work: Coroutine[Any, Any, _T],
    place: str,
    failed: Callable[[BaseException], object] | None = None,
    *,
    apart: bool = False,
    ended: Callable[[asyncio.Task[_T]], object] | None = None,
) -> asyncio.Task[_T]:
    """A task that nobody waits for. `failed` is called with its unexpected exception, which has been told.

    `apart`: it is not of the request that happens to begin it, whose id its lines would carry. `ended` is
    called with the task in any case, first.
    """
    context = Context() if apart else None
    task = asyncio.get_running_loop().create_task(work, name=place, context=context)
    task.add_done_callback(partial(_ended, failed, ended))
    return task


def _ended(
    failed: Callable[[BaseException], object] | None,
    ended: Callable[[asyncio.Task[Any]], object] | None,
    task: asyncio.Task[Any],
) -> None:
    if ended is not None:
        ended(task)
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, FATAL):
        tell(task.get_name(), error)
        if failed is not None:
            failed(error)


def kept(work: Callable[[], Coroutine[Any, Any, None]], place: str) -> asyncio.Task[None]:
    """A task that does `work` until it returns, and anew when it fails."""
    return start(_keep(work, place), place, apart=True)


async def _keep(work: Callable[[], Coroutine[Any, Any, None]], place: str) -> None:
    loop = asyncio.get_running_loop()
    pause_s = PAUSE_S
    while True:
        begun = loop.time()
        try:
            return await work()
        except BaseException as error:
            if cancelled(error):
                raise
            tell(place, error)
        if loop.time() - begun > PAUSE_S_MAX:
            pause_s = PAUSE_S
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_S_MAX)


def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Have the loop tell of callbacks that fail, and of tasks that were forgotten with their exception."""
    loop.set_exception_handler(_unhandled)


def _unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, BaseException):
        tell("event loop", error)
    else:
        _logger.error("the event loop says: %s", context.get("message"))
