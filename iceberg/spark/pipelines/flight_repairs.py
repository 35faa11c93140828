"""Repairs of the flights pipeline: days computed anew from bronze, and records out of the quarantine.

Each step is one commit that is refused when a run of the pipeline committed meanwhile, and says the same when
it is done again: a repair that died is run once more with the same arguments. The pipeline's watermarks stay
what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.spark.jobs import at_once, watermark_of
from iceberg.spark.pipelines import flight_rows as rows_of
from iceberg.spark.pipelines import flights as pipeline
from iceberg.spark.reading import read_since
from iceberg.spark.sinks import newest
from iceberg.spark.watermark import JobError

Before = Callable[[str], None]


def backfill(
    spark: SparkSession,
    lake: pipeline.Lake,
    first: date,
    last: date,
    *,
    before: Before = lambda step: None,
) -> int:
    """Make silver and gold of these days (`last` included) anew from every record that silver had read;
    returns how many flights they have.

    For days that were computed by other rules, or whose rows were deleted or changed by hand. Marks of
    lateness begin anew: nothing is late in a backfill. Flights that were repaired out of the quarantine, and
    whose record bronze cannot decode, are taken over. Raises JobError, and what `at_once` raises.
    """
    count = (last - first).days + 1
    if not 0 < count <= pipeline.DAYS_MAX:
        raise JobError(f"days {first} to {last}: give 1 to {pipeline.DAYS_MAX} days, the earlier one first")
    days = [first + timedelta(number) for number in range(count)]
    within = F.col("day").between(F.lit(first), F.lit(last))

    def remake(silver: str) -> None:
        bronze = lake.bronze["flights"]
        mark = watermark_of(spark, bronze, lake.silver)
        if mark is None:
            raise JobError(f"table {lake.silver} has no watermark of {bronze}: run the pipeline first")
        records = read_since(spark, bronze, until=mark, skip_gone=True).rows
        found = rows_of.flights_of(records, None).where(within)
        made = found.unionByName(_repaired(spark, silver, records).where(within))
        computed = newest(made, rows_of.FLIGHT, rows_of.NEWEST_BY).localCheckpoint()
        spark.sql(f"DELETE FROM {silver} WHERE day BETWEEN DATE '{first}' AND DATE '{last}'")
        before("put new days in")
        computed.select(*spark.table(silver).columns).writeTo(silver).append()

    at_once(spark, lake.silver, remake, before=before)
    before("begin with gold")
    refresh(spark, lake, days, before=before)
    made: int = spark.table(lake.silver).where(within).count()
    return made


def repair(
    spark: SparkSession,
    lake: pipeline.Lake,
    decode: Callable[[Column], Column],
    *,
    before: Before = lambda step: None,
) -> tuple[int, int]:
    """Bring back the records in the quarantine that `decode` can read by now (`decoding.decoder`); returns
    how many came back and how many stay.

    They take their place as if they had been decoded at once: a later correction holds. First silver, then
    gold, and the quarantine last, so that one that dies is done again whole. Raises what `at_once` raises.
    """
    found = _decoded(spark, lake, decode).localCheckpoint()
    good = found.where(rows_of.problem().isNull())
    places = good.select("kafka.partition", "kafka.offset")
    back, stay = good.count(), found.where(rows_of.problem().isNotNull()).count()
    if back:
        at_once(spark, lake.silver, lambda silver: pipeline.merge(good, silver), before=before)
        before("begin with gold")
        days = [row["day"] for row in rows_of.days_of(good).limit(pipeline.DAYS_MAX + 1).collect()]
        refresh(spark, lake, days, before=before)
        before("begin with the quarantine")
        at_once(spark, lake.quarantine, lambda table: _release(places, table), before=before)
    return back, stay


def refresh(
    spark: SparkSession, lake: pipeline.Lake, days: list[date], *, before: Before = lambda step: None
) -> None:
    """Compute these days of gold anew from silver, with planes and weather as they are now."""
    described = [spark.table(lake.bronze[topic]) for topic in ("planes", "weather")]
    at_once(
        spark, lake.gold, lambda gold: pipeline.compute(spark, lake, days, described, gold), before=before
    )


def _decoded(spark: SparkSession, lake: pipeline.Lake, decode: Callable[[Column], Column]) -> DataFrame:
    """What is in the quarantine, as records of the topic's table."""
    place = F.struct("partition", "offset", F.col("recorded_at").alias("timestamp"))
    return spark.table(lake.quarantine).select(place.alias("kafka"), decode(F.col("value")).alias("value"))


def _release(places: DataFrame, quarantine: str) -> None:
    """Those that are back leave the quarantine."""
    places.sparkSession.sql(
        f"MERGE INTO {quarantine} q USING {{places}} p "
        "ON q.partition = p.partition AND q.offset = p.offset WHEN MATCHED THEN DELETE",
        places=places,
    )


def _repaired(spark: SparkSession, silver: str, records: DataFrame) -> DataFrame:
    """Rows of silver whose record bronze could not decode."""
    undecoded = records.where(rows_of.problem().isNotNull()).select("kafka.partition", "kafka.offset")
    return spark.table(silver).join(F.broadcast(undecoded), ["partition", "offset"], "left_semi")
