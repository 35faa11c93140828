"""Repairs of the flights pipeline, wherever they die: out of the quarantine, and days made anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg.spark import JobError
from iceberg.spark.decoding import decoder
from iceberg.spark.pipelines import flight_repairs as repairs
from iceberg.spark.pipelines import flights
from schema.compiler import compile_protos
from tests.spark.flights_lake import (
    FIRST,
    FLIGHTS,
    LAKE,
    SECOND,
    FlightsRig,
    computed,
    expected,
    flight,
    flights_lake,
    silver,
)
from tests.spark.flights_lake import quarantine as aside
from tests.unit.iceberg.rig import Killed

pytestmark = [pytest.mark.services, pytest.mark.timeout(1800)]

REPAIR_STEPS = ["publish", "begin with gold", "begin with the quarantine"]
BACKFILL_STEPS = ["publish", "begin with gold"]


@pytest.fixture
async def topics(spark: SparkSession, tmp_path: Path) -> AsyncIterator[FlightsRig]:
    """Both helpings in the topics, as catalog `lake` of the session; the pipeline came through."""
    async with flights_lake(spark, tmp_path, FIRST, SECOND) as found:
        await asyncio.to_thread(flights.run, spark, LAKE)
        yield found


def death(last: str) -> Callable[[str], None]:
    """Dies before this step."""

    def before(step: str) -> None:
        if step == last:
            raise Killed(step)

    return before


def dying(steps: list[str], work: Callable[..., Any]) -> Any:
    """Work that dies before each of these steps, and then comes through."""
    for step in steps:
        with pytest.raises(Killed):
            work(before=death(step))
    return work()


def mend(spark: SparkSession) -> None:
    """What has a frame can be decoded by now."""
    value = spark.table(LAKE.bronze["flights"]).schema["value"].dataType
    descriptors = compile_protos({FLIGHTS.proto.name: FLIGHTS.proto.read_bytes()})
    decode = decoder(descriptors, FLIGHTS.message, value, framed=True)
    assert len(aside(spark)) == 3
    was = silver(spark)
    assert dying(REPAIR_STEPS, lambda **how: repairs.repair(spark, LAKE, decode, **how)) == (1, 2)
    (new,) = [row for row in silver(spark) if row not in was]
    assert (new["number"], new["day"], new["arrival_delay"]) == (9, date(2013, 1, 1), 95)
    assert [each[:2] for each in aside(spark)] == [(0, 4), (0, 7)]
    assert sum(row["flights"] for row in computed(spark)["delays_by_hour"]) == len(was) + 1


def remake(spark: SparkSession) -> None:
    """Days of which somebody spoilt rows; their flight that was repaired stays."""
    gold, due = computed(spark), silver(spark)
    spark.sql(f"DELETE FROM {LAKE.silver} WHERE number = 2")
    spark.sql(f"UPDATE {LAKE.silver} SET arrival_delay = 1000 WHERE day = DATE '2013-01-02'")
    spark.sql(f"DELETE FROM {LAKE.gold} WHERE by = 'route' AND day = DATE '2013-01-01'")
    first, last = date(2013, 1, 1), date(2013, 1, 2)
    with pytest.raises(Killed):
        repairs.backfill(spark, LAKE, first, last, before=death("put new days in"))
    assert computed(spark) != gold
    assert dying(BACKFILL_STEPS, lambda **how: repairs.backfill(spark, LAKE, first, last, **how)) == 6
    assert computed(spark) == gold
    assert silver(spark) == due
    with pytest.raises(JobError, match="the earlier one first"):
        repairs.backfill(spark, LAKE, last, first)
    assert flights.run(spark, LAKE) == [], "watermarks are what they were"


@pytest.mark.thorough
async def test_repairs_and_backfills_are_exact_wherever_they_die(
    topics: FlightsRig, spark: SparkSession
) -> None:
    await asyncio.to_thread(mend, spark)
    await asyncio.to_thread(remake, spark)
    await topics.say({"flights": {0: [flight(9, "2013-01-01", (1, 1))]}})

    def later() -> None:
        flights.run(spark, LAKE)
        assert [row["arrival_delay"] for row in silver(spark) if row["number"] == 9] == [1]
        assert computed(spark) == expected(spark), "now that bronze can decode each flight's last record"

    await asyncio.to_thread(later)
