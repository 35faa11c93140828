"""Delays of New York's flights, brought up to date by what came since the last run: an incremental pipeline.

| stage | table | has |
|---|---|---|
| bronze | the topics' tables | every record, as Floe wrote it |
| quarantine | `flights_quarantine` | records of flights that tell of no flight, with place and bytes |
| silver | `flights` | one row per flight, as it was said last |
| gold | `delays_daily` | sums by day and airline, route and hour: flight_delays.py |

Each stage is one run by `exactly_once`: its rows and its watermark are one commit, so that a run that dies
anywhere is made good by the next. A stage reads what is new to it, and gold computes the days of which that
tells: those of new records of flights, of planes that are described anew and of hours whose weather came.

A flight that comes late is merged like any other, since its day alone is computed again; it is marked
(`late_days`), and gold counts such records (`late_records`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.spark.jobs import Given, Progress, Source, exactly_once, exactly_once_from, watermark_of
from iceberg.spark.pipelines import flight_delays as delays
from iceberg.spark.pipelines import flight_rows as rows_of
from iceberg.spark.session import CATALOG
from iceberg.spark.sinks import PLACE, merge_into
from iceberg.spark.topics import head_of, topic_table
from iceberg.spark.watermark import UnknownTable, Watermark

TOPICS = ("flights", "airlines", "airports", "planes", "weather")
NEEDED = ("flights", "planes", "weather")
"""Topics that the stages read; the others give names to what is asked of gold."""
DAYS_MAX = 20_000
"""Days that one run brings up to date: their list goes by way of the driver."""
RESULTS = f"{CATALOG}.results"
"""The namespace of the pipeline's tables, unless another is given."""
Before = Callable[[str, str], None]
"""Told stage and step before each step."""


@dataclass(frozen=True, slots=True)
class Lake:
    """Where the pipeline reads and writes: `bronze` maps each of TOPICS to its table, `results` is a
    namespace (`catalog.name`) of its own.
    """

    bronze: Mapping[str, str]
    results: str = RESULTS

    @property
    def quarantine(self) -> str:
        """The table of records that tell of no flight."""
        return f"{self.results}.flights_quarantine"

    @property
    def silver(self) -> str:
        """The table of flights."""
        return f"{self.results}.flights"

    @property
    def gold(self) -> str:
        """The table of delays by day."""
        return f"{self.results}.delays_daily"

    def create(self, spark: SparkSession) -> None:
        """Make what is missing of namespace and tables."""
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.results}")
        for table, columns, parts in (
            (self.quarantine, rows_of.QUARANTINE, ""),
            (self.silver, rows_of.SILVER, "PARTITIONED BY (months(day))"),
            (self.gold, delays.GOLD, "PARTITIONED BY (months(day))"),
        ):
            spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING iceberg {parts}")


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stage did: `read` counts offsets by topic, `added` and `removed` the target's rows that it wrote
    and that it replaced, files' rows that were written anew among both; `days` those that gold computed.
    """

    name: str
    read: Mapping[str, int]
    added: int = 0
    removed: int = 0
    days: int = 0
    flights: Progress | None = None


def run(
    spark: SparkSession,
    lake: Lake,
    *,
    until: Watermark | None = None,
    before: Before = lambda stage, step: None,
) -> list[Stage]:
    """Bring all stages up to date with the topics; those that had nothing to do are left out.

    `until` bounds what is read of flights. Raises UnknownTable, before anything is done, when a topic of
    NEEDED has no table yet, and what `exactly_once` raises; run it again.
    """
    require(spark, lake)
    lake.create(spark)
    end = until or topic_table(spark, lake.bronze["flights"]).end
    done = [
        put_aside(spark, lake, end, lambda step: before("quarantine", step)),
        merge_flights(spark, lake, end, lambda step: before("silver", step)),
        aggregate(spark, lake, lambda step: before("gold", step)),
    ]
    return [stage for stage in done if stage is not None]


def missing(spark: SparkSession, lake: Lake) -> list[str]:
    """Tables of NEEDED that are not there."""
    return [lake.bronze[topic] for topic in NEEDED if not spark.catalog.tableExists(lake.bronze[topic])]


def require(spark: SparkSession, lake: Lake) -> None:
    """Raises UnknownTable, which names all that are missing."""
    if lacking := missing(spark, lake):
        raise UnknownTable(
            f"there is no table {', '.join(lacking)}: a topic's table comes some seconds after its first "
            "record; write to the topic, or wait for the table (--wait SECONDS)"
        )


def put_aside(
    spark: SparkSession, lake: Lake, until: Watermark, before: Callable[[str], None]
) -> Stage | None:
    """Records that tell of no flight, with place and bytes, into the quarantine."""

    def job(records: DataFrame, target: str) -> None:
        merge_into(rows_of.quarantined(records), target, key=PLACE[1:])

    source, base = lake.bronze["flights"], head_of(spark, lake.quarantine)
    done = exactly_once(spark, source, lake.quarantine, job, until=until, before=before)
    return done and told(spark, "quarantine", lake.quarantine, base, {"flights": done})


def merge_flights(
    spark: SparkSession, lake: Lake, until: Watermark, before: Callable[[str], None]
) -> Stage | None:
    """Flights of new records into silver."""

    source, base = lake.bronze["flights"], head_of(spark, lake.silver)
    done = exactly_once(spark, source, lake.silver, merge, until=until, before=before)
    return done and told(spark, "silver", lake.silver, base, {"flights": done})


def merge(records: DataFrame, silver: str) -> None:
    """Put records' flights into silver, or a branch of it: the one that was said last counts."""
    newest_day = records.sparkSession.table(silver).agg(F.max("day")).collect()[0][0]
    flights = rows_of.flights_of(records, newest_day)
    merge_into(flights, silver, key=rows_of.FLIGHT, newest_by=rows_of.NEWEST_BY)


def aggregate(spark: SparkSession, lake: Lake, before: Callable[[str], None]) -> Stage | None:
    """Gold up to where silver is: the days that new records of flights, planes and weather touch."""
    until = _reached(spark, lake)
    if until is None:
        return None
    days: set[date] = set()

    def job(given: Sequence[Given], target: str) -> None:
        days.update(_touched(spark, lake, given))
        before("take old days out")
        compute(spark, lake, days, [each.whole() for each in given[1:]], target, before)

    bounds = {"flights": until}
    sources = [Source(lake.bronze[topic], until=bounds.get(topic)) for topic in NEEDED]
    base = head_of(spark, lake.gold)
    done = exactly_once_from(spark, sources, lake.gold, job, before=before)
    if done is None:
        return None
    progress = dict(zip(NEEDED, done, strict=True))
    return told(spark, "gold", lake.gold, base, progress, len(days))


def compute(
    spark: SparkSession,
    lake: Lake,
    days: Iterable[date],
    described: Sequence[DataFrame],
    gold: str,
    before: Callable[[str], None] = lambda step: None,
) -> None:
    """Compute these days anew from silver, in gold or a branch of it. `described`: records of planes and of
    weather. Raises ValueError for more than DAYS_MAX.
    """
    listed = sorted(days)
    if len(listed) > DAYS_MAX:
        raise ValueError(f"{len(listed)} days at once: bring {DAYS_MAX} up to date in one run, by until")
    if not listed:
        return
    wanted = F.col("day").between(listed[0], listed[-1]) & F.col("day").isin(listed)
    planes, weather = delays.planes_of(described[0]), delays.weather_of(described[1])
    computed = delays.daily(spark.table(lake.silver).where(wanted), planes, weather)
    quoted = ", ".join(f"DATE '{day}'" for day in listed)
    spark.sql(f"DELETE FROM {gold} WHERE day >= DATE '{listed[0]}' AND day IN ({quoted})")
    before("put new days in")
    names = [F.col(name) for name in spark.table(gold).columns]
    computed.select(*names).writeTo(gold).append()


def results(spark: SparkSession, lake: Lake) -> dict[str, DataFrame]:
    """The figures of the whole time, from gold: `delays_by_airline`, `…_route`, `…_hour`."""
    gold = spark.table(lake.gold)
    names = {topic: spark.table(lake.bronze[topic]) for topic in ("airlines", "airports")}
    return {
        "delays_by_airline": delays.by_airline(gold, names["airlines"]),
        "delays_by_route": delays.by_route(gold, names["airports"]),
        "delays_by_hour": delays.by_hour(gold),
    }


def told(
    spark: SparkSession,
    name: str,
    target: str,
    base: int | None,
    progress: Mapping[str, Progress],
    days: int = 0,
) -> Stage:
    """What a run did, by the summaries of the snapshots that it made behind `base`."""
    found = spark.sql(
        "SELECT snapshot_id, parent_id, CAST(coalesce(summary['added-records'], '0') AS BIGINT) AS added, "
        f"CAST(coalesce(summary['deleted-records'], '0') AS BIGINT) AS removed FROM {target}.snapshots"
    ).collect()
    by_id = {row["snapshot_id"]: row for row in found}
    at, added, removed = next(iter(progress.values())).snapshot_id, 0, 0
    while at != base and at in by_id:
        added, removed = added + by_id[at]["added"], removed + by_id[at]["removed"]
        at = by_id[at]["parent_id"]
    read = {
        topic: sum(end - first for _, first, end in each.since.ranges(each.watermark))
        for topic, each in progress.items()
    }
    return Stage(name, read, added, removed, days, progress["flights"])


def _reached(spark: SparkSession, lake: Lake) -> Watermark | None:
    """Up to where silver is, and not beyond the table: a stream from Kafka may be ahead of it."""
    silver = watermark_of(spark, lake.bronze["flights"], lake.silver)
    if silver is None:
        return None
    end = topic_table(spark, lake.bronze["flights"]).end
    return Watermark(
        end.topic_id, tuple(min(at, end.at(partition)) for partition, at in enumerate(silver.offsets))
    )


def _touched(spark: SparkSession, lake: Lake, given: Sequence[Given]) -> set[date]:
    """The days whose sums what is given may change."""
    flights, planes, weather = given
    silver = spark.table(lake.silver)
    if not flights.new.since.offsets:  # the first run
        frames = [silver.select("day")]
    else:
        frames = [rows_of.days_of(flights.new.rows)]
        if not planes.new.is_empty:
            named = planes.new.rows.select("value.tail_number").distinct()
            frames.append(silver.join(F.broadcast(named), "tail_number", "left_semi").select("day"))
        if not weather.new.is_empty:
            hours = weather.new.rows.select("value.origin", F.col("value.hour").alias("scheduled_hour"))
            keys = ["origin", "scheduled_hour"]
            frames.append(silver.join(F.broadcast(hours.distinct()), keys, "left_semi").select("day"))
    found = reduce(DataFrame.union, frames).distinct().limit(DAYS_MAX + 1).collect()
    return {row["day"] for row in found}
