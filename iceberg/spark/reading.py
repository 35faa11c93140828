"""Increments of a topic's table: exactly the rows between two watermarks, as a batch or as a stream."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from iceberg.spark.topics import TopicTable, topic_table
from iceberg.spark.watermark import JobError, RowsGone, Watermark

TERMS_MAX = 500
"""Terms of a filter that the planner compares with each file's bounds. With more partitions than that
neighbours share one, and some files are opened in vain.
"""


class Increment(NamedTuple):
    """The rows whose offsets are at or beyond `since` and below `watermark`, which is the next one's `since`.

    `rows` reads one snapshot: it gives the same rows however often it is computed.
    """

    rows: DataFrame
    watermark: Watermark
    since: Watermark

    @property
    def is_empty(self) -> bool:
        """Whether nothing was committed between the two, known without reading."""
        return not any(self.since.ranges(self.watermark))


def read_since(
    spark: SparkSession,
    table: str,
    watermark: Watermark | None = None,
    *,
    until: Watermark | None = None,
    offsets_max: int | None = None,
    skip_gone: bool = False,
) -> Increment:
    """What was committed to a topic's table after `watermark` (None: from the beginning of the table).

    Only files that may hold such rows are opened. It ends at the table's current end, at `until`, or
    `offsets_max` offsets of each partition beyond the watermark, whichever comes first. `skip_gone`: rows
    that left the table unread are passed over. Raises UnknownTable, OtherTopic, NotSoFar and RowsGone.
    """
    found = topic_table(spark, table)
    return increment(spark, found, watermark, until, offsets_max, skip_gone)


def increment(
    spark: SparkSession,
    found: TopicTable,
    watermark: Watermark | None,
    until: Watermark | None,
    offsets_max: int | None,
    skip_gone: bool,
) -> Increment:
    """`read_since` of a table that was looked at."""
    since = watermark or Watermark(found.end.topic_id)
    since.check(found.table, found.topic, found.end)
    end = found.end
    if until is not None:
        until.check(found.table, found.topic, end)
        end = until
    if offsets_max is not None:
        if offsets_max < 1:
            raise JobError(f"offsets_max={offsets_max}: give 1 or more, or None for all")
        end = end.limited(since, offsets_max)
    if since.offsets and not skip_gone:  # who begins takes what there is
        _check_all_there(spark, found, since)
    end = end.raised(since.offsets)
    version = "" if found.snapshot_id is None else f" VERSION AS OF {found.snapshot_id}"
    rows = spark.sql(f"SELECT * FROM {found.table}{version}").where(between(since, end))
    return Increment(rows, end, since)


def stream(spark: SparkSession, table: str, watermark: Watermark | None = None) -> DataFrame:
    """A topic's table as a stream of its rows, each once, from `watermark` on (None: every row).

    A query goes on exactly where its checkpoint stands, for as long as the table keeps its history
    (`floe.table.history.ms`, 24 h). One without a checkpoint that is given the watermark of what was read
    before goes on exactly as well: rows below it are left out. Raises UnknownTable, OtherTopic, NotSoFar and
    RowsGone.
    """
    found = topic_table(spark, table)
    if watermark is not None:
        watermark.check(table, found.topic, found.end)
        _check_all_there(spark, found, watermark)
    # Rows leave a topic's table with the topic's own only (floe.table.retention=follow): nothing is taken
    # back.
    source = spark.readStream.format("iceberg").option("streaming-skip-delete-snapshots", "true")
    rows = source.load(table)
    return rows if watermark is None else rows.where(beyond(watermark))


def between(since: Watermark, until: Watermark) -> str:
    """The condition on `kafka.partition` and `kafka.offset`, in SQL, that Iceberg compares with files'
    bounds.
    """
    ranges = list(since.ranges(until))
    if not ranges:
        return "false"
    size = -(-len(ranges) // TERMS_MAX)
    groups = [ranges[at : at + size] for at in range(0, len(ranges), size)]
    bounds = " OR ".join(
        f"(kafka.partition >= {group[0][0]} AND kafka.partition <= {group[-1][0]} "
        f"AND kafka.offset >= {min(start for _, start, _ in group)} "
        f"AND kafka.offset < {max(end for _, _, end in group)})"
        for group in groups
    )
    if size == 1:
        return bounds
    starts = _array([since.at(partition) for partition in range(len(until.offsets))])
    return (
        f"({bounds}) AND kafka.offset >= get({starts}, kafka.partition) "
        f"AND kafka.offset < get({_array(list(until.offsets))}, kafka.partition)"
    )


def beyond(since: Watermark) -> str:
    """The condition for all rows at or beyond a watermark, in SQL."""
    if not since.offsets:
        return "true"
    return (
        f"kafka.partition >= {len(since.offsets)} OR "
        f"kafka.offset >= get({_array(list(since.offsets))}, kafka.partition)"
    )


def _array(offsets: list[int]) -> str:
    return f"array({', '.join(f'{each}L' for each in offsets)})"


def _check_all_there(spark: SparkSession, found: TopicTable, since: Watermark) -> None:
    """Raises RowsGone when a kept snapshot took rows out of which `since` had not read all."""
    doubtful = [p for p, below in enumerate(found.removed_below) if below > since.at(p)]
    if not doubtful:
        return
    # A file leaves when all of it is below the log start: the one that the watermark stands in may still be
    # there.
    rows = spark.sql(
        f"SELECT kafka.partition AS p, min(kafka.offset) AS low FROM {found.table} "
        f"WHERE kafka.partition IN ({', '.join(map(str, doubtful))}) GROUP BY 1"
    ).collect()
    lows = {row["p"]: row["low"] for row in rows}
    for partition in doubtful:
        low = lows.get(partition, found.end.at(partition))
        if low > since.at(partition):
            raise RowsGone(
                f"watermark {since}: rows of partition {partition} of table {found.table} between offset "
                f"{since.at(partition)} and {low} left it with the topic's retention before they were read: "
                "go on without them with skip_gone=True; floe.table.retention=keep keeps rows from now on"
            )
