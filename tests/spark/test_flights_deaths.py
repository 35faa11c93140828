"""The flights pipeline dies at every step, in two increments; what is there then is exact.

A death leaves what reached the catalog and the store before it, so the steps where it may come are those
between two requests that change something there. Most deaths here are an exception that nothing between the
step and the test catches (it is no Exception), and the next attempt begins in a session of its own: what
Spark had cached or planned is gone with the old one, and the pipeline keeps nothing else in memory. Two are
the real thing, in the middle of gold's writes and before silver's commit: a driver of its own and its JVM
are killed with SIGKILL.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deploy.setup.java import java_home
from iceberg.spark.jobs import watermark_of
from iceberg.spark.pipelines import flights
from iceberg.spark.topics import topic_table
from tests.spark.flights_lake import (
    FIRST,
    LAKE,
    SECOND,
    FlightsRig,
    computed,
    expected,
    flights_lake,
    quarantine,
    quick,
)
from tests.unit.iceberg.rig import Killed

pytestmark = [pytest.mark.services, pytest.mark.timeout(1800)]

POINTS_MIN = 28
BRONZE = LAKE.bronze["flights"]
STAGES = {"quarantine": LAKE.quarantine, "silver": LAKE.silver, "gold": LAKE.gold}
BEHIND = {"put new days in", "note the watermark", "publish", "drop the branch"}
"""Where a second increment dies: behind these there is more than the first one left."""
SOME = {(1, "quarantine"): BEHIND, (1, "silver"): BEHIND, (1, "gold"): BEHIND}
"""Where an increment dies in a stage, if not everywhere."""
DRIVER = ("silver", "publish"), ("gold", "put new days in")


@pytest.fixture
async def topics(spark: SparkSession, tmp_path: Path) -> AsyncIterator[FlightsRig]:
    """The five topics, as catalog `lake` of the session."""
    async with flights_lake(spark, tmp_path) as found:
        yield found


class Deaths:
    """Lets each attempt die at the first step where none has died before."""

    def __init__(self, only: set[str] | None = None) -> None:
        self.at: list[str] = []
        self._only = only

    def before(self, step: str) -> None:
        if step not in self.at and (self._only is None or step in self._only):
            self.at.append(step)
            raise Killed(step)


def another(spark: SparkSession) -> SparkSession:
    """A session that knows the catalog, and nothing of what was done in another one."""
    own = spark.newSession()
    quick(own)
    for name, value in spark.conf.getAll.items():
        if name.startswith("spark.sql.catalog.lake"):
            own.conf.set(name, value)
    return own


def attempt(spark: SparkSession, stage: str, before: Callable[[str], None]) -> None:
    """One stage as a run does it."""
    end = topic_table(spark, BRONZE).end
    if stage == "quarantine":
        flights.put_aside(spark, LAKE, end, before)
    elif stage == "silver":
        flights.merge_flights(spark, LAKE, end, before)
    else:
        flights.aggregate(spark, LAKE, before)


def die_everywhere(spark: SparkSession, stage: str, deaths: Deaths) -> None:
    """Attempts until one comes through; what each leaves is that of the watermark that it leaves."""
    table = STAGES[stage]
    end, old = topic_table(spark, BRONZE).end, watermark_of(spark, BRONZE, table)
    rows = sorted(map(str, spark.table(table).collect()))
    while True:
        own, count = another(spark), len(deaths.at)
        try:
            attempt(own, stage, deaths.before)
        except Killed:
            assert len(deaths.at) == count + 1
            done = deaths.at[-1] == "drop the branch"
            assert watermark_of(own, BRONZE, table) == (end if done else old), deaths.at
            if not done:
                assert sorted(map(str, own.table(table).collect())) == rows, deaths.at
            continue
        assert len(deaths.at) == count, "it came through"
        return


@pytest.mark.thorough
async def test_an_attempt_that_died_at_any_step_is_made_good_by_the_next(
    topics: FlightsRig, spark: SparkSession
) -> None:
    points: list[tuple[int, str, str]] = []

    def die(increment: int) -> None:
        LAKE.create(spark)
        for stage in STAGES:
            deaths = Deaths(SOME.get((increment, stage)))
            die_everywhere(spark, stage, deaths)
            points.extend((increment, stage, step) for step in deaths.at)
        assert flights.run(another(spark), LAKE) == [], "nothing is left to do"
        assert computed(spark) == expected(spark)

    for number, records in enumerate((FIRST, SECOND)):
        await topics.say(records)
        await asyncio.to_thread(die, number)
    assert len(set(points)) >= POINTS_MIN, points
    assert len(await asyncio.to_thread(quarantine, spark)) == 3


@pytest.mark.thorough
async def test_a_driver_that_is_killed_leaves_what_the_next_run_makes_good(
    topics: FlightsRig, spark: SparkSession
) -> None:
    await topics.say(FIRST)
    uri = spark.conf.get("spark.sql.catalog.lake.uri")
    for stage, step in DRIVER:
        words = [sys.executable, "-m", "tests.spark.flights_driver", str(uri), stage, step]
        own = {**os.environ, "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
        ran = await asyncio.to_thread(subprocess.run, words, env=own, capture_output=True, text=True)
        assert ran.returncode == -signal.SIGKILL, ran.stderr[-3000:]
        kept = await asyncio.to_thread(watermark_of, spark, BRONZE, STAGES[stage])
        assert kept is None, "nothing of that stage is visible"
        await topics.say(SECOND if stage == "silver" else {})

    def go_on() -> None:
        done = flights.run(spark, LAKE)
        assert [stage.name for stage in done] == ["gold"], "the second driver had done the rest"
        assert computed(spark) == expected(spark)

    await asyncio.to_thread(go_on)
