"""Rows of a target made anew from a topic's table, and records decoded at last, as often as one likes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from iceberg.spark import (
    JobError,
    Span,
    UnknownTable,
    decoder,
    exactly_once,
    merge_into,
    read_since,
    rebuild,
    repair,
    watermark_of,
)
from iceberg.spark.pipelines import flights
from iceberg.spark.pipelines.__main__ import wait
from schema.compiler import compile_protos
from tests.spark.flights_lake import (
    FIRST,
    FLIGHTS,
    LAKE,
    SECOND,
    FlightsRig,
    flight,
    flights_lake,
)
from tests.unit.iceberg.rig import Killed

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]

SOURCE, TARGET = LAKE.bronze["flights"], "lake.own.flights"
KEY, NEWEST_BY = ["number"], ["at", "partition", "offset"]


@pytest.fixture
async def topics(spark: SparkSession, tmp_path: Path) -> AsyncIterator[FlightsRig]:
    """The first helping; no table is there before."""
    async with flights_lake(spark, tmp_path) as found:
        yield found


def write(rows: DataFrame, target: str) -> None:
    """A job's function: one row per number."""
    told = rows.where("value.number > 0").selectExpr(
        "value.number",
        "value.arrival.delay_minutes AS delay",
        "kafka.timestamp AS at",
        "kafka.partition",
        "kafka.offset",
    )
    merge_into(told, target, KEY, newest_by=NEWEST_BY, again=True)


def held(spark: SparkSession) -> dict[int, tuple[int | None, int, int]]:
    """By number the delay, and by which record."""
    rows = spark.table(TARGET).collect()
    found = {row["number"]: (row["delay"], row["partition"], row["offset"]) for row in rows}
    assert len(found) == len(rows)
    return found


async def tables_come(topics: FlightsRig, spark: SparkSession) -> None:
    """Every table that is missing is named at once, and nothing is done; who waits is served."""
    with pytest.raises(
        UnknownTable, match=r"no table lake.floe.flights, lake.floe.planes, lake.floe.weather: "
    ):
        await asyncio.to_thread(flights.run, spark, LAKE)
    assert not await asyncio.to_thread(spark.catalog.tableExists, LAKE.silver)
    await topics.say({"flights": FIRST["flights"], "weather": FIRST["weather"]})
    with pytest.raises(UnknownTable, match=r"no table lake.floe.planes: "):
        await asyncio.to_thread(wait, spark, LAKE, 0)
    waiting = asyncio.create_task(asyncio.to_thread(wait, spark, LAKE, 300))
    await topics.say({"planes": FIRST["planes"]})
    await waiting


def run(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.own")
    columns = "number INT, delay INT, at TIMESTAMP, partition INT, offset BIGINT"
    spark.sql(f"CREATE TABLE {TARGET} ({columns}) USING iceberg")
    assert exactly_once(spark, SOURCE, TARGET, write) is not None


def die_before(step: str) -> Callable[[str], None]:
    def before(at: str) -> None:
        if at == step:
            raise Killed(step)

    return before


def backfill(spark: SparkSession) -> None:
    """Of rows that were spoilt those of a span come back, however often; nothing beyond a run's mark."""
    due, mark = held(spark), watermark_of(spark, SOURCE, TARGET)
    assert mark is not None
    assert sorted(due) == [1, 2, 3, 4, 5, 6]
    spark.sql(f"UPDATE {TARGET} SET delay = 1000")
    spark.sql(f"INSERT INTO {TARGET} VALUES (77, 0, TIMESTAMP '2023-11-14T22:13:20Z', 0, 0)")
    with pytest.raises(Killed):
        rebuild(spark, SOURCE, TARGET, write, clear="number = 77", before=die_before("publish"))
    assert {delay for delay, _, _ in held(spark).values()} == {0, 1000}, "nothing of it is visible"
    for _ in range(2):
        rebuild(spark, SOURCE, TARGET, write, Span({1: (0, 2)}))
        assert {number for number, row in held(spark).items() if row[0] != 1000} == {4, 5, 77}
    at = {
        row["number"]: row["at"]
        for row in spark.table(TARGET).selectExpr("number", "string(at) AS at").collect()
    }
    rebuild(spark, SOURCE, TARGET, write, Span(since=at[2], until=at[3]))
    assert {number for number, row in held(spark).items() if row[0] == 1000} == {1, 3, 6}
    for _ in range(2):
        rebuild(spark, SOURCE, TARGET, write, clear="number >= 2")
        assert held(spark) == due
    assert watermark_of(spark, SOURCE, TARGET) == mark
    for span, said in (
        (Span({0: (0, 9)}), r"offsets 0:0-9: partition 0 is read up to offset 5"),
        (Span({2: (0, 1)}), r"offsets 2:0-1: partition 2 is read up to offset 0"),
        (Span({0: (3, 3)}), "give a first one and a later end"),
        (Span(since="yesterday"), "time 'yesterday': write"),
    ):
        with pytest.raises(JobError, match=said):
            rebuild(spark, SOURCE, TARGET, write, span)


def mend(spark: SparkSession) -> None:
    """What has a frame can be decoded by now; a later record of its flight holds."""
    value = spark.table(SOURCE).schema["value"].dataType
    decode = decoder(
        compile_protos({FLIGHTS.proto.name: FLIGHTS.proto.read_bytes()}), FLIGHTS.message, value, framed=True
    )
    due = held(spark)
    early = repair(spark, SOURCE, TARGET, decode, write)
    assert (early.back, early.stay) == (0, 1), "the others are beyond the target's mark"
    assert exactly_once(spark, SOURCE, TARGET, write) is not None
    done = repair(spark, SOURCE, TARGET, decode, write)
    assert (done.back, done.stay) == (1, 1)
    assert done.reasons[0].startswith("0:4: ValueError: no Confluent frame")
    found = held(spark)
    assert found[9] == (95, 0, 8)
    assert due.keys() < found.keys()
    assert repair(spark, SOURCE, TARGET, decode, write) == done
    assert held(spark) == found
    with pytest.raises(Killed):
        repair(spark, SOURCE, TARGET, decode, write, before=die_before("publish"))


async def test_spans_are_made_anew_and_records_come_back_and_nothing_beyond_the_target_s_mark(
    topics: FlightsRig, spark: SparkSession
) -> None:
    await tables_come(topics, spark)
    await asyncio.to_thread(run, spark)
    await topics.say(SECOND)
    await asyncio.to_thread(backfill, spark)
    await asyncio.to_thread(mend, spark)
    await topics.say({"flights": {0: [flight(9, "2013-01-01", (1, 1))]}})

    def later() -> None:
        end = read_since(spark, SOURCE).watermark
        assert exactly_once(spark, SOURCE, TARGET, write) is not None
        assert held(spark)[9][0] == 1
        assert watermark_of(spark, SOURCE, TARGET) == end

    await asyncio.to_thread(later)
