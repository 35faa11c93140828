"""Spark over tables that are partitioned and sorted: the same rows with and without a filter,
rewrites, and the audit.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg import ledger, partitioning, writer
from tests.spark.test_changelog import audited
from tests.spark.test_rewrites import rewrite
from tests.spark.test_streams import Streams
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_tables_partitions import (
    EAGER,
    FIRST,
    SECOND,
    VIEWS,
    Writing,
    configure,
    partition,
)
from tests.unit.iceberg.test_tables_sorted import BY_PAGE, disordered

pytestmark = pytest.mark.services

QUESTIONS = (
    "value.user = 3",
    "value.user IN (1, 5)",
    "value.page = 'ab'",
    "value.page IS NULL",
    "value.page >= 'b'",
    "value.page LIKE 'a%'",
    "value.deep.seen",
    "NOT value.deep.seen",
    "value.deep.seen IS NULL",
    "kafka.timestamp < timestamp '2023-11-15 00:00:00'",
)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent that merges each four files."""
    async with rigs.running(tmp_path, EAGER) as found:
        yield found


def answers(spark: SparkSession) -> dict[str, tuple[int, int]]:
    """Rows that each question finds in the table, and in its rows where no file can be left out."""
    table = spark.table("lake.floe.t")
    plain = spark.createDataFrame(table.collect(), table.schema).cache()
    return {each: (table.where(each).count(), plain.where(each).count()) for each in QUESTIONS}


def files_by_order(spark: SparkSession) -> dict[int | None, int]:
    """How many files name which sort order, by Iceberg's own metadata table."""
    rows = spark.table("lake.floe.t.files").groupBy("sort_order_id").count().collect()
    return {row["sort_order_id"]: row["count"] for row in rows}


async def own_disordered(rig: Rig) -> list[str]:
    """Floe's own files that are not sorted as they say; Spark has no checksum in names, and says nothing."""
    own = re.compile(r"\.c[0-9a-f]{16}\.parquet")
    return [each for each in await disordered(rig) if own.search(each)]


async def assert_sound(spark: SparkSession, writing: Writing) -> None:
    """Each question finds what it should find, and the audit of the table by itself has nothing to tell."""
    for question, (seen, due) in (await asyncio.to_thread(answers, spark)).items():
        assert seen == due > 0, question
    assert await asyncio.to_thread(audited, spark, len(writing.expected[0]), 2) == []


@pytest.mark.thorough
async def test_spark_finds_each_row_under_every_spec_and_the_audit_what_is_misplaced(
    rig: Rig, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.create_topic(floe__table__partition=f"{FIRST}, {SECOND}", floe__table__sort=BY_PAGE)
    await rig.bind(VIEWS, "p.View")
    writing = Writing(rig, rig.committer())
    await writing.commits(3)
    async with serving.served(serving.catalog_of(rig)) as url:
        streams = Streams(spark, tmp_path, url)
        assert len(await asyncio.to_thread(streams.run, "a")) == 2 * len(writing.expected[0])
        await assert_sound(spark, writing)
        assert (await asyncio.to_thread(files_by_order, spark)).keys() == {1}
        await asyncio.to_thread(rewrite, spark, "kafka.partition = 1 AND value.deep.seen", by="")
        left = await asyncio.to_thread(files_by_order, spark)
        assert left.keys() == {None, 1}, "Spark sorts as the table says; nobody looked whether it did"
        await asyncio.to_thread(spark.sql, "CALL lake.system.rewrite_manifests('floe.t')")
        assert any(ledger.BY in each["summary"] for each in (await rig.head()).metadata["snapshots"])
        writing.committer = rig.committer()
        await partition(rig, f"{SECOND}, bucket(8, value.page), hour(kafka.timestamp)")
        await configure(rig, "floe.table.sort", "value.user desc nulls-last")
        await writing.commits(4)
        await assert_sound(spark, writing)
        assert await writing.committer.compact() is not None
        assert 2 in await asyncio.to_thread(files_by_order, spark)
        assert await own_disordered(rig) == []
        await assert_sound(spark, writing)
        assert len(await asyncio.to_thread(streams.run, "a", on=True)) == 2 * len(writing.expected[0])
        with pytest.raises(Exception, match="partitioned otherwise"):
            await asyncio.to_thread(rewrite, spark, "kafka.partition = 1")

        def misplaced(*of: Any) -> Any:
            """All rows under the values of the first."""
            yield next(partitioning.split(*of))[0], of[0]

        monkeypatch.setattr(writer, "split", misplaced)
        await writing.commits(1)
        told = await asyncio.to_thread(audited, spark, len(writing.expected[0]), 2)
    assert len(told) == 2
    assert all(
        "rows do not belong under the file's value of partition field value_page_bucket_8" in each
        for each in told
    )
