"""A `__latest` table against its topic's own: Spark works out the newest row of each key, and compares it.

The topic's table is a witness here, since the audit compares it with the topic itself (audit.py). It is read
as it is now, which is no less than what the latest table was made from, below the latest table's ledger: so
the rows that are due are those of the snapshot it was made from, and none that it should have read is missed.
Of each partition and key the record of the greatest offset is due, unless it takes the key away; every column
is compared by its id, null against default, reals by bits.

Findings: `missing` (a key has no row), `extra` (a row whose key was deleted, or never was), `doubled` (a key
has several rows), `changed` (a row of another record than the newest), `column` (a column differs), `place`
(a row without key or place, or at or beyond the ledger), `ledger` (there is none, or it is beyond that of the
topic's table).

Where rows leave the topic's table by retention, what is below the log start tells nothing and is passed over:
the latest table keeps what it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from iceberg.spark.flat import whole_value
from iceberg.spark.rows_alike import FOUND_SQL, Sides, comparing
from iceberg.spark.tables import Pinned, pinned
from iceberg.spark.verdict import (
    CHANGED,
    COLUMN,
    DOUBLED,
    EXAMPLES_MAX,
    EXTRA,
    LEDGER,
    MISSING,
    PLACE,
    Finding,
    LatestCount,
)

ENVELOPE, NEXT = "floe.latest-envelope", "floe.next-offsets"
DEBEZIUM = "debezium"
ORDER = (MISSING, EXTRA, DOUBLED, CHANGED, COLUMN, PLACE, LEDGER)
_PUTS, _DELETE = ("c", "u", "r"), "d"


@dataclass(frozen=True, slots=True)
class Latest:
    """What to compare: a topic's latest table and its own (`lake.namespace.name`).

    `left`: by partition the log start, where rows below it leave the topic's table (`floe.table.retention`);
    it is asked once the snapshots are chosen.
    """

    topic: str
    table: str
    source: str
    left: Callable[[], Mapping[int, int]] = dict
    examples: int = EXAMPLES_MAX


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found: how much of each kind, the first of each, and what was compared."""

    counts: Mapping[str, int]
    findings: list[Finding]
    rows: LatestCount


def judged(spark: SparkSession, given: Latest) -> Judged:
    """Compare the two tables. Their snapshots are chosen first, and stay."""
    own = pinned(spark, given.topic, given.table)
    source = pinned(spark, given.topic, given.source)  # later, so that it has no less
    ledger = _ledger(own)
    if ledger is None or own.snapshot is None:
        told = f"the current snapshot of {given.table} has no ledger: {own.summary.get(NEXT)!r}"
        counted = LatestCount(given.topic, given.table, 0, ())
        return Judged({LEDGER: 1}, [Finding(LEDGER, given.topic, -1, -1, told)], counted)
    sides = Sides(given.table, source.columns.fields, own.columns.fields, _envelope(own))
    left = given.left()
    both = _joined(spark, own, source, ledger, sides.debezium)
    both = both.where(~_left(left)) if left else both
    found = both.mapInArrow(comparing(sides, ledger), FOUND_SQL).cache()
    counts = {row["kind"]: row["count"] for row in found.groupBy("kind").count().collect()}
    findings = _examples(given.topic, found, counts, given.examples)
    found.unpersist()
    beyond = list(_beyond(given, ledger, _ledger(source) or []))
    counts |= {LEDGER: len(beyond)} if beyond else {}
    rows = LatestCount(
        given.topic, given.table, spark.sql(f"SELECT 1 FROM {own.rows}").count(), tuple(ledger)
    )
    return Judged(counts, [*findings, *beyond[: given.examples]], rows)


def _ledger(of: Pinned) -> list[int] | None:
    """The next offset of each partition, as the snapshot says; None where it says none."""
    told = of.summary.get(NEXT, "").split(",")
    return [int(each) for each in told] if all(each.isdecimal() for each in told) else None


def _envelope(of: Pinned) -> bool:
    return of.properties.get(ENVELOPE) == DEBEZIUM


def _beyond(given: Latest, ledger: list[int], source: list[int]) -> list[Finding]:
    """Where the table says to have more than the topic's own."""
    ends = dict(enumerate(source))
    return [
        Finding(
            LEDGER,
            given.topic,
            partition,
            end,
            f"the ledger of {given.table} says {end:,}, that of {given.source} {ends.get(partition, 0):,}",
        )
        for partition, end in enumerate(ledger)
        if end > ends.get(partition, 0)
    ]


def _joined(spark: SparkSession, own: Pinned, source: Pinned, ledger: list[int], debezium: bool) -> DataFrame:
    """One row per partition and key, and row of the latest table: what is due (`wanted`), what is there.

    `n`: how many rows the key has. `gone_at`: at which offset it was taken away, where it was.
    """
    newest = _newest(_told(spark, source, ledger, debezium))
    found = spark.sql(f"SELECT * FROM {own.rows}").select(
        F.col("kafka.partition").alias("partition"),
        F.col("key.__raw__").alias("raw"),
        F.struct("kafka", "key", whole_value(own.fields), "headers").alias("found"),
    )
    found = found.withColumn("n", F.count(F.lit(1)).over(Window.partitionBy("partition", "raw")))
    return newest.join(found, ["partition", "raw"], "full_outer").where(
        F.col("wanted").isNotNull() | F.col("found").isNotNull()
    )


def _told(spark: SparkSession, source: Pinned, ledger: list[int], debezium: bool) -> DataFrame:
    """The records of the topic's table, as far as the ledger goes, that say something of their key."""
    rows = spark.sql(f"SELECT * FROM {source.rows}").where(F.col("key.__raw__").isNotNull())
    inside = [
        (F.col("kafka.partition") == partition) & (F.col("kafka.offset") < end)
        for partition, end in enumerate(ledger)
        if end
    ]
    null = F.col("value").isNull().alias("null")
    rows = rows.where(reduce(Column.__or__, inside, F.lit(False)))
    rows = rows.select("kafka", "key", whole_value(source.fields), "headers", null)
    if not debezium:
        return rows.withColumn("gone", F.col("null"))
    op = F.col("value.op")
    gone = F.col("null") | F.coalesce(op == _DELETE, F.lit(False))
    puts = op.isin(*_PUTS) & F.col("value.after").isNotNull()
    return rows.withColumn("gone", gone).where(gone | F.coalesce(puts, F.lit(False)))


def _newest(told: DataFrame) -> DataFrame:
    """Of each partition and key the newest record (`wanted`), or the offset at which it was taken away."""
    places = (
        told.groupBy(F.col("kafka.partition").alias("partition"), F.col("key.__raw__").alias("raw"))
        .agg(F.max(F.struct("kafka.offset", "gone")).alias("newest"))
        .select("partition", "raw", "newest.offset", "newest.gone")
    )
    rows = told.where(~F.col("gone")).select(
        F.col("kafka.partition").alias("partition"),
        F.col("kafka.offset").alias("offset"),
        F.struct("kafka", "key", "value", "headers").alias("wanted"),
    )
    gone_at = F.when(F.col("gone"), F.col("offset")).alias("gone_at")
    joined = places.join(rows.where("offset IS NOT NULL"), ["partition", "offset"], "left")
    return joined.select("partition", "raw", gone_at, F.when(~F.col("gone"), F.col("wanted")).alias("wanted"))


def _left(left: Mapping[int, int]) -> Column:
    """Whether retention may have taken from the topic's table what would tell."""
    newest = F.greatest("wanted.kafka.offset", "found.kafka.offset", "gone_at")
    below = [(F.col("partition") == number) & (newest < start) for number, start in left.items()]
    return F.coalesce(reduce(Column.__or__, below, F.lit(False)), F.lit(False))


def _examples(topic: str, found: DataFrame, counts: Mapping[str, int], most: int) -> list[Finding]:
    """The first of each kind."""
    told = []
    for kind in (each for each in ORDER if counts.get(each)):
        rows = found.where(F.col("kind") == kind).orderBy("partition", "offset", "column").limit(most)
        for row in rows.collect():
            told.append(Finding(kind, topic, row["partition"], row["offset"], row["detail"], row["column"]))
    return told
