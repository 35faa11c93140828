"""Incremental jobs: rows and watermark are one commit, wherever a run ends and whoever else writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from iceberg.spark import (
    OtherTopic,
    Progress,
    TargetMoved,
    UnknownTable,
    Unmarked,
    Watermark,
    exactly_once,
    jobs,
    read_since,
    watermark_of,
)
from tests.spark.lake import OFFSETS, TOPIC, lake, places
from tests.unit.iceberg.rig import Killed, Rig

TARGET = "lake.own.t"
STEPS = [
    "make the first snapshot",
    "create the branch",
    "write",
    "note the watermark",
    "publish",
    "drop the branch",
]


@pytest.fixture
async def rig(spark: SparkSession, tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent, as catalog `lake` of the session, with a topic and an empty target."""
    async with lake(spark, tmp_path) as found:
        await found.create_topic(partitions=2)
        await asyncio.to_thread(make_target, spark)
        yield found


def make_target(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE lake.own")
    spark.sql(f"CREATE TABLE {TARGET} (partition INT, offset BIGINT, half STRING) USING iceberg")


async def commit(rig: Rig, *partitions: int) -> None:
    """Two records for each of the partitions, in the table."""
    for partition in partitions:
        await rig.produce([b"a", b"b"], partition=partition)
    await rig.drain(rig.committer())


def twice(rows: DataFrame, target: str) -> None:
    """Two commits that are no good one without the other, and none of which may come twice."""
    for half in "ab":
        rows.selectExpr(*OFFSETS, f"'{half}' AS half").writeTo(target).append()


def run(
    spark: SparkSession, job: jobs.Job = twice, *, before: Callable[[str], None] = lambda step: None
) -> Progress | None:
    return exactly_once(spark, TOPIC, TARGET, job, before=before)


def is_exact(spark: SparkSession) -> bool:
    """Whether the target has every row of the topic below its watermark, in two halves, and no other."""
    mark = watermark_of(spark, TOPIC, TARGET)
    offsets = mark.offsets if mark is not None else ()
    due = sorted(2 * [(p, offset) for p, end in enumerate(offsets) for offset in range(end)])
    return places(spark, TARGET) == due


async def test_a_run_that_dies_before_any_step_leaves_rows_and_watermark_together(
    rig: Rig, spark: SparkSession
) -> None:
    await commit(rig, 0, 1)

    def die_everywhere() -> list[str]:
        seen: list[str] = []
        for step in STEPS:

            def before(each: str, last: str = step) -> None:
                if each == last:
                    raise Killed(each)

            with pytest.raises(Killed):
                run(spark, before=before)
            assert is_exact(spark), step
            seen.append(f"{watermark_of(spark, TOPIC, TARGET)}".rpartition(":")[2])
        return seen

    assert await asyncio.to_thread(die_everywhere) == ["None"] * 5 + ["2,2"]
    assert await asyncio.to_thread(run, spark) is None, "nothing is left to do"
    await commit(rig, 1)

    def go_on() -> None:
        seen: list[str] = []
        done = run(spark, before=seen.append)
        assert seen == STEPS[1:]
        assert done is not None
        assert (done.since.offsets, done.watermark.offsets) == ((2, 2), (2, 4))
        assert is_exact(spark)
        branches = [row["name"] for row in spark.table(f"{TARGET}.refs").where("name <> 'main'").collect()]
        assert len(branches) == 4, "of those that died with one"
        spark.sql(f"ALTER TABLE {TARGET} CREATE BRANCH `{jobs.BRANCH}1000_old`")
        assert run(spark) is None
        left = {row["name"] for row in spark.table(f"{TARGET}.refs").collect()}
        assert left == {"main", *branches}, "only what is too old to be published goes"

    await asyncio.to_thread(go_on)


async def test_of_two_runs_at_once_and_of_a_run_beside_another_commit_one_is_refused(
    rig: Rig, spark: SparkSession
) -> None:
    await commit(rig, 0)

    def slow(rows: DataFrame, target: str) -> None:
        twice(rows, target)
        run(spark)  # as another process does at the same time

    def both() -> None:
        with pytest.raises(TargetMoved, match="Nothing of this run is visible"):
            run(spark, slow)
        assert is_exact(spark)

    await asyncio.to_thread(both)
    await commit(rig, 1)

    def astray(rows: DataFrame, target: str) -> None:
        twice(rows, target)
        spark.sql(f"DELETE FROM {TARGET} WHERE half = 'a'")

    def beside() -> None:
        with pytest.raises(TargetMoved, match="another run, engine or maintenance"):
            run(spark, astray)
        assert places(spark, TARGET) == [(0, 0), (0, 1)]
        mark = watermark_of(spark, TOPIC, TARGET)
        assert mark is not None, "what others commit on top does not hide it"
        assert mark.offsets == (2, 0)
        (first,) = spark.sql(
            f"SELECT min_by(snapshot_id, made_current_at) FROM {TARGET}.history WHERE is_current_ancestor"
        ).collect()
        spark.sql(f"CALL lake.system.rollback_to_snapshot('{TARGET}', {first[0]})")
        assert watermark_of(spark, TOPIC, TARGET) is None, "it goes back with the rows"
        run(spark)
        assert is_exact(spark)
        assert len(places(spark, TARGET)) == 8
        assert [row["name"] for row in spark.table(f"{TARGET}.refs").collect()] == ["main"]

    await asyncio.to_thread(beside)


async def test_a_branch_that_was_made_anew_by_others_is_not_published(rig: Rig, spark: SparkSession) -> None:
    await commit(rig, 0)

    def meddle(rows: DataFrame, target: str) -> None:
        spark.sql(f"INSERT INTO {TARGET} VALUES (9, 9, 'z')")
        name = target.rpartition("branch_")[2]
        spark.sql(f"ALTER TABLE {TARGET} CREATE OR REPLACE BRANCH `{name}`")
        twice(rows, target)

    def check() -> None:
        twice(read_since(spark, TOPIC).rows.limit(0), TARGET)  # so that there is a snapshot
        with pytest.raises(TargetMoved, match="It is at"):
            run(spark, meddle)
        assert places(spark, TARGET) == [(9, 9)]

    await asyncio.to_thread(check)


async def test_a_target_whose_watermark_is_not_known_is_not_guessed_at(rig: Rig, spark: SparkSession) -> None:
    await commit(rig, 0)

    def unmarked() -> Watermark:
        with pytest.raises(UnknownTable, match=r"'lake\.own\.nothing' does not exist"):
            exactly_once(spark, TOPIC, "lake.own.nothing", twice)
        spark.sql(f"INSERT INTO {TARGET} VALUES (0, 0, 'a'), (0, 0, 'b')")
        with pytest.raises(Unmarked, match=r"target lake\.own\.t has rows, .* give begin=Watermark"):
            run(spark)
        end = read_since(spark, TOPIC).watermark
        done = exactly_once(spark, TOPIC, TARGET, twice, begin=Watermark(end.topic_id, (1,)))
        assert done is not None
        assert is_exact(spark)
        return end

    old = await asyncio.to_thread(unmarked)
    await rig.delete_topic()
    await rig.create_topic(partitions=1)
    await commit(rig, 0)

    def again() -> None:
        with pytest.raises(OtherTopic, match=f"an earlier topic 't' \\(id {old.topic_id}\\)"):
            run(spark)
        end = read_since(spark, TOPIC).watermark
        assert exactly_once(spark, TOPIC, TARGET, twice, begin=Watermark(end.topic_id)) is not None
        assert run(spark) is None
        assert len(places(spark, TARGET)) == 8

    await asyncio.to_thread(again)
