"""A first look of an audit: whether a topic and its table hold the same, by sums and not side by side.

Of each side and partition are summed up 64-bit hashes of the records and, apart, of their offsets. What the
consumer read and the rows have to give the same sums, and the offsets those of the numbers that are due: from
the first that is compared on each once, but where no record is. So neither side lacks, doubles or changes
anything, nor has it elsewhere, and no row is wrong in itself. Nothing is shuffled but a row for each
partition, and each side is read once.

Whatever is not just so has to be looked at side by side (audit.py), which alone says what is wrong: a look
gives nothing then, and never a finding. That two sides with a difference have the same sums has the chance of
one in 1.8·10¹⁹ by accident: an order-independent digest, as its parts may be added in any order.

The expressions have no numbers of their own in them, but texts: so Spark's generated code is the same for
every look, and the JVM need not compile it anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.spark.given import AuditInput
from iceberg.spark.hashes import halves, hashed
from iceberg.spark.seen import at, of_topic
from iceberg.spark.steady import local_rows
from iceberg.spark.tables import WRONG
from iceberg.spark.verdict import TopicCount
from objectstore.offset_ranges import outside

OFFSETS_PER_PIECE = 1_000_000
"""Of the numbers that are due, in one row before it is spread."""
PIECES_MAX = 1_000
"""Stretches without holes, of one partition: with more it is looked at side by side."""

SUMMED = ("records", "whole_lower", "whole_upper", "at_lower", "at_upper", "others", "later")
"""Columns of `summed` that may be added up."""


class Sums(NamedTuple):
    """Of one side's records in a partition: how many, their sums of hashes by 32 bits, lowest and highest
    offset. `offsets`: the sums of the offsets alone. `others`: rows that are in no place or wrong; `later`:
    beyond the end.
    """

    records: int
    digest: tuple[int, int]
    offsets: tuple[int, int]
    low: int
    high: int
    others: int
    later: int


class Glance(NamedTuple):
    """A topic and table that are the same. `later`: rows that were not judged."""

    records: int
    later: int
    sums: Mapping[int, Sums] = MappingProxyType({})
    """By partition with records."""

    def counts(self, topic: str) -> list[TopicCount]:
        """As a verdict tells them."""
        return [TopicCount(topic, None, None, None, self.records, self.records, later=self.later)]


def may_glance(given: AuditInput, highs: Mapping[tuple[str, int], int]) -> bool:
    """Whether a look is worth its while: one topic, what a consumer read of it, and nothing that is excused.

    Rows that a topic has no more, and ranges of damage that are passed over, want the sides side by side.
    """
    if (
        given.sent is not None
        or given.consumed is None
        or len(given.tables) != 1
        or not (given.ends and highs)
    ):
        return False
    gone = (
        any(outside(given.since.get(place, 0), start, given.covered.get(place, ())))
        for place, start in given.log_start.items()
    )
    hurt = (
        first < until and end > begin
        for place, ranges in given.skipped.items()
        for first, end in ranges
        for begin, until in given.due(place)
    )
    return not any(gone) and not any(hurt)


def glance(
    spark: SparkSession,
    consumed: DataFrame,
    table: DataFrame,
    given: AuditInput,
    highs: Mapping[tuple[str, int], int],
) -> Glance | None:
    """What is the same; None where the sides have to be looked at side by side.

    `consumed`, `table`: in the columns of a history, and `wrong` where a row is, or may be.
    """
    return glance_at(spark, summed(consumed, given, highs), summed(table, given, highs), given)


def glance_at(
    spark: SparkSession, read_sums: DataFrame, row_sums: DataFrame, given: AuditInput
) -> Glance | None:
    """The same of sides that are summed up: a row for each partition, in the fields of Sums."""
    (topic,) = given.tables
    sides = {"read": read_sums, "row": row_sums}
    named = [side.withColumn("side", F.lit(name)) for name, side in sides.items()]
    found: dict[str, dict[int | None, Sums]] = {name: {} for name in sides}
    for row in reduce(DataFrame.unionByName, named).collect():
        found[row["side"]][row["partition"]] = _sums(row)
    read, rows = found["read"], found["row"]
    if any(each.others for side in found.values() for each in side.values()):
        return None
    if any(each.later for each in read.values()) or not _same(read, rows):
        return None
    if not _each_once(spark, topic, read, given):
        return None
    sums = {number: each for number, each in read.items() if number is not None and each.records}
    return Glance(
        sum(each.records for each in read.values()), sum(each.later for each in rows.values()), sums
    )


def _same(one: Mapping[int | None, Sums], other: Mapping[int | None, Sums]) -> bool:
    def compared(side: Mapping[int | None, Sums]) -> dict[int | None, tuple[object, ...]]:
        return {number: each[:5] for number, each in side.items() if each.records}

    return compared(one) == compared(other)


def summed(side: DataFrame, given: AuditInput, highs: Mapping[tuple[str, int], int]) -> DataFrame:
    """A row for each partition, in the fields of Sums. `side`: in the columns of a history."""
    right = F.col(WRONG).isNull() if WRONG in side.columns else F.lit(True)
    counted = side.select("partition", "offset", *looked_at(given, highs, right))
    return counted.groupBy("partition").agg(*sums())


def looked_at(given: AuditInput, highs: Mapping[tuple[str, int], int], right: Column) -> list[Column]:
    """What is summed up of a record: whether it is `below` the end, or `other` than it may be, and hashes.

    `right`: whether it is so in itself; over the columns of a history.
    """
    (topic,) = given.tables
    partition, offset = F.col("partition"), F.col("offset")
    high = at(of_topic(topic, highs), partition)
    placed = partition.isNotNull() & (offset >= F.lit(0)) & (offset < high)
    placed = F.coalesce(placed, F.lit(False))
    below = placed & (offset < at(of_topic(topic, given.ends), partition))
    return [
        below.alias("below"),
        (~(placed & right)).alias("other"),
        hashed().alias("whole"),
        F.xxhash64("offset").alias("at"),
    ]


def sums(of: Column | None = None) -> list[Column]:
    """The fields of Sums over what is `looked_at`. `of`: which of them count; all, where it is not given."""
    counts = F.lit(True) if of is None else of
    below, other = F.col("below") & counts, F.col("other") & counts
    return [
        F.count(F.when(below, F.lit(1))).alias("records"),
        *halves("whole", below),
        *halves("at", below),
        F.min(F.when(below, F.col("offset"))).alias("low"),
        F.max(F.when(below, F.col("offset"))).alias("high"),
        F.count(F.when(other, F.lit(1))).alias("others"),
        F.count(F.when(~F.col("below") & ~F.col("other") & counts, F.lit(1))).alias("later"),
    ]


def added(parts: DataFrame) -> DataFrame:
    """A row for each partition of what was summed up in parts, such as by file."""
    least = [how(name).alias(name) for name, how in (("low", F.min), ("high", F.max))]
    every = [F.sum(name).alias(name) for name in SUMMED]
    return parts.groupBy("partition").agg(*every, *least)


def _sums(row: Mapping[str, int]) -> Sums:
    digest, offsets = ((row[f"{name}_lower"], row[f"{name}_upper"]) for name in ("whole", "at"))
    return Sums(row["records"], digest, offsets, row["low"], row["high"], row["others"], row["later"])


def _each_once(spark: SparkSession, topic: str, read: Mapping[int | None, Sums], given: AuditInput) -> bool:
    """Whether each offset that is due is there once, up to the end, and no other."""
    due: dict[int, list[tuple[int, int]]] = {}
    for partition, end in of_topic(topic, given.ends).items():
        place = topic, partition
        first = max(given.log_start.get(place, 0), given.since.get(place, 0))
        pieces = list(outside(first, end, given.covered.get(place, ())))
        records = read[partition].records if partition in read else 0
        if sum(until - begin for begin, until in pieces) != records:
            pieces = list(outside(first, end, given.no_gaps(place)))
        if sum(until - begin for begin, until in pieces) != records or len(pieces) > PIECES_MAX:
            return False
        if records:
            due[partition] = pieces
    return not due or _due(spark, due) == {number: read[number].offsets for number in due}


def _due(spark: SparkSession, pieces: Mapping[int, Sequence[tuple[int, int]]]) -> dict[int, tuple[int, int]]:
    """By partition the sums of all offsets in these stretches."""
    rows = [
        (partition, begin, min(begin + OFFSETS_PER_PIECE, until) - 1)
        for partition, stretches in pieces.items()
        for first, until in stretches
        for begin in range(first, until, OFFSETS_PER_PIECE)
    ]
    stretches = local_rows(spark, rows, "partition int, first long, last long")
    offsets = stretches.select("partition", F.explode(F.sequence("first", "last")).alias("offset"))
    hashed = offsets.select("partition", F.xxhash64("offset").alias("at"))
    found = hashed.groupBy("partition").agg(*halves("at", F.lit(True))).collect()
    return {row["partition"]: (row["at_lower"], row["at_upper"]) for row in found}
