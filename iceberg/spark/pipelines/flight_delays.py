"""Gold: delays by day and airline, by day and route, by day and hour of the day; functions from rows to rows.

Each row has sums and counts, so that any days together give the figures of a longer time (`by_airline`,
`by_route`, `by_hour`) without a look at flights; `arrival_delays` counts arrivals by minutes of delay, for
percentiles that are exact. Planes and weather are those of the moment when a day was computed last; names of
airlines and airports those of the moment of the question.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from iceberg.spark.sinks import newest

LATE_MINUTES = 15
"""An arrival is late when it is further than this behind its schedule."""
P90 = (9, 10)
AIRLINE, ROUTE, HOUR = "airline", "route", "hour"
KEYS = {AIRLINE: ("carrier",), ROUTE: ("origin", "destination"), HOUR: ("hour",)}
PLACE = ("kafka.timestamp", "kafka.partition", "kafka.offset")

_GROUP = ("carrier", "origin", "destination", "hour")
_SUMS = {
    "flights": "BIGINT",
    "cancelled": "BIGINT",
    "late_records": "BIGINT",
    "departed": "BIGINT",
    "departure_minutes": "BIGINT",
    "arrived": "BIGINT",
    "arrival_minutes": "BIGINT",
    "late_arrivals": "BIGINT",
    "planes_dated": "BIGINT",
    "plane_years": "BIGINT",
    "planes_known": "BIGINT",
    "seats": "BIGINT",
    "arrived_in_rain": "BIGINT",
    "minutes_in_rain": "BIGINT",
    "arrived_dry": "BIGINT",
    "minutes_dry": "BIGINT",
    "winds_known": "BIGINT",
    "wind_speed_mph": "DECIMAL(28, 6)",
    "visibilities_known": "BIGINT",
    "visibility_miles": "DECIMAL(28, 6)",
}
GOLD = (
    "by STRING, day DATE, carrier STRING, origin STRING, destination STRING, hour INT, "
    + ", ".join(f"{name} {kind}" for name, kind in _SUMS.items())
    + ", distance_miles INT, arrival_delays MAP<INT, BIGINT>"
)


def current(records: DataFrame, *key: str) -> DataFrame:
    """The newest row of each key of a topic that tells of planes, weather, airlines or airports.

    A tombstone, and what cannot be decoded, changes nothing: what was said before holds.
    """
    known = records.where("value IS NOT NULL AND value.__err__ IS NULL")
    placed = known.select("value.*", *[F.col(name).alias(f"__at{at}") for at, name in enumerate(PLACE)])
    return newest(placed, key, newest_by=[f"__at{at}" for at in range(len(PLACE))])


def planes_of(records: DataFrame) -> DataFrame:
    """`tail_number`, `built_year` and `plane_seats` of each plane."""
    found = current(records, "tail_number")
    return found.select("tail_number", F.col("year").alias("built_year"), F.col("seats").alias("plane_seats"))


def weather_of(records: DataFrame) -> DataFrame:
    """`origin`, `scheduled_hour`, rain, wind and sight of each airport and hour."""
    return current(records, "origin", "hour").select(
        "origin",
        F.col("hour").alias("scheduled_hour"),
        F.col("precipitation_inches").alias("precipitation"),
        F.col("wind_speed_mph").cast("decimal(18, 6)").alias("wind"),
        F.col("visibility_miles").cast("decimal(18, 6)").alias("visibility"),
    )


def daily(flights: DataFrame, planes: DataFrame, weather: DataFrame) -> DataFrame:
    """Rows of GOLD for all days of these rows of SILVER."""
    joined = flights.join(F.broadcast(planes), "tail_number", "left").join(
        F.broadcast(weather), ["origin", "scheduled_hour"], "left"
    )
    sets = [["day", *keys, "arrival_delay"] for keys in KEYS.values()]
    parts = joined.groupingSets(sets, "day", *_GROUP, "arrival_delay").agg(
        _by().alias("by"), *_measures(), F.max("distance_miles").alias("distance_miles")
    )
    counted = F.when(F.col("arrived") > 0, F.struct("arrival_delay", "arrived"))
    return parts.groupBy("by", "day", *_GROUP).agg(
        *[F.sum(name).cast(kind).alias(name) for name, kind in _SUMS.items()],
        F.max("distance_miles").alias("distance_miles"),
        F.map_from_entries(F.collect_list(counted)).alias("arrival_delays"),
    )


def by_airline(delays: DataFrame, airlines: DataFrame) -> DataFrame:
    """Carrier, name, delays, mean age and seats of its planes, of all days of these rows of GOLD; those with
    most flights first. `airlines`: the topic's records.
    """
    names = current(airlines, "carrier").select("carrier", F.col("name").alias("airline"))
    figures = {
        "plane_age_years": _mean("plane_years", "planes_dated"),
        "seats": _mean("seats", "planes_known", 1),
    }
    found = _totals(delays, AIRLINE, figures).join(F.broadcast(names), "carrier", "left")
    return found.orderBy(F.desc("flights"), "carrier")


def by_route(delays: DataFrame, airports: DataFrame) -> DataFrame:
    """Origin and destination with the airports' names and the distance; the busiest first. `airports`: the
    topic's records.
    """
    names = current(airports, "code")
    found = _totals(delays, ROUTE, {"distance_miles": F.col("distance_miles")})
    for side in KEYS[ROUTE]:
        named = names.select(F.col("code").alias(side), F.col("name").alias(f"{side}_name"))
        found = found.join(F.broadcast(named), side, "left")
    return found.orderBy(F.desc("flights"), *KEYS[ROUTE])


def by_hour(delays: DataFrame) -> DataFrame:
    """The scheduled local hour with mean weather, and the delay of flights in rain apart from dry ones."""
    figures = {
        "mean_arrival_delay_in_rain": _mean("minutes_in_rain", "arrived_in_rain"),
        "mean_arrival_delay_dry": _mean("minutes_dry", "arrived_dry"),
        "wind_speed_mph": _mean("wind_speed_mph", "winds_known"),
        "visibility_miles": _mean("visibility_miles", "visibilities_known"),
    }
    return _totals(delays, HOUR, figures).orderBy("hour")


def _by() -> Column:
    grouped = [(name, F.grouping(keys[0]) == 0) for name, keys in KEYS.items()]
    start: Any = F
    return reduce(lambda chain, each: chain.when(each[1], each[0]), grouped, start)


def _measures() -> list[Column]:
    arrival, departure = F.col("arrival_delay"), F.col("departure_delay")
    arrived = arrival.isNotNull()
    wet, dry = F.col("precipitation") > 0, F.col("precipitation") <= 0
    age = F.year("day") - F.col("built_year")
    return [
        F.count(F.lit(1)).alias("flights"),
        F.count_if(departure.isNull()).alias("cancelled"),
        F.count("late_days").alias("late_records"),
        F.count(departure).alias("departed"),
        _sum(departure).alias("departure_minutes"),
        F.count(arrival).alias("arrived"),
        _sum(arrival).alias("arrival_minutes"),
        F.count_if(arrival > LATE_MINUTES).alias("late_arrivals"),
        F.count(age).alias("planes_dated"),
        _sum(age).alias("plane_years"),
        F.count("plane_seats").alias("planes_known"),
        _sum(F.col("plane_seats")).alias("seats"),
        F.count_if(arrived & wet).alias("arrived_in_rain"),
        _sum(F.when(wet, arrival)).alias("minutes_in_rain"),
        F.count_if(arrived & dry).alias("arrived_dry"),
        _sum(F.when(dry, arrival)).alias("minutes_dry"),
        F.count("wind").alias("winds_known"),
        _sum(F.col("wind")).alias("wind_speed_mph"),
        F.count("visibility").alias("visibilities_known"),
        _sum(F.col("visibility")).alias("visibility_miles"),
    ]


def _sum(column: Column) -> Column:
    return F.coalesce(F.sum(column), F.lit(0))


def _mean(total: str, count: str, digits: int = 2) -> Column:
    """Null of nothing."""
    return F.round(F.try_divide(F.col(total).cast("double"), F.col(count)), digits)


def _totals(delays: DataFrame, by: str, figures: dict[str, Column]) -> DataFrame:
    """Of all days of the rows: the key, what all tables have, and these figures of the sums."""
    keys = KEYS[by]
    rows = delays.where(F.col("by") == by)
    sums = rows.groupBy(*keys).agg(
        *[F.sum(name).alias(name) for name in _SUMS], F.max("distance_miles").alias("distance_miles")
    )
    found = sums.select(
        *keys,
        "flights",
        "cancelled",
        "late_records",
        _mean("departure_minutes", "departed").alias("mean_departure_delay"),
        _mean("arrival_minutes", "arrived").alias("mean_arrival_delay"),
        _mean("late_arrivals", "arrived", 4).alias("late_share"),
        *[figure.alias(name) for name, figure in figures.items()],
    )
    return found.join(_p90(rows, keys), list(keys), "left")


def _p90(rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """The least delay that nine of ten arrivals do not exceed."""
    counted = (
        rows.select(*keys, F.explode("arrival_delays").alias("delay", "count"))
        .groupBy(*keys, "delay")
        .agg(F.sum("count").alias("count"))
    )
    group = Window.partitionBy(*keys)
    so_far = F.sum("count").over(group.orderBy("delay"))
    below = counted.select(
        *keys, "delay", (so_far * P90[1] >= F.sum("count").over(group) * P90[0]).alias("enough")
    )
    return below.where("enough").groupBy(*keys).agg(F.min("delay").alias("p90_arrival_delay"))
