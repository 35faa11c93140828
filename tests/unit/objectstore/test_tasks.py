"""The last resort: what nobody expects is told, and what must go on goes on."""

from __future__ import annotations

import asyncio
import logging

import pytest

from objectstore import tasks
from objectstore.tasks import Defects


class Panic(BaseException):
    """What native code raises: no Exception."""


@pytest.fixture(autouse=True)
def defects(monkeypatch: pytest.MonkeyPatch) -> Defects:
    fresh = Defects()
    monkeypatch.setattr(tasks, "DEFECTS", fresh)
    return fresh


UNEXPECTED = [RuntimeError("odd"), MemoryError("full"), Panic("native")]


@pytest.mark.parametrize("error", UNEXPECTED, ids=repr)
async def test_a_task_of_nobody_is_told_with_its_traceback(
    error: BaseException, defects: Defects, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails() -> None:
        raise error

    failed: list[BaseException] = []
    task = tasks.start(fails(), "work", failed.append)
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert failed == [error]
    assert defects.counts == {"work": 1}
    assert defects.newest[0].error == f"{type(error).__name__}: {error}"
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].exc_info[1] is error


@pytest.mark.parametrize("error", [*UNEXPECTED, asyncio.CancelledError()], ids=repr)
async def test_work_that_must_go_on_begins_anew(
    error: BaseException, defects: Defects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another's cancellation that comes up in it is no reason to end either."""
    monkeypatch.setattr(tasks, "PAUSE_S", 0.001)
    runs: list[int] = []

    async def works() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise error

    await tasks.kept(works, "work")
    assert len(runs) == 3
    assert defects.counts == {"work": 2}


async def test_work_that_is_cancelled_ends(defects: Defects) -> None:
    begun = asyncio.Event()

    async def works() -> None:
        begun.set()
        await asyncio.sleep(60)

    task = tasks.kept(works, "work")
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert not defects.counts


async def test_a_callback_that_fails_is_told(defects: Defects) -> None:
    loop = asyncio.get_running_loop()
    tasks.watch(loop)
    try:
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(None)
    assert defects.counts == {"event loop": 1}


async def test_what_happens_a_thousand_times_is_told_ten_times(
    defects: Defects, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    for _ in range(1000):
        tasks.tell("request", RuntimeError("again"))
    assert len(caplog.records) == 10
    assert defects.counts == {"request": 1000}
    assert len(defects.newest) == tasks.NEWEST_MAX


async def test_places_are_bounded(defects: Defects) -> None:
    for number in range(2 * tasks.PLACES_MAX):
        tasks.tell(f"place {number}", RuntimeError("x"))
    assert len(defects.counts) == tasks.PLACES_MAX + 1
    assert defects.counts["elsewhere"] == tasks.PLACES_MAX


def test_what_ends_the_process_is_not_held_up() -> None:
    async def ends() -> None:
        tasks.tell("work", KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(ends())


def test_what_is_thrown_away_with_its_event_loop_ends_without_a_word() -> None:
    """A coroutine that is collected behind its loop gets GeneratorExit where it waits."""

    async def work() -> None:
        try:
            await asyncio.Future(loop=loop)
        except BaseException as error:
            if tasks.cancelled(error):
                raise
            raise AssertionError(error) from error

    loop = asyncio.new_event_loop()
    waiting = work()
    waiting.send(None)
    loop.close()
    waiting.close()
