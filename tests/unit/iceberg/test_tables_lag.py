"""How far a table is behind, as any agent tells it from the state."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coordination import behind
from coordination.clock import ManualClock
from coordination.commands import MoveLogStart
from iceberg.committer import CommitterOptions
from iceberg.lag import TableLags
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig


class Looking:
    """Looks at a rig's tables, by a clock that the test moves."""

    def __init__(self, rig: Rig) -> None:
        self.clock = ManualClock()
        self.rig = rig
        self.lags = TableLags(rig.replica, self.clock)

    async def after(self, seconds: float, topic: str = "t") -> tuple[int, float]:
        """(rows, seconds) that the topic's table is behind, after so many seconds."""
        self.clock.advance(seconds)
        await self.lags.look()
        found = self.lags.now[topic]
        return found.rows, found.seconds


@pytest.fixture
async def looking(tmp_path: Path) -> AsyncIterator[Looking]:
    async with rigs.running(tmp_path) as rig:
        await rig.create_topic()
        yield Looking(rig)


async def test_the_age_is_that_of_the_oldest_record_that_is_lacked(looking: Looking) -> None:
    rig = looking.rig
    assert await looking.after(10) == (0, 0)
    await rig.produce([b"a", b"b"])
    assert await looking.after(10) == (2, 0)
    await rig.produce([b"c"], partition=1)
    assert await looking.after(10) == (3, 10)
    await rig.drain(rig.committer())
    assert looking.lags.now["t"].made is False, "as it was at the last look"
    assert await looking.after(10) == (0, 0)
    assert looking.lags.now["t"].made
    await rig.produce([b"d"], partition=1)
    assert await looking.after(10) == (1, 0)


async def test_a_partition_that_stands_still_is_told_while_others_go_on(looking: Looking) -> None:
    """Of a sum over partitions nobody would see it."""
    rig = looking.rig
    handle = rig.replica.state.topics["t"].partitions[1].handle
    await rig.produce([b"stuck"], partition=1)
    await looking.after(1)
    for _ in range(30):
        await rig.produce([b"x"] * 3)
        rows, seconds = await looking.after(10)
    assert (rows, seconds) == (91, 300)
    await rig.replica.propose(MoveLogStart(partition=[handle], offset=[1]))
    assert await looking.after(0) == (90, 290), "what the topic lost is lacked by nobody"


@pytest.mark.parametrize("marked_max", [behind.MARKED_MAX, 0])
async def test_a_table_that_stays_behind_is_never_told_as_later_than_it_is(
    looking: Looking, monkeypatch: pytest.MonkeyPatch, marked_max: int
) -> None:
    """It is 200 s behind, all the time: what is remembered is bounded, and so the age a part too low."""
    monkeypatch.setattr(behind, "MARKED_MAX", marked_max)
    rig, told = looking.rig, []
    await rig.drain(rig.committer())
    rig.options = CommitterOptions(rows_per_commit_max=1)
    for number in range(60):
        await rig.produce([b"x"])
        told.append((await looking.after(10))[1])
        if number >= 20:
            await rig.committer().run_once()
        marks = looking.lags._marks
        assert max(map(len, marks.values())) <= behind.MARKS_MAX
    assert max(told[20:]) <= 210
    assert max(told[40:]) >= (150 if marked_max else 30)


async def test_a_topic_that_wants_no_table_is_behind_nothing(looking: Looking) -> None:
    await looking.rig.create_topic("quiet", floe__table__enabled="false")
    await looking.rig.produce([b"a"], topic="quiet")
    await looking.lags.look()
    assert set(looking.lags.now) == {"t"}
