"""The flights pipeline as the batch job that it was: every result from every record at once, in plain
DataFrames. What the incremental pipeline's tables tell must be equal to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

LATE_MINUTES = 15
ROUTE = ("origin", "destination")
TOPICS = ("flights", "airlines", "airports", "planes", "weather")
KEYS = {
    "flights": ("year", "month", "day", "carrier", "number", "origin"),
    "airlines": ("carrier",),
    "airports": ("code",),
    "planes": ("tail_number",),
    "weather": ("origin", "hour"),
}


def over_everything(spark: SparkSession, tables: Mapping[str, str]) -> dict[str, DataFrame]:
    """The results by name, computed from every record of the topics' tables at once.

    Of several records of one flight, plane, … the last counts, told apart by Python on the driver, so that
    nothing of the pipeline judges itself.
    """
    sources = {topic: last_of_each(spark.table(tables[topic]), KEYS[topic]) for topic in TOPICS}
    flights = joined_flights(sources)
    return {
        "delays_by_airline": by_airline(flights),
        "delays_by_route": by_route(flights, sources["airports"]),
        "delays_by_hour": by_hour(flights),
    }


def last_of_each(records: DataFrame, key: Sequence[str]) -> DataFrame:
    """The record that was said last of each key; those that tell of nothing are left out."""
    rows = records.orderBy("kafka.timestamp", "kafka.partition", "kafka.offset").collect()
    last = {}
    for row in rows:
        value = row["value"]
        if value is None or value["__err__"] is not None or not is_day(value):
            continue
        last[tuple(value[name] for name in key)] = row
    return records.sparkSession.createDataFrame(list(last.values()), records.schema)


def is_day(value: Row) -> bool:
    """Whether a flight has a day; of others nothing is asked."""
    if "scheduled_hour" not in value:
        return True
    try:
        date(value["year"], value["month"], value["day"])
    except ValueError:
        return False
    return True


def joined_flights(sources: Mapping[str, DataFrame]) -> DataFrame:
    """One row per flight with its airline's name, its plane and the weather at its scheduled hour."""
    flights = sources["flights"].select(
        F.col("value.carrier"),
        F.col("value.tail_number"),
        F.col("value.origin"),
        F.col("value.destination"),
        F.col("value.year"),
        F.col("value.hour"),
        F.col("value.scheduled_hour"),
        F.col("value.distance_miles"),
        F.col("value.departure.delay_minutes").alias("departure_delay"),
        F.col("value.arrival.delay_minutes").alias("arrival_delay"),
    )
    airlines = sources["airlines"].select("value.carrier", F.col("value.name").alias("airline"))
    planes = sources["planes"].select(
        "value.tail_number", "value.seats", F.col("value.year").alias("built_year")
    )
    weather = sources["weather"].select(
        "value.origin",
        F.col("value.hour").alias("scheduled_hour"),
        F.col("value.precipitation_inches").alias("precipitation"),
        F.col("value.wind_speed_mph").alias("wind_speed"),
        F.col("value.visibility_miles").alias("visibility"),
    )
    return (
        flights.join(F.broadcast(airlines), "carrier", "left")
        .join(F.broadcast(planes), "tail_number", "left")
        .join(F.broadcast(weather), ["origin", "scheduled_hour"], "left")
    )


def by_airline(flights: DataFrame) -> DataFrame:
    """Carrier, name, delays, mean age and seats of its planes."""
    return flights.groupBy("carrier", "airline").agg(
        *_delays(),
        F.round(F.avg(F.col("year") - F.col("built_year")), 2).alias("plane_age_years"),
        F.round(F.avg("seats"), 1).alias("seats"),
    )


def by_route(flights: DataFrame, airports: DataFrame) -> DataFrame:
    """Origin and destination with the airports' names and the distance."""
    names = airports.select(F.col("value.code").alias("code"), F.col("value.name").alias("name"))
    origins = names.select(F.col("code").alias("origin"), F.col("name").alias("origin_name"))
    destinations = names.select(F.col("code").alias("destination"), F.col("name").alias("destination_name"))
    return (
        flights.groupBy(*ROUTE)
        .agg(*_delays(), F.max("distance_miles").alias("distance_miles"))
        .join(F.broadcast(origins), "origin", "left")
        .join(F.broadcast(destinations), "destination", "left")
    )


def by_hour(flights: DataFrame) -> DataFrame:
    """The scheduled local hour with mean weather, and the delay of flights in rain apart from dry ones."""
    wet = F.col("precipitation") > 0
    return flights.groupBy("hour").agg(
        *_delays(),
        F.round(F.avg(F.when(wet, F.col("arrival_delay"))), 2).alias("mean_arrival_delay_in_rain"),
        F.round(F.avg(F.when(~wet, F.col("arrival_delay"))), 2).alias("mean_arrival_delay_dry"),
        F.round(F.avg("wind_speed"), 2).alias("wind_speed_mph"),
        F.round(F.avg("visibility"), 2).alias("visibility_miles"),
    )


def _delays() -> list[Column]:
    arrived = F.col("arrival_delay").isNotNull()
    late = F.when(arrived, (F.col("arrival_delay") > LATE_MINUTES).cast("double"))
    return [
        F.count(F.lit(1)).alias("flights"),
        F.count_if(F.col("departure_delay").isNull()).alias("cancelled"),
        F.round(F.avg("departure_delay"), 2).alias("mean_departure_delay"),
        F.round(F.avg("arrival_delay"), 2).alias("mean_arrival_delay"),
        F.percentile_approx("arrival_delay", 0.9).alias("p90_arrival_delay"),
        F.round(F.avg(late), 4).alias("late_share"),
    ]
