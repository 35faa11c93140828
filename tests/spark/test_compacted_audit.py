"""The audit finds nothing wrong with what compaction and folding leave, at any stage of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg import history
from iceberg.small_files import FileSizes
from iceberg.spark.shelf import shelf
from iceberg.spark.tables import pinned
from iceberg.spark.verdict import Finding
from tests.spark.catalogs import attach
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.keeping_little import fold_early, small
from tests.unit.iceberg.rig import Rig

ROUNDS, COMMITS = 4, 12


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    """A cluster of one agent whose tables keep little and are compacted often."""
    fold_early(monkeypatch)
    async with rigs.running(tmp_path) as found:
        found.options = replace(small(), files=FileSizes(merged_at=4, busy_percent_max=100))
        yield found


def judged(spark: SparkSession, ends: int) -> list[Finding]:
    """What the audit says of the table itself."""
    return shelf(spark, pinned(spark, "t", "lake.floe.t"), {("t", 0): ends, ("t", 1): ends})


def rows(spark: SparkSession, table: str) -> list[tuple[int, int, str]]:
    """Place and value of every row."""
    found = spark.sql(f"SELECT kafka.partition, kafka.offset, string(value.__raw__) FROM {table}").collect()
    return sorted(tuple(each) for each in found)


async def test_what_compaction_and_folding_leave_is_sound(
    rig: Rig, spark: SparkSession, tmp_path: Path
) -> None:
    await rig.create_topic(partitions=2)
    committer = rig.committer()
    async with serving.served(serving.catalog_of(rig)) as url:
        attach(spark, "lake", url)
        for number in range(1, ROUNDS + 1):
            for at in range(COMMITS):
                await rig.produce([b"%d" % at], partition=0)
                await rig.produce([b"%d" % at], partition=1)
                await rig.drain(committer)
                if at % 2:
                    await committer.compact()
            if number == 1:
                before = await asyncio.to_thread(rows, spark, "lake.floe.t")
                await asyncio.to_thread(spark.sql, "ALTER TABLE lake.floe.t CREATE TAG early RETAIN 30 DAYS")
            found = await asyncio.to_thread(judged, spark, number * COMMITS)
            assert [str(each) for each in found] == []
        assert await asyncio.to_thread(rows, spark, "lake.floe.t VERSION AS OF 'early'") == before
        metadata = (await rig.head()).metadata
        base = next(
            each for each in metadata["snapshots"] if each["snapshot-id"] == history.of(metadata).base
        )
        assert history.REPLACED in base["summary"], "else no compaction was folded"
