"""Spark over what a table says of its rows: changelog views by its identifier, files left out by bounds."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg import column_metrics
from iceberg.column_metrics import ColumnMetrics, of_file
from iceberg.committer import CommitterOptions
from iceberg.small_files import FileSizes
from iceberg.spark.shelf import shelf
from iceberg.spark.tables import pinned
from schema.descriptors import load
from tests.spark.test_streams import Streams
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_tables_retention import move
from tests.unit.schema import samples

pytestmark = pytest.mark.services

POINTS = b"""
syntax = "proto3";
package p;
message Inner { optional double real = 1; string text = 2; }
message Point {
  int64 user = 1; string page = 2; Inner inner = 3; bytes token = 4; map<string, int32> by = 5;
}
"""
FILES = 12


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent that merges each four files."""
    eager = CommitterOptions(files=FileSizes(merged_at=4, busy_percent_max=100))
    async with rigs.running(tmp_path, eager) as found:
        yield found


def changes(spark: SparkSession, more: str = "") -> Counter[tuple[int, int, str]]:
    """What a changelog view of the table says: how often each row came or went."""
    spark.sql(
        f"CALL lake.system.create_changelog_view(table => 'floe.t', changelog_view => 'seen'{more})"
    ).collect()
    found = spark.sql("SELECT kafka.partition AS p, kafka.offset AS o, _change_type AS c FROM seen").collect()
    return Counter((row["p"], row["o"], row["c"]) for row in found)


def identifiers(spark: SparkSession) -> set[str]:
    """By which columns Iceberg's own code takes a row to be known."""
    jvm: Any = spark._jvm
    spark._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)
    found = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, "lake.floe.t")
    return set(found.schema().identifierFieldNames())


async def test_changelog_views_have_each_row_once_and_tell_which_went(
    rig: Rig, spark: SparkSession, tmp_path: Path
) -> None:
    await rig.create_topic(partitions=2, floe__table__retention="follow")
    committer = rig.committer()
    for number in range(4):
        for partition in (0, 1):
            await rig.produce([b"%d" % number, None], partition=partition)
        await rig.drain(committer)
    every = Counter((partition, offset, "INSERT") for partition in (0, 1) for offset in range(8))
    async with serving.served(serving.catalog_of(rig)) as url:
        Streams(spark, tmp_path, url)
        assert await asyncio.to_thread(identifiers, spark) == {"kafka.partition", "kafka.offset"}
        assert await committer.compact() is not None
        assert await asyncio.to_thread(changes, spark) == every
        assert await asyncio.to_thread(changes, spark, ", net_changes => true") == every
        await move(rig, 8)
        assert await committer.follow() == 8
        gone = Counter((0, offset, "DELETE") for offset in range(8))
        assert await asyncio.to_thread(changes, spark) == every + gone


def point(number: int, row: int) -> bytes:
    """A message whose columns tell of the file that it is in; each third file has a NaN and a null."""
    kind = load(samples.descriptor_set(POINTS), "p.Point").message_class
    text = "ü" * 15 + chr(0x10FFFF) * 3 + str(row)
    made: Any = kind(
        user=number * 10 + row, page=f"page-{number:03}-of-many", token=b"\xff" * 20, by={"a": 1}
    )
    made.inner.text = text
    if row or number % 3:
        made.inner.real = math.nan if row and number % 3 == 0 else -0.0 if row == 1 else number
    return bytes(made.SerializeToString())


QUESTIONS = (
    "value.user = 71",
    "value.user > 105",
    "value.page = 'page-007-of-many'",
    "value.inner.real > 5",
    "value.inner.real = 5.0",  # not 0.0: Spark's reader finds no -0.0 by it
    "value.inner.real < 0.5",
    "isnan(value.inner.real)",
    "value.inner.real IS NULL",
    "value.inner.text > 'üüüüüüüüüüüüüüü'",
    "value.token >= X'FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF'",
    "value.__err__ IS NOT NULL",
    "key.__raw__ = X'6B31'",
)


def answers(spark: SparkSession) -> dict[str, tuple[int, int]]:
    """Rows that each question finds, and rows that it finds where no file can be left out."""
    found = {}
    rows = spark.createDataFrame(spark.table("lake.floe.t").collect(), spark.table("lake.floe.t").schema)
    rows.createOrReplaceTempView("plain")
    for question in QUESTIONS:
        counts = [
            spark.sql(f"SELECT count(*) AS n FROM {table} WHERE {question}").collect()[0]["n"]
            for table in ("lake.floe.t", "plain")
        ]
        found[question] = (counts[0], counts[1])
    return found


def wrong_metrics(*of: Any) -> dict[int, ColumnMetrics]:
    """What a manifest must not say: bounds beside the values, nulls and no NaN where it is not so."""
    return {
        number: each._replace(nulls=each.nulls + 1, lower=each.upper and each.upper + b"~", nans=0)
        if each.upper is not None and len(each.upper) > 8
        else each._replace(upper=each.lower)
        for number, each in of_file(*of).items()
    }


def audited(spark: SparkSession, end: int, partitions: int = 1) -> list[str]:
    """What the audit of the table by itself finds."""
    ends = {("t", partition): end for partition in range(partitions)}
    return [str(each) for each in shelf(spark, pinned(spark, "t", "lake.floe.t"), ends)]


async def assert_sound(spark: SparkSession, end: int) -> None:
    """Each question finds what it should find, and the audit has nothing to tell."""
    for question, (seen, due) in (await asyncio.to_thread(answers, spark)).items():
        assert seen == due > 0, question
    assert await asyncio.to_thread(audited, spark, end) == []


@pytest.mark.thorough
async def test_files_are_left_out_by_bounds_and_no_row_with_them(
    rig: Rig, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.create_topic(partitions=1)
    await rig.bind(POINTS, "p.Point")
    committer = rig.committer()
    for number in range(FILES):
        await rig.produce([point(number, row) for row in range(3)])
        await rig.drain(committer)
    await rig.produce([b"\xff", None])
    await rig.drain(committer)
    async with serving.served(serving.catalog_of(rig)) as url:
        Streams(spark, tmp_path, url)
        spark.conf.set("spark.sql.iceberg.aggregate-push-down.enabled", "false")
        await assert_sound(spark, 3 * FILES + 2)
        assert await committer.compact() is not None
        await assert_sound(spark, 3 * FILES + 2)

        monkeypatch.setattr(column_metrics, "of_file", wrong_metrics)
        await rig.produce([point(FILES, row) for row in range(3)])
        await rig.drain(committer)
        (told,) = await asyncio.to_thread(audited, spark, 3 * FILES + 5)
    assert "3 rows lie outside the manifest's bounds of value.page" in told
    assert "2 rows lie outside the manifest's bounds of value.user" in told
    assert "the manifest says 1 nulls of value.page, there are 0" in told
