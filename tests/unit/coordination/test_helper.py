"""Requests to a helper process: by the loop where they are small, by a thread, and when the helper dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from coordination import helper
from coordination.helper import LIGHT_BYTES_MAX, Helper, HelperDied

SMALL, LARGE = memoryview(b"abc" * 100), memoryview(bytes(range(256)) * (LIGHT_BYTES_MAX // 128))


@pytest_asyncio.fixture
async def odd() -> AsyncIterator[Helper]:
    made = Helper("tests.unit.coordination.odd_helper", 30.0)
    yield made
    await made.close()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The work that a thread was given."""
    given: list[str] = []
    to_thread = asyncio.to_thread

    def noting(work: object, *more: object) -> object:
        name = getattr(getattr(work, "func", work), "__name__", "")
        given.append(name)
        return to_thread(work, *more)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(helper.asyncio, "to_thread", noting)  # type: ignore[attr-defined]  # by this module
    return given


@pytest.mark.parametrize(
    ("content", "times", "light", "work"),
    [
        (SMALL, 1, True, []),
        (SMALL, 0, True, []),
        (SMALL, 1, False, ["_exchange"]),
        (LARGE, 1, True, ["_exchange"]),
        (LARGE, 1, False, ["_exchange"]),
        (SMALL, LIGHT_BYTES_MAX // 20, True, ["_rest"]),
        (SMALL, (LIGHT_BYTES_MAX - 60) // 300, True, []),
    ],
)
async def test_the_answer_is_the_same_whoever_carries_it(
    odd: Helper, threads: list[str], content: memoryview, times: int, light: bool, work: list[str]
) -> None:
    await odd.ask(("echo", 1))
    threads.clear()
    for _ in range(3):
        told, back = await odd.ask(("echo", times), [content], light=light)
        assert told == ("echo", times)
        assert back == bytes(content) * times
    assert threads == work * 3


async def test_an_answer_may_come_in_pieces(odd: Helper) -> None:
    told, back = await odd.ask(("in pieces", 1), [SMALL], light=True)
    assert (told, back) == (("in pieces", 1), SMALL)


@pytest.mark.parametrize("light", [True, False])
@pytest.mark.parametrize("after", [0, 5, 20])
async def test_a_helper_that_dies_is_replaced(odd: Helper, light: bool, after: int) -> None:
    await odd.ask(("echo", 1))
    first = odd.pid
    with pytest.raises(HelperDied):
        await odd.ask(("half", after), [SMALL], light=light)
    assert odd.pid is None
    assert (await odd.ask(("echo", 2), [SMALL], light=light))[1] == bytes(SMALL) * 2
    assert odd.pid != first


@pytest.mark.parametrize("light", [True, False])
async def test_who_gives_up_ends_the_helper(odd: Helper, light: bool) -> None:
    """Its answer would else be taken for that of the next request."""
    await odd.ask(("echo", 1))
    asking = asyncio.ensure_future(odd.ask(("never", 1), [SMALL], light=light))
    await asyncio.sleep(0.05)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert odd.pid is None
    assert (await odd.ask(("echo", 1), [SMALL], light=light))[0] == ("echo", 1)


async def test_a_small_pipe_is_not_filled_by_the_loop(
    odd: Helper, threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has many pipes gets small ones (pipe-user-pages-soft): the loop would wait for the helper."""
    monkeypatch.setattr(helper, "PIPE_BYTES", 4096)
    await odd.ask(("echo", 1))
    threads.clear()
    content = memoryview(bytes(5000))
    for size, work in ((3000, []), (5000, ["_exchange"])):
        assert (await odd.ask(("echo", 1), [content[:size]], light=True))[1] == content[:size]
        assert threads == work
