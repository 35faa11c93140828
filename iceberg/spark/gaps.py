"""Whether each witness has every offset of a partition, from where the audit begins up to the given end.

Where no end is given it is that of the witness's last record: what is lost behind it nobody can tell then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from iceberg.spark.given import AuditInput
from iceberg.spark.verdict import GAP, Finding
from objectstore.offset_ranges import outside

WORDS = {"sent": "acknowledged", "consumed": "consumer", "table": "table"}

Place = tuple[str, int]


class Held(NamedTuple):
    """A witness's different offsets of a partition: how many, the lowest, and the end behind the highest."""

    offsets: int
    low: int | None
    end: int


class Gap(NamedTuple):
    """Not all that is due is there. `first`: the lowest offset that lacks; -1: one before the last record."""

    detail: str
    first: int


def gaps(joined: DataFrame, partitions: Sequence[Any], given: AuditInput) -> list[Finding]:
    """By witness and partition. `partitions`: its counts, a row each (audit.py)."""
    found = []
    for name in (name for name in WORDS if name in joined.columns):
        told = {
            place: gap
            for place, held in _held(name, partitions, given)
            if (gap := gap_of(WORDS[name], place, held, given)) is not None
        }
        inside = [place for place, gap in told.items() if gap.first < 0]
        holes = _first_holes(joined, name, inside, given) if inside else {}
        found += [
            Finding(GAP, *place, holes.get(place, gap.first), gap.detail) for place, gap in told.items()
        ]
    return sorted(found, key=lambda gap: (gap.topic, gap.partition))


def _held(name: str, partitions: Sequence[Any], given: AuditInput) -> Iterator[tuple[Place, Held]]:
    """Of each partition with a record or an end; not of compacted topics, which need not be dense."""
    compacted = given.topics_that(lambda how: how.compacted)
    held = {place: Held(0, None, 0) for place in given.ends}
    for row in partitions:
        offsets, low, high = (row[f"{name}_{what}"] for what in ("offsets", "low", "high"))
        if offsets:
            held[row["topic"], row["partition"]] = Held(offsets, low, high + 1)
    yield from ((place, each) for place, each in sorted(held.items()) if place[0] not in compacted)


def gap_of(witness: str, place: Place, held: Held, given: AuditInput) -> Gap | None:
    """What it lacks of a partition. Who knows where no record need be is asked only where it is not dense."""
    log_start = max(given.log_start.get(place, 0), given.since.get(place, 0))
    end = max(held.end, given.ends.get(place, 0))
    dense = [*outside(log_start, end, given.covered.get(place, ()))]
    if held.offsets == _count(dense) and (not dense or held.low == dense[0][0]):
        return None  # no marker is among them
    known = given.no_gaps(place)
    start = next((until for first, until in known if first <= log_start < until), log_start)
    low = start if held.low is None else held.low
    due = [*outside(low, end, known)]
    if low == start and held.offsets == _count(due):
        return None
    detail = (
        f"{witness}: {held.offsets:,} of {_count(due):,} offsets in {low:,} to {end - 1:,}, "
        f"the log starts at {log_start:,}"
    )
    if low != start or not held.offsets:
        return Gap(detail, start)
    if held.offsets == _count([*outside(low, held.end, known)]):
        return Gap(detail, next(max(first, held.end) for first, until in due if until > held.end))
    return Gap(detail, -1)


def _count(stretches: Sequence[tuple[int, int]]) -> int:
    return sum(until - first for first, until in stretches)


def _first_holes(
    joined: DataFrame, name: str, places: Sequence[Place], given: AuditInput
) -> dict[Place, int]:
    """By partition the lowest offset that witness `name` lacks although it has an earlier and a later one."""
    spark = joined.sparkSession
    where = ["topic", "partition"]
    wanted = F.broadcast(spark.createDataFrame(list(places), "topic string, partition int"))
    known = [(*place, *hole) for place in places for hole in given.no_gaps(place)]
    holes = F.broadcast(spark.createDataFrame(known, "topic string, partition int, first long, until long"))
    rows = joined.where(F.col(name).isNotNull() & F.col("misplaced").isNull())
    following = F.lead("offset").over(Window.partitionBy(*where).orderBy("offset"))
    rows = rows.join(wanted, where, "left_semi").select(*where, "offset", following.alias("next"))
    lacking = rows.where("next > offset + 1").withColumn("first", F.col("offset") + 1)
    due = F.coalesce(F.col("until"), F.col("first"))  # the first behind a known hole that begins here
    found = lacking.join(holes, [*where, "first"], "left").where(due < F.col("next"))
    return {
        (row["topic"], row["partition"]): row["due"]
        for row in found.groupBy(*where).agg(F.min(due).alias("due")).collect()
    }
