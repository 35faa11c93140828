"""Who damages objects while everything else goes on (scrubbing.py)."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from objectstore.adapters.memory import MemoryStore
from objectstore.naming import SEGMENTS
from tests.sim import scrubbing
from tests.sim.scrubbing import Vandal, Vandalism

KEY = "segments/0000000000000001/00000001-0000000000000001.seg"


@pytest.mark.parametrize("stops_in_sleep", [1, 2, 3])
async def test_nothing_is_left_damaged_when_it_stops(
    stops_in_sleep: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever it is told to stop: before a damage, or before it is undone."""
    objects, stopping, sleeps = MemoryStore(), asyncio.Event(), 0
    done = Vandalism(objects, on=True)
    await objects.put(KEY, [b"a segment"])

    async def slept(_seconds: float) -> None:
        nonlocal sleeps
        sleeps += 1
        if sleeps == stops_in_sleep:
            stopping.set()

    around: Any = SimpleNamespace(loop=SimpleNamespace(random=Random(1)), stopping=stopping)
    monkeypatch.setattr(scrubbing, "KINDS", (SEGMENTS,))
    monkeypatch.setattr(scrubbing, "BESIDE_OF", 0.0)
    monkeypatch.setattr(scrubbing, "asyncio", SimpleNamespace(sleep=slept))
    await Vandal(around, done, ()).live()
    assert done.counts["damaged"] == stops_in_sleep // 2
    assert not done.damaged
    assert await objects.get(KEY) == b"a segment"
