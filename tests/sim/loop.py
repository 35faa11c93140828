"""An asyncio event loop in virtual time: nothing waits, nothing is parallel, all follows the seed.

Where a real loop would sleep until the next timer, this one moves its clock there. Work for threads is done
at once and its result arrives a moment of virtual time later. Callbacks belong to a *node* (a context
variable, so tasks inherit it): a node that is killed has none of its callbacks run again, no `finally`, no
`except`, which is what a crash is. Sockets exist only in the virtual network (network.py).
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from heapq import heappop, heappush
from itertools import count
from typing import Any

NODE: contextvars.ContextVar[str] = contextvars.ContextVar("node", default="")
"""`name/life` of the process that the running code belongs to; empty: the simulation itself."""

RESOLUTION_S = 1e-6
"""Timers so close to each other are due together."""
TURN_S = 1e-6
"""What one turn of the loop takes: who waits for a moment that rounding keeps a hair away must come to it."""
PUT_AWAY_ROUNDS = 20
TASKS_LOOKED_AT = 4096
"""After so many more the list of tasks loses those that are done."""
THREAD_S_MAX = 0.002
"""Longest virtual time that a piece of work in a thread takes."""


STEPS_OF_A_SECOND_MAX = 500_000
"""Callbacks within one virtual second: of a world at work there are some thousand."""


class Livelock(AssertionError):
    """Somebody runs in a loop without a pause: time hardly moves."""


class Deadlock(AssertionError):
    """Nothing is ready and no timer is set: whoever is awaited will never come."""


class _Handle(list[Any]):
    """Callback, arguments, context, and for a timer its time; nothing when it is cancelled.

    A list, which is made and emptied without running any Python: a run makes a quarter of a million of them.
    """

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]  # as asyncio's: each is itself
    cancel = list.clear
    """See asyncio."""

    def cancelled(self) -> bool:
        """See asyncio."""
        return not self

    def when(self) -> float:
        """See asyncio; of a timer that is not cancelled."""
        return float(self[3])


class _Task(asyncio.Task[Any]):
    """asyncio's, but a set of them has an order that does not follow from where in memory each lies."""

    _number = 0

    def __hash__(self) -> int:
        return self._number  # of create_task's


class _Future(asyncio.Future[Any]):
    """Likewise. What nobody puts into a set is no such one: asyncio's C code knows its own kind only."""

    _number = 0

    def __hash__(self) -> int:
        if not self._number:
            self._number = next(self.get_loop().numbers)  # type: ignore[attr-defined]  # a VirtualLoop has it
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module. `random` is the seed's only source: network, threads and nodes draw from it."""

    _ready: deque[_Handle]
    """asyncio's own, as is the next."""
    _stopping: bool

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.dead: set[str] = set()
        self._paused: dict[str, list[_Handle]] = {}
        self.numbers = count(1)
        """Of the tasks and futures that are put into sets."""
        self.steps = 0
        """Callbacks run so far: a fingerprint of the schedule."""
        self.tasks: list[asyncio.Task[Any]] = []
        """Every task, until the end: one of a dead node that is collected early would run its `finally`."""
        self._tasks_bound = TASKS_LOOKED_AT
        self.server_factory: Callable[..., Any] | None = None
        self.connection_factory: Callable[..., Any] | None = None
        self._now = 0.0
        self._timers: list[tuple[float, int, _Handle]] = []
        self._timers_made = 0
        self._second_ends, self._steps_max = 1.0, STEPS_OF_A_SECOND_MAX

    get_debug = bool  # False, without running any Python: every task and future asks

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def kill(self, node: str) -> None:
        """Run nothing of the node again."""
        self.dead.add(node)
        self._paused.pop(node, None)

    def pause(self, node: str) -> None:
        """Run nothing of the node until it is resumed; time goes on without it."""
        self._paused.setdefault(node, [])

    def resume(self, node: str) -> None:
        """What was due meanwhile runs now, in its order."""
        self._ready.extend(self._paused.pop(node, ()))

    def _run_once(self) -> None:
        """Turn after turn, as asyncio's own, but that the clock is moved where it would wait.

        A callback whose node is dead does not run; that of a paused one is kept.
        """
        ready, timers, dead, paused = self._ready, self._timers, self.dead, self._paused
        while True:
            while timers and not timers[0][2]:
                heappop(timers)
            now = self._now
            if ready or self._stopping:
                now += TURN_S
            elif timers:
                wait_s = timers[0][0] - now
                now += wait_s if wait_s > TURN_S else TURN_S
            else:
                raise Deadlock("nothing is ready and no timer is set")
            self._now = now
            if now >= self._second_ends or self.steps > self._steps_max:
                self._next_second()
            due = now + RESOLUTION_S
            while timers and timers[0][0] < due:
                ready.append(heappop(timers)[2])
            run = 0
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle:
                    continue
                context = handle[2]
                node = context.get(NODE, "")
                if paused and node in paused:
                    paused[node].append(handle)
                elif node not in dead:
                    run += 1
                    try:
                        context.run(handle[0], *handle[1])
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:
                        told = {"message": "a callback failed", "exception": error, "handle": handle}
                        self.call_exception_handler(told)
            self.steps += run
            if self._stopping:
                return

    def _next_second(self) -> None:
        """A second is over, or too many steps of it are done."""
        self._steps_max = self.steps + STEPS_OF_A_SECOND_MAX  # what is put away afterwards may run
        if self._now < self._second_ends:
            raise Livelock(f"{STEPS_OF_A_SECOND_MAX} callbacks within a second, at {self._now:.3f}")
        self._second_ends = self._now + 1

    def put_away(self) -> None:
        """The run is over and judged: let every task end, the dead ones too; nothing is left behind."""
        self.dead.clear()
        for node in list(self._paused):
            self.resume(node)
        self.set_exception_handler(lambda loop, context: None)
        for _ in range(PUT_AWAY_ROUNDS):
            tasks = [task for task in self.tasks if not task.done()]
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self.run_until_complete(asyncio.wait(tasks, timeout=1))
        self._close_coroutines()
        self.run_until_complete(self.shutdown_asyncgens())
        self.tasks.clear()
        self.close()

    def _close_coroutines(self) -> None:
        """Of tasks whose next step was dropped when their node died. What they had not begun is no news."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            for task in self.tasks:
                with suppress(Exception, asyncio.CancelledError):
                    task.get_coro().close()

    def create_task(
        self, coroutine: Any, *, name: object = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        """See asyncio."""
        if (
            context is not None and NODE not in context
        ):  # work for everybody on a node is that node's all the same
            context.run(NODE.set, NODE.get())
        task = _Task(coroutine, loop=self, name=str(name or ""), context=context)
        task._number = next(self.numbers)
        if NODE.get():
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # dead nodes leave theirs behind
        self.tasks.append(task)
        if len(self.tasks) >= self._tasks_bound:
            self.tasks = [each for each in self.tasks if not each.done()]
            self._tasks_bound = 2 * len(self.tasks) + TASKS_LOOKED_AT
        return task

    def create_future(self) -> asyncio.Future[Any]:
        """See asyncio."""
        return _Future(loop=self)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> _Handle:  # type: ignore[override]  # no Handle
        """See asyncio."""
        handle = _Handle((callback, args, copy_context() if context is None else context))
        self._ready.append(handle)
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> _Handle:  # type: ignore[override]  # likewise
        """See asyncio."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> _Handle:  # type: ignore[override]  # likewise
        """See asyncio. Of two at one time the older one runs first."""
        timer = _Handle((callback, args, copy_context() if context is None else context, when))
        self._timers_made += 1
        heappush(self._timers, (when, self._timers_made, timer))
        return timer

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> _Handle:  # type: ignore[override]  # likewise
        """There are no threads."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]  # one kind of result
        """Do the work now; tell a moment later."""
        del executor
        future = self.create_future()
        try:
            result, error = func(*args), None
        except Exception as raised:
            result, error = None, raised
        self.call_later(self.random.random() * THREAD_S_MAX, _settle, future, result, error)
        return future

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **rest: Any
    ) -> Any:
        """A listener of the virtual network: of asyncio's only what is used here."""
        assert self.server_factory is not None, "no network"
        del rest
        return self.server_factory(protocol_factory, host, port)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **rest: Any
    ) -> Any:
        """A connection of the virtual network, likewise."""
        assert self.connection_factory is not None, "no network"
        del rest
        return await self.connection_factory(protocol_factory, host, port)

    def _process_events(self, event_list: Any) -> None:
        del event_list

    def _write_to_self(self) -> None:
        """Nobody sleeps."""


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if not future.done():
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
