"""The loop in virtual time tells of those who never wait, and of those who wait for nobody."""

from __future__ import annotations

import asyncio

import pytest

from tests.sim import loop as module
from tests.sim.loop import Deadlock, Livelock, VirtualLoop


async def _spins() -> None:
    while True:  # noqa: ASYNC110 - it waits for nothing
        await asyncio.sleep(0)


async def _works(turns: int) -> float:
    for _ in range(turns):
        await asyncio.sleep(0.001)
    return asyncio.get_running_loop().time()


def test_a_loop_without_a_pause_is_no_run_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEPS_OF_A_SECOND_MAX", 5_000)
    loop = VirtualLoop(1)
    with pytest.raises(Livelock, match="5000 callbacks within a second"):
        loop.run_until_complete(_spins())
    loop.put_away()


def test_as_many_callbacks_over_many_seconds_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEPS_OF_A_SECOND_MAX", 5_000)
    loop = VirtualLoop(1)
    assert loop.run_until_complete(_works(20_000)) > 20
    assert loop.steps > 20_000
    loop.put_away()


def test_who_waits_for_nobody_is_told() -> None:
    loop = VirtualLoop(1)
    waits = loop.create_future()
    with pytest.raises(Deadlock):
        loop.run_until_complete(waits)
    loop.put_away()
