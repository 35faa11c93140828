"""Spark over a table whose small files were made large: the same rows; streams miss and double none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg.committer import Committer, CommitterOptions
from iceberg.small_files import FileSizes
from tests.spark.test_streams import Streams
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_tables_bindings import NEW, OLD, bound, encoded

EAGER = CommitterOptions(files=FileSizes(merged_at=4, busy_percent_max=100))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent that merges each four files."""
    async with rigs.running(tmp_path, EAGER) as found:
        yield found


def selected(spark: SparkSession, snapshot: int | None = None) -> list[str]:
    """Every column of every row, of a snapshot of the past or of now."""
    when = "" if snapshot is None else f" VERSION AS OF {snapshot}"
    query = f"SELECT * FROM lake.floe.t{when} ORDER BY kafka.partition, kafka.offset"
    return [repr(row) for row in spark.sql(query).collect()]


def files(spark: SparkSession) -> int:
    """How many files Spark finds."""
    return int(spark.sql("SELECT count(*) FROM lake.floe.t.files").collect()[0][0])


async def commits(rig: Rig, committer: Committer, start: int, count: int) -> None:
    """So many commits of one row."""
    for number in range(start, start + count):
        await rig.produce([encoded(NEW, x=number, price=number / 2)])
        await rig.drain(committer)


async def test_rows_and_streams_are_the_same_across_compactions(
    rig: Rig, spark: SparkSession, tmp_path: Path
) -> None:
    await rig.create_topic(partitions=1)
    committer = rig.committer()
    await bound(rig, OLD)
    await rig.produce([encoded(OLD, x=-4, name="old"), None])
    await rig.drain(committer)
    await bound(rig, NEW)
    await commits(rig, committer, 2, 5)
    async with serving.served(serving.catalog_of(rig)) as url:
        streams = Streams(spark, tmp_path, url)
        assert await asyncio.to_thread(streams.run, "a") == [*range(7)]
        before = await asyncio.to_thread(selected, spark)
        assert committer.head is not None
        then: int = committer.head.metadata["current-snapshot-id"]
        assert await committer.compact()
        assert await asyncio.to_thread(files, spark) == 1
        assert await asyncio.to_thread(selected, spark) == before
        assert await asyncio.to_thread(selected, spark, then) == before, "a reader of before"
        assert await asyncio.to_thread(streams.run, "a") == [*range(7)], "at a compaction"
        for start in (7, 12):
            await commits(rig, committer, start, 5)
            assert await committer.compact()
        await commits(rig, committer, 17, 1)
        assert await asyncio.to_thread(streams.run, "a", on=True) == [*range(18)], "over compactions"
        assert await asyncio.to_thread(streams.run, "b", files=2) == [*range(18)], "a new stream"
        assert len(await asyncio.to_thread(selected, spark)) == 18
        assert await asyncio.to_thread(files, spark) < 8
