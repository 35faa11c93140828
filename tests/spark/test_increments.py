"""Increments by watermarks: exactly the rows behind them, from new files only; what is wrong is named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from coordination.commands import MoveLogStart
from coordination.state.types import Done
from iceberg.spark import (
    JobError,
    NotSoFar,
    OtherTopic,
    RowsGone,
    UnknownTable,
    Watermark,
    merge_into,
    read_since,
    reading,
    stream,
)
from tests.spark.lake import OFFSETS, TOPIC, Places, away, files, lake, places
from tests.unit.iceberg.rig import Rig


@pytest.fixture
async def rig(spark: SparkSession, tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent, as catalog `lake` of the session."""
    async with lake(spark, tmp_path) as found:
        yield found


def of(rows: DataFrame) -> Places:
    """(partition, offset) of every row of a topic's table, in order."""
    return sorted((row["partition"], row["offset"]) for row in rows.selectExpr(*OFFSETS).collect())


async def commit(rig: Rig, *partitions: int) -> None:
    """Two records for each of the partitions, in the table."""
    for partition in partitions:
        await rig.produce([b"a", b"b"], partition=partition)
    await rig.drain(rig.committer())


async def test_an_increment_is_what_came_after_the_watermark_and_opens_new_files_only(
    rig: Rig, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.create_topic(partitions=3)
    await commit(rig, 0, 1)
    first = await asyncio.to_thread(read_since, spark, TOPIC)
    everything = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert (first.watermark.offsets, first.since.offsets) == ((2, 2, 0), ())
    old = await asyncio.to_thread(files, spark, TOPIC)
    await commit(rig, 1, 2)
    news = [(1, 2), (1, 3), (2, 0), (2, 1)]

    def later() -> None:
        assert of(first.rows) == everything, "it stays what it was"
        with away(old):
            with pytest.raises(Exception, match=r"FAILED_READ_FILE|NotFoundException"):
                spark.table(TOPIC).selectExpr("max(value.__raw__)").collect()
            found = read_since(spark, TOPIC, Watermark.parse(str(first.watermark)))
            assert of(found.rows) == news
        monkeypatch.setattr(reading, "TERMS_MAX", 1)
        assert of(read_since(spark, TOPIC, first.watermark).rows) == news, "as for many partitions"
        monkeypatch.undo()
        assert found.watermark.offsets == (2, 4, 2)
        limited = read_since(spark, TOPIC, first.watermark, offsets_max=1)
        assert (of(limited.rows), limited.watermark.offsets) == ([(1, 2), (2, 0)], (2, 3, 1))
        until = read_since(spark, TOPIC, limited.watermark, until=found.watermark)
        assert of(until.rows) == [(1, 3), (2, 1)]
        back = read_since(spark, TOPIC, found.watermark, until=first.watermark)
        assert (back.is_empty, of(back.rows), back.watermark) == (True, [], found.watermark)

    await asyncio.to_thread(later)


async def test_what_cannot_be_a_watermark_of_the_table_is_refused_by_name(
    rig: Rig, spark: SparkSession
) -> None:
    await rig.create_topic(partitions=1)
    await commit(rig, 0)

    def refused() -> Watermark:
        with pytest.raises(UnknownTable, match=r"'lake\.floe\.nothing' does not exist"):
            read_since(spark, "lake.floe.nothing")
        spark.sql("CREATE NAMESPACE lake.own")
        spark.sql("CREATE TABLE lake.own.t (id INT) USING iceberg")
        with pytest.raises(UnknownTable, match=r"'lake\.own\.t' is no topic's"):
            read_since(spark, "lake.own.t")
        found = read_since(spark, TOPIC).watermark
        with pytest.raises(NotSoFar, match=r"partition 0 of table lake\.floe\.t goes up to offset 2"):
            read_since(spark, TOPIC, Watermark(found.topic_id, (3,)))
        with pytest.raises(JobError, match="offsets_max=0"):
            read_since(spark, TOPIC, offsets_max=0)
        return found

    found = await asyncio.to_thread(refused)
    await rig.delete_topic()
    await rig.create_topic(partitions=1)
    await commit(rig, 0, 0)
    for use in (read_since, stream):
        with pytest.raises(OtherTopic, match="deleted and made again"):
            await asyncio.to_thread(use, spark, TOPIC, found)


async def test_rows_that_left_the_table_unread_are_told(rig: Rig, spark: SparkSession) -> None:
    topic = await rig.create_topic(partitions=1, floe__table__retention="follow")
    committer = rig.committer()
    for _ in range(4):
        await rig.produce([b"a", b"b"])
        await rig.drain(committer)
    topic_id = topic.topic_id.hex()
    assert isinstance(
        await rig.replica.propose(MoveLogStart(partition=[topic.partitions[0].handle], offset=[5])), Done
    )
    assert await committer.follow() == 4

    def check() -> None:
        left = [(0, offset) for offset in range(4, 8)]
        assert of(read_since(spark, TOPIC).rows) == left, "who begins takes what there is"
        assert of(read_since(spark, TOPIC, Watermark(topic_id, (4,))).rows) == left, "its file is still there"
        for use in (read_since, stream):
            with pytest.raises(RowsGone, match=r"partition 0 of table lake\.floe\.t between offset 3 and 4"):
                use(spark, TOPIC, Watermark(topic_id, (3,)))
        assert of(read_since(spark, TOPIC, Watermark(topic_id, (3,)), skip_gone=True).rows) == left

    await asyncio.to_thread(check)


async def test_a_stream_goes_on_by_its_checkpoint_and_without_it_by_a_watermark(
    rig: Rig, spark: SparkSession, tmp_path: Path
) -> None:
    await rig.create_topic(partitions=2)
    target = "lake.own.t"
    batches: list[int] = []

    def write(rows: DataFrame, number: int) -> None:
        batches.append(number)
        placed = rows.selectExpr("'t' AS topic", *OFFSETS)
        merge_into(placed, target)
        merge_into(placed, target)  # as after a crash between the write and the checkpoint

    def run(checkpoint: str, since: Watermark | None = None) -> Places:
        query = stream(spark, TOPIC, since).writeStream.foreachBatch(write)
        query = query.option("checkpointLocation", str(tmp_path / checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()
        return places(spark, target)

    await commit(rig, 0, 1)

    def first() -> Watermark:
        spark.sql("CREATE NAMESPACE lake.own")
        spark.sql(f"CREATE TABLE {target} (topic STRING, partition INT, offset BIGINT) USING iceberg")
        assert run("one") == [(0, 0), (0, 1), (1, 0), (1, 1)]
        return read_since(spark, TOPIC).watermark

    watermark = await asyncio.to_thread(first)
    await commit(rig, 1)
    assert await asyncio.to_thread(run, "one") == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3)]
    await asyncio.to_thread(spark.sql, f"DELETE FROM {target}")
    assert await asyncio.to_thread(run, "two", watermark) == [(1, 2), (1, 3)]
    assert len(batches) == 3
