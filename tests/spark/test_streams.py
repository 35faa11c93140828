"""Spark Structured Streaming over a table: a new stream reads every row, a paused one goes on exactly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from iceberg import history
from iceberg.committer import Committer, CommitterOptions
from iceberg.metadata import Retention
from tests.spark.catalogs import attach
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


class Streams:
    """Queries over the table, each with its checkpoint and what it wrote."""

    def __init__(self, spark: SparkSession, folder: Path, url: str, catalog: str = "lake") -> None:
        attach(spark, catalog, url)
        self._spark = spark
        self._folder = folder
        self._table = f"{catalog}.floe.t"

    def run(self, name: str, *, on: bool = False, files: int = 1000) -> list[int]:
        """Let the stream read what there is; the offsets of all rows that it has ever written, in order.

        Spark plans what there is from the stream's first snapshot on, or (`on`) from where it stands.
        """
        out = str(self._folder / name)
        source = (
            self._spark.readStream.format("iceberg")
            .option("streaming-max-files-per-micro-batch", files)
            .load(self._table)
        )
        writer = (
            source.selectExpr("kafka.offset AS o")
            .writeStream.format("parquet")
            .option("checkpointLocation", f"{out}-checkpoint")
        )
        if on:
            query = writer.start(out)
            query.processAllAvailable()
            query.stop()
        else:
            writer.trigger(availableNow=True).start(out).awaitTermination()
        return sorted(row["o"] for row in self._spark.read.parquet(out).collect())

    def rows(self) -> int:
        """Rows of the table, as a query counts them."""
        count: int = self._spark.read.table(self._table).count()
        return count

    def between(self, start: int, end: int) -> list[int]:
        """Offsets of the rows that were added after one snapshot up to another."""
        frame = self._spark.read.format("iceberg").option("start-snapshot-id", start)
        found = frame.option("end-snapshot-id", end).load(self._table).selectExpr("kafka.offset AS o")
        return sorted(row["o"] for row in found.collect())


async def commits(rig: Rig, committer: Committer, count: int) -> int:
    """So many commits of one record each; the snapshot of the last."""
    for number in range(count):
        await rig.produce([b"%d" % number])
        await rig.drain(committer)
    assert committer.head is not None
    current: int = committer.head.metadata["current-snapshot-id"]
    return current


async def test_streams_over_more_commits_than_a_metadata_file_names(
    rig: Rig, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.create_topic(partitions=1)
    committer = rig.committer()
    async with serving.served(serving.catalog_of(rig)) as url:
        streams = Streams(spark, tmp_path, url)
        first = await commits(rig, committer, 60)
        assert await asyncio.to_thread(streams.run, "a") == list(range(60)), "a new stream"
        second = await commits(rig, committer, 70)
        assert await asyncio.to_thread(streams.run, "a") == list(range(130)), "one that stood for 70 commits"
        assert await asyncio.to_thread(streams.between, first, second) == list(range(60, 130))

        monkeypatch.setattr(history, "FOLD_MIN", 16)
        retention = Retention(snapshots=8, history_max=40)
        rig.options = CommitterOptions(manifests_merged_at=10, retention=retention)
        await commits(rig, rig.committer(), 10)
        assert await asyncio.to_thread(streams.run, "a") == list(range(140)), "after a fold of older ones"
        assert await asyncio.to_thread(streams.run, "b", files=50) == list(range(140)), "new, after a fold"
        await commits(rig, rig.committer(), 70)
        head = (await rig.head()).metadata
        assert history.of(head).count + len(head["snapshots"]) < 120, "else nothing was folded"
        assert await asyncio.to_thread(streams.run, "c") == list(range(210))

    location = f"{head['location']}/{history.of(head).segments[0].name}"
    whole = await rig.store.get(rig.warehouse.key(location))
    await rig.store.put(rig.warehouse.key(location), [b"x" + whole[1:]])
    await commits(rig, rig.committer(), 5)
    async with serving.served(serving.catalog_of(rig)) as url:  # by another agent
        streams = Streams(spark, tmp_path, url, "other")
        assert await asyncio.to_thread(streams.run, "c", on=True) == list(range(215)), "behind the damage"
        for name in "cd":
            with pytest.raises(StreamingQueryException, match="Cannot process overwrite snapshot"):
                await asyncio.to_thread(streams.run, name)
        assert await asyncio.to_thread(streams.rows) == 215, "a query of the rows"
        await rig.store.put(rig.warehouse.key(location), [whole])
        assert await asyncio.to_thread(streams.run, "c") == list(range(215)), (
            "the same ones, after the repair"
        )
        assert await asyncio.to_thread(streams.run, "d") == list(range(215))
