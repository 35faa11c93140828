"""Old ranges of a topic's table judged by what audits kept of them: nothing of the topic is read.

Of each range that an audit found equal there are the number of its records and two sums of their hashes
(hashes.py), of what a consumer read then. All rows of the table in it are read and have to give the same, and
their columns have to be what their bytes say. So a row lost, doubled, moved or changed since is found, also
where the topic has its record no more: by the range, as nobody can tell which row it is.

A range whose rows are others, or may have wrong columns, is compared with the topic as if it had no digest,
as far as the topic has it: that tells the places. Ranges may overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.spark.digested import Digested, covered, usable, wrapped
from iceberg.spark.given import AuditInput, Stretches
from iceberg.spark.glance import Glance
from iceberg.spark.hashes import halves, hashed
from iceberg.spark.joining import lean
from iceberg.spark.seen import of_topic
from iceberg.spark.steady import local_rows
from iceberg.spark.tables import WRONG, XXHASH, Pinned, bytes_history, history_of, inside
from iceberg.spark.verdict import CHANGED, DigestCount, Finding

BUCKET_OFFSETS_MIN, BUCKET_OFFSETS_MAX = 1 << 10, 1 << 30
"""Of the pieces in which offsets and ranges meet: sums of one overflow nothing."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Ranges = Mapping[int, Sequence[Digested]]
"""By partition."""


class Unlike(NamedTuple):
    """A range whose rows are not those that were read then: how many there are now."""

    partition: int
    range: Digested
    rows: int


class Judged(NamedTuple):
    """`given` without what is covered by digests; where rows are others; and what was looked at."""

    given: AuditInput
    unlike: Sequence[Unlike] = ()
    looked_at: DigestCount | None = None


class _Sums(NamedTuple):
    records: int = 0
    lower: int = 0
    upper: int = 0
    wrong: int = 0


def by_digests(spark: SparkSession, given: AuditInput, of: Pinned) -> Judged:
    """Judge the rows of a topic's table that lie in ranges with digests."""
    ranges = {number: given.digests[of.topic, number] for number in _partitions(given, of.topic)}
    if not any(ranges.values()):
        return Judged(given)
    places = inside({number: covered(own) for number, own in ranges.items()})
    rows = history_of(spark, of, given.schemas[of.topic], places, XXHASH)
    sums = _by_range(spark, lean({"table": rows})["table"], ranges)
    sound: dict[int, list[Digested]] = {number: [] for number in ranges}
    others = []
    for (number, each), found in sums.items():
        if each.sums != found[:3]:
            others.append(Unlike(number, each, found.records))
        elif not found.wrong:
            sound[number].append(each)
    rows_there = sum(found.records for found in sums.values())
    oldest_us = min(each.at_us for _, each in sums)
    told = DigestCount(of.topic, len(sums), rows_there, _time(oldest_us))
    if callable(given.consumed):  # else what was read of the topic is there, and all of it
        given = replace(given, covered=_covered(given, of.topic, sound))
    return Judged(given, sorted(others), told)


def _covered(given: AuditInput, topic: str, sound: Ranges) -> dict[tuple[str, int], Stretches]:
    """The offsets that need not be compared with the topic, of a bounded number of stretches."""
    compacted = topic in given.topics_that(lambda how: how.compacted)
    found: dict[tuple[str, int], Stretches] = {}
    for number, own in sound.items():
        place = topic, number
        start, end = given.log_start.get(place, 0), given.ends.get(place, 0)
        found[place] = covered(usable(own, start, end, compacted=compacted))
    return found


def _partitions(given: AuditInput, topic: str) -> list[int]:
    return sorted(number for of, number in given.digests if of == topic)


def _time(at_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=at_us)).isoformat(timespec="seconds")


def unlike(topic: str, judged: Judged, *, same_now: bool) -> list[Finding]:
    """What is told of ranges whose rows are others. `same_now`: the topic and its table were found equal,
    where they were compared.
    """
    found = []
    for each in judged.unlike:
        range_, start = each.range, judged.given.log_start.get((topic, each.partition), 0)
        text = (
            f"the rows at offsets {range_.first:,} to {range_.end - 1:,} are not the {range_.records:,} "
            f"records that the audit of {_time(range_.at_us)} read"
        )
        text += f", there are {each.rows:,}" if each.rows != range_.records else ""
        if range_.end <= start:
            text += "; the topic has them no more"
        elif same_now:
            text += "; what the topic has of them now is the same in both"
        found.append(Finding(CHANGED, topic, each.partition, range_.first, text))
    return found


def kept_of(spark: SparkSession, given: AuditInput, of: Pinned, seen: Glance | None) -> Ranges:
    """The sums of what an audit that finds nothing wrong has compared with the topic.

    None of what was not compared record by record: where a compacted topic lacks records, or damaged ones
    are passed over.
    """
    due = {number: given.due((of.topic, number)) for number in of_topic(of.topic, given.ends)}
    due = {number: stretches for number, stretches in due.items() if stretches}
    if seen is None:
        if given.topics_that(lambda how: how.compacted):
            return {}
        due = {number: each for number, each in due.items() if not given.skipped.get((of.topic, number))}
    elif given.digest is XXHASH and all(len(stretches) == 1 for stretches in due.values()):
        sums = {number: (each.records, *each.digest) for number, each in seen.sums.items()}
        return {
            number: [_digested(first, end, *sums.get(number, (0, 0, 0)))]
            for number, ((first, end),) in due.items()
        }
    wanted = {number: [Digested(*each, 0, 0, 0) for each in stretches] for number, stretches in due.items()}
    rows = bytes_history(spark, of, inside(due), XXHASH)
    found: dict[int, list[Digested]] = {}
    for (number, each), sums_ in _by_range(spark, rows, wanted).items():
        found.setdefault(number, []).append(_digested(each.first, each.end, *sums_[:3]))
    return found


def _digested(first: int, end: int, records: int, lower: int, upper: int) -> Digested:
    return Digested(first, end, records, wrapped(lower), wrapped(upper))


def _by_range(spark: SparkSession, rows: DataFrame, ranges: Ranges) -> dict[tuple[int, Digested], _Sums]:
    """The sums of rows in each range.

    Rows and ranges meet by pieces of offsets, about as wide as a range is on the average: so a row meets few.
    """
    every = [(number, each) for number, own in ranges.items() for each in own]
    if not every:
        return {}
    mean = sum(each.end - each.first for _, each in every) // len(every)
    width = max(BUCKET_OFFSETS_MIN, min(BUCKET_OFFSETS_MAX, mean))
    told = [
        (number, bucket, each.first, each.end, at)
        for at, (number, each) in enumerate(every)
        for bucket in range(each.first // width, (max(each.first, each.end - 1)) // width + 1)
    ]
    places = local_rows(spark, told, "in_partition int, bucket long, first long, until long, at int")
    wrong = F.col(WRONG).isNotNull() if WRONG in rows.columns else F.lit(False)
    hashed_rows = rows.select("partition", "offset", hashed().alias("whole"), wrong.alias("wrong"))
    bucket = F.expr(f"offset div {width}")
    meet: Column = (F.col("partition") == F.col("in_partition")) & (F.col("bucket") == F.col("own_bucket"))
    meet &= (F.col("offset") >= F.col("first")) & (F.col("offset") < F.col("until"))
    joined = hashed_rows.withColumn("own_bucket", bucket).join(F.broadcast(places), meet)
    summed = joined.groupBy("at", "bucket").agg(
        F.count(F.lit(1)).alias("records"),
        *halves("whole", F.lit(True)),
        F.count(F.when(F.col("wrong"), F.lit(1))).alias("wrong"),
    )
    found = [[0, 0, 0, 0] for _ in every]
    for row in summed.collect():
        for place, name in enumerate(("records", "whole_lower", "whole_upper", "wrong")):
            found[row["at"]][place] += row[name]
    return {
        key: _Sums(records, wrapped(lower), wrapped(upper), bad)
        for key, (records, lower, upper, bad) in zip(every, found, strict=True)
    }
