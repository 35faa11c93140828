"""How often small commits are made where topics want more than an agent's bound."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from iceberg.pace import BESIDE_FILES, BURST_S, LARGE_BYTES, Pace
from iceberg.service import CommitterService
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig, until
from tests.unit.iceberg.test_tables_service import ALONE, committed, serving

TOPICS = ("a", "b", "c")
TWO_COMMITS = replace(ALONE, objects_per_s_max=(BESIDE_FILES + 1.5) / BURST_S)
"""Two small commits are made at once; the next one has to wait for half a minute."""
MUCH = random.Random(1).randbytes(20_000)
TICKS_S = 0.5  # ten looks of the service


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent with some topics."""
    async with rigs.running(tmp_path) as found:
        for topic in TOPICS:
            await found.create_topic(topic)
        yield found


@asynccontextmanager
async def idle(rig: Rig) -> AsyncIterator[CommitterService]:
    """A running service that has made all tables, and has nothing to do."""
    async with serving(rig, TWO_COMMITS) as service:
        await until(lambda: len(rig.replica.state.tables) == len(TOPICS))
        await until(lambda: not service._dirty and not service._running)
        yield service


def rows(service: CommitterService) -> dict[str, int]:
    return {topic: service.status_of(topic).rows for topic in TOPICS}


def test_small_commits_are_counted_and_large_ones_are_not() -> None:
    pace = Pace(2)
    assert pace.allows(100.0)
    assert not pace.large(57, 10)
    assert not pace.allows(100.0), "60 objects are what 30 seconds have"
    assert pace.allows(100.6)
    for _ in range(9):
        assert pace.large(1, 4 * LARGE_BYTES)
    assert pace.allows(100.6)
    assert not pace.large(1, 4 * LARGE_BYTES - 1)
    assert not pace.allows(100.6)


def test_a_rest_gives_a_burst_and_no_more() -> None:
    pace = Pace(1)
    assert pace.allows(0.0)
    assert pace.allows(10_000.0)
    assert not pace.large(27, 10)
    assert not pace.allows(10_000.0)


def test_without_a_bound_everything_goes() -> None:
    pace = Pace(0)
    for _ in range(100):
        assert not pace.large(1_000, 1)
        assert pace.allows(1.0)


async def test_topics_that_want_too_much_take_turns(rig: Rig) -> None:
    async with idle(rig) as service:
        for topic in TOPICS:
            await rig.produce([b"1"], topic=topic)
            await asyncio.sleep(0.1)
        await committed(service, "a", 1)
        await committed(service, "b", 1)
        await rig.produce([b"2"], topic="a")
        await asyncio.sleep(TICKS_S)
        assert rows(service) == {"a": 1, "b": 1, "c": 0}
        service._pace._left = 1.0  # as after some seconds
        await committed(service, "c", 1)
        await asyncio.sleep(TICKS_S)
        assert rows(service) == {"a": 1, "b": 1, "c": 1}, "whoever waits longest is first"


async def test_a_topic_of_much_data_waits_for_nobody(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iceberg.pace.LARGE_BYTES", 3_000)  # a file of one short row has some 3 kB
    async with idle(rig) as service:
        await rig.produce([MUCH], topic="a")
        await committed(service, "a", 1)
        service._pace._left = -1_000.0  # for hours
        await rig.produce([b"1"], topic="b")
        for number in range(2, 5):
            await rig.produce([MUCH], topic="a")
            await committed(service, "a", number)
        await asyncio.sleep(TICKS_S)
        assert rows(service)["b"] == 0


async def test_a_topic_of_much_data_that_gets_little_waits_like_any(rig: Rig) -> None:
    async with idle(rig) as service:
        await rig.produce([b"1"], topic="a")
        await committed(service, "a", 1)
        job = service._jobs["a"]
        job.large = True
        service._pace._left = -1_000.0  # for hours
        await rig.produce([b"2"], topic="a")
        await committed(service, "a", 2)
        await rig.produce([b"3"], topic="a")
        await asyncio.sleep(TICKS_S)
        assert rows(service)["a"] == 2
