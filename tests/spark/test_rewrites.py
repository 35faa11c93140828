"""Spark rewrites a topic's table: the same rows are taken over, anything else is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg import ledger
from iceberg.committer import Committer
from iceberg.spark.shelf import shelf
from iceberg.spark.tables import pinned
from tests.spark.test_compaction import files, selected
from tests.spark.test_streams import Streams
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig

pytestmark = pytest.mark.services


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


async def commits(rig: Rig, committer: Committer, count: int) -> None:
    """So many commits of two rows in each of two partitions."""
    for number in range(count):
        for partition in (0, 1):
            await rig.produce([b"%d" % number, None], partition=partition)
        await rig.drain(committer)


def rewrite(spark: SparkSession, where: str = "", by: str = "kafka.offset") -> None:
    """Small files become large ones, by Spark, sorted `by` these columns; empty: as the table says."""
    order = f"sort_order => '{by}', " if by else ""
    only = f", where => '{where}'" if where else ""
    spark.sql(
        "CALL lake.system.rewrite_data_files(table => 'floe.t', strategy => 'sort', "
        f"{order}options => map('min-input-files', '2'){only})"
    ).collect()


async def test_spark_rewrites_files_and_manifests_and_nothing_else(
    rig: Rig, spark: SparkSession, tmp_path: Path
) -> None:
    await rig.create_topic(partitions=2)
    committer = rig.committer()
    await commits(rig, committer, 4)
    async with serving.served(serving.catalog_of(rig)) as url:
        streams = Streams(spark, tmp_path, url)
        assert len(await asyncio.to_thread(streams.run, "a")) == 16
        before = await asyncio.to_thread(selected, spark)
        with pytest.raises(Exception, match="holds more than one partition"):
            await asyncio.to_thread(rewrite, spark)
        assert await asyncio.to_thread(files, spark) == 8

        await asyncio.to_thread(rewrite, spark, "kafka.partition = 0")
        assert await asyncio.to_thread(files, spark) == 5
        assert await asyncio.to_thread(selected, spark) == before
        await commits(rig, rig.committer(), 2)
        await asyncio.to_thread(spark.sql, "CALL lake.system.rewrite_manifests('floe.t')")
        await commits(rig, rig.committer(), 1)
        assert len(await asyncio.to_thread(selected, spark)) == 28
        assert len(await asyncio.to_thread(streams.run, "a", on=True)) == 28, "a stream goes on across them"
        assert len(await asyncio.to_thread(streams.run, "b")) == 28
        ends = {("t", 0): 14, ("t", 1): 14}
        found = await asyncio.to_thread(lambda: shelf(spark, pinned(spark, "t", "lake.floe.t"), ends))
        assert [str(each) for each in found] == []
        for statement in (
            "DELETE FROM lake.floe.t WHERE kafka.offset = 1",
            "INSERT INTO lake.floe.t SELECT * FROM lake.floe.t",
        ):
            with pytest.raises(Exception, match="written by Floe alone"):
                await asyncio.to_thread(spark.sql, statement)
        await asyncio.to_thread(spark.sql, "ALTER TABLE lake.floe.t CREATE BRANCH trial")
        with pytest.raises(Exception, match="written by Floe alone"):
            await asyncio.to_thread(
                spark.sql, "INSERT INTO lake.floe.t.branch_trial SELECT * FROM lake.floe.t"
            )
        await asyncio.to_thread(spark.sql, "ALTER TABLE lake.floe.t DROP BRANCH trial")
    head = await rig.head()
    by = [each for each in head.metadata["snapshots"] if ledger.BY in each["summary"]]
    assert {each["summary"]["operation"] for each in by} == {"replace"}
