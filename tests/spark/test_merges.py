"""The idempotent sink: one row per key however often and in whatever order rows come."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from iceberg.spark import MissingColumns, UnknownTable, merge_into
from tests.spark.lake import away, files, places

COLUMNS = "topic STRING, partition INT, offset BIGINT, `a b` STRING"


def test_records_written_again_are_there_once_and_files_of_others_are_not_opened(spark: SparkSession) -> None:
    def rows(first: int, end: int) -> DataFrame:
        return spark.range(first, end).selectExpr(
            "'t' AS topic", "0 AS partition", "id AS offset", "string(id) AS `a b`", "1 AS ignored"
        )

    target = "local.db.t"
    spark.sql(f"CREATE TABLE {target} ({COLUMNS}) USING iceberg")
    merge_into(rows(0, 10), target)
    with away(files(spark, target)):
        merge_into(rows(10, 15), target)
    merge_into(rows(8, 20).union(rows(9, 12)), target)
    assert places(spark, target) == [(0, offset) for offset in range(20)]
    before = spark.table(f"{target}.snapshots").count()
    merge_into(rows(3, 3), target)
    assert spark.table(f"{target}.snapshots").count() == before, "without rows there is nothing to commit"


def test_the_newest_row_of_a_key_wins_also_when_older_ones_come_late(spark: SparkSession) -> None:
    target = "local.db.users"
    columns = "id BIGINT, at INT, partition INT, offset INT, name STRING"
    spark.sql(f"CREATE TABLE {target} ({columns}) USING iceberg")

    def merge(*values: tuple[int, int | None, int, str]) -> dict[int, str]:
        rows = spark.createDataFrame(list(values), "id BIGINT, at INT, offset INT, name STRING")
        rows = rows.selectExpr("*", "0 AS partition")
        merge_into(rows, target, key=("id",), newest_by=("at", "offset"))
        return {row["id"]: row["name"] for row in spark.table(target).collect()}

    assert merge((1, 5, 1, "a"), (1, 5, 2, "b"), (1, 4, 3, "late"), (2, None, 9, "x")) == {1: "b", 2: "x"}
    assert merge((1, 5, 0, "late again"), (2, 0, 0, "y"), (3, 1, 1, "z")) == {1: "b", 2: "y", 3: "z"}
    assert merge((1, 6, 0, "c"), (2, None, 10, "late")) == {1: "c", 2: "y", 3: "z"}
    assert spark.table(target).count() == 3

    other = "local.db.times"  # keys without bounds: a timestamp, and a number of another type
    spark.sql(f"CREATE TABLE {other} (at TIMESTAMP, number INT) USING iceberg")
    rows = spark.sql("SELECT TIMESTAMP '2026-10-25 01:30:00' AS at, explode(array(9L, 10L)) AS number")
    for _ in range(2):
        merge_into(rows, other, key=("at", "number"))
    assert sorted(row["number"] for row in spark.table(other).collect()) == [9, 10]


def test_a_sink_that_cannot_be_keyed_is_told_why(spark: SparkSession) -> None:
    target = "local.db.t"
    rows = spark.sql("SELECT 't' AS topic, 0 AS partition, CAST(NULL AS BIGINT) AS offset")
    with pytest.raises(UnknownTable, match=r"'local\.db\.t' does not exist"):
        merge_into(rows, target)
    spark.sql(f"CREATE TABLE {target} ({COLUMNS}) USING iceberg")
    with pytest.raises(MissingColumns, match=r"the rows for local\.db\.t lack its column 'a b'"):
        merge_into(rows, target)
    rows = rows.selectExpr("*", "'' AS `a b`")
    with pytest.raises(MissingColumns, match=r"1 rows for local\.db\.t have null in key column 'offset'"):
        merge_into(rows, target)
    with pytest.raises(MissingColumns, match=r"target local\.db\.t has no column 'id'"):
        merge_into(rows, target, key=("id",))
    with pytest.raises(MissingColumns, match=r"target local\.db\.t has no column 'at'"):
        merge_into(rows, target, newest_by=("at",))
    with pytest.raises(MissingColumns, match="it is empty"):
        merge_into(rows, target, key=())
    assert spark.table(target).count() == 0
