"""asyncio's own waits, in less time and with the same outcome, callback by callback.

A run sleeps and waits some ten thousand times. The futures of these functions are seen by nobody else and
come into no set, so they may be asyncio's own kind, which its C code takes a shorter way with; and what a
wait is given is looked through only where real loops run.
"""

from __future__ import annotations

import asyncio
from asyncio import coroutines, locks, tasks
from asyncio.futures import _set_result_unless_cancelled  # type: ignore[attr-defined]  # a sleep's timer
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

_FIRST_COMPLETED, _FIRST_EXCEPTION = asyncio.FIRST_COMPLETED, asyncio.FIRST_EXCEPTION
_slept: Any = asyncio.sleep  # for no time: one turn
_is_coroutine = coroutines.iscoroutine
_running = asyncio.get_running_loop
_Own = asyncio.Future


@contextmanager
def quick_waits() -> Iterator[None]:
    """While a run is under way."""
    known: dict[type, bool] = {}

    def iscoroutine(value: object) -> bool:
        kind = type(value)
        found = known.get(kind)
        if found is None:
            found = known[kind] = _is_coroutine(value)
        return found

    puts: tuple[tuple[Any, str, Any], ...] = (
        (asyncio, "sleep", _sleep),
        (tasks, "sleep", _sleep),
        (asyncio, "wait", _wait),
        (tasks, "wait", _wait),
        (coroutines, "iscoroutine", iscoroutine),
        (locks.Event, "wait", _event_wait),
    )
    before = [getattr(owner, name) for owner, name, _ in puts]
    for owner, name, put in puts:
        setattr(owner, name, put)
    try:
        yield
    finally:
        for (owner, name, _), was in zip(puts, before, strict=True):
            setattr(owner, name, was)


async def _sleep(delay: float, result: Any = None) -> Any:
    if delay <= 0:
        return await _slept(0, result)
    loop = _running()
    future: asyncio.Future[Any] = _Own(loop=loop)
    timer = loop.call_later(delay, _set_result_unless_cancelled, future, result)
    try:
        return await future
    except BaseException:
        timer.cancel()
        raise


def _release(waiter: asyncio.Future[None], *_: object) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def _wait(
    fs: Iterable[asyncio.Future[Any]],
    *,
    timeout: float | None = None,
    return_when: str = asyncio.ALL_COMPLETED,
) -> tuple[set[asyncio.Future[Any]], set[asyncio.Future[Any]]]:
    every = set(fs)
    if not every:
        raise ValueError("Set of Tasks/Futures is empty.")
    loop = _running()
    waiter: asyncio.Future[None] = _Own(loop=loop)
    timer = None if timeout is None else loop.call_later(timeout, _release, waiter)
    left = len(every)

    def on_completion(each: asyncio.Future[Any]) -> None:
        nonlocal left
        left -= 1
        if (
            left <= 0
            or return_when == _FIRST_COMPLETED
            or (return_when == _FIRST_EXCEPTION and not each.cancelled() and each.exception() is not None)
        ):
            if timer is not None:
                timer.cancel()
            if not waiter.done():
                waiter.set_result(None)

    for each in every:
        each.add_done_callback(on_completion)
    try:
        await waiter
    finally:
        if timer is not None:
            timer.cancel()
        for each in every:
            each.remove_done_callback(on_completion)
    done: set[asyncio.Future[Any]] = set()
    pending: set[asyncio.Future[Any]] = set()
    for each in every:
        (done if each.done() else pending).add(each)
    return done, pending


async def _event_wait(event: Any) -> bool:
    if event._value:
        return True
    future: asyncio.Future[Any] = _Own(loop=_running())
    event._waiters.append(future)
    try:
        await future
        return True
    finally:
        event._waiters.remove(future)
