"""Maintenance by Spark over a whole catalog: fewer files, the same rows; deaths, conflicts, sick tables."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from deploy.setup.java import java_home
from iceberg.audited import FINDINGS, TOPIC_ID
from iceberg.catalog import Answer, Catalog
from iceberg.committer import CommitterOptions
from iceberg.rest_access import Access
from iceberg.small_files import FileSizes
from iceberg.spark import exactly_once, procedures, watermark_of
from iceberg.spark.maintenance import Outcome, Upkeep, maintain
from iceberg.spark.shelf import shelf
from iceberg.spark.tables import pinned
from tests.spark.catalogs import attach
from tests.spark.flights_lake import quick
from tests.spark.lake import files
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_tables_partitions import VIEWS, Writing, partition
from tests.unit.iceberg.test_tables_sorted import BY_TIME

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]

EAGER = CommitterOptions(files=FileSizes(merged_at=4, busy_percent_max=100))
ALL = Upkeep(files_min=2, manifests_min=2)
TOPICS = ("t", "plain", "sorted", "sick")
OWN = "lake.own.counts"
DAY_S = 86_400


class Meddled(Catalog):
    """The catalog, which does something else first when a table is committed to next."""

    meddle: Callable[[], Awaitable[object]] | None = None

    async def handle(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes,
        access: Access | None = None,
        delegation: str = "",
    ) -> Answer:
        """As a catalog does."""
        meddle, commits = self.meddle, method == "POST" and path.endswith("/tables/plain")
        if commits and meddle is not None:
            self.meddle = None
            await meddle()
        return await super().handle(method, path, query, body, access, delegation)


class Lake:
    """Four topics' tables of many small files: by columns under two specs, plain, sorted otherwise than by
    offset, and one that lacks a file.
    """

    def __init__(self, rig: Rig, catalog: Meddled, spark: SparkSession, url: str) -> None:
        self.rig = rig
        self.catalog = catalog
        self.spark = spark
        self.url = url

    async def fill(self) -> None:
        await self.rig.create_topic(floe__table__partition="value.deep.seen")
        await self.rig.bind(VIEWS, "p.View")
        writing = Writing(self.rig, self.rig.committer())
        await writing.commits(3)
        await partition(self.rig, "bucket(2, value.user)")
        writing.committer = self.rig.committer()
        await writing.commits(3)
        for topic, commits, sort in (("plain", 9, ""), ("sorted", 9, BY_TIME), ("sick", 2, "")):
            await self.rig.create_topic(topic, floe__table__sort=sort)
            for number in range(commits):
                await self.commit(topic, number)

    async def commit(self, topic: str, number: int) -> None:
        """Three rows in each of two partitions, one in those of `sick`."""
        for at in (0, 1):
            values = [b"%d" % number] if topic == "sick" else [b"%d" % number, None, b""]
            await self.rig.produce(values, partition=at, topic=topic)
        await self.rig.drain(self.rig.committer(topic))

    async def compact(self) -> None:
        """Floe's own turn at `plain`."""
        committer = self.rig.committer("plain")
        await self.rig.drain(committer)
        assert await committer.compact() is not None

    def sums(self) -> dict[str, tuple[int, int]]:
        """Count of rows, and a sum over all columns of all rows, of the tables that can be read."""
        found = {}
        for topic in ("t", "plain", "sorted"):
            rows = self.spark.sql(
                f"SELECT count(*), bit_xor(xxhash64(struct(*))) FROM lake.floe.{topic}"
            ).collect()
            found[topic] = rows[0][0], rows[0][1]
        return found

    def count(self, topic: str) -> int:
        """Data files."""
        return len(files(self.spark, f"lake.floe.{topic}"))

    def assert_sound(self, topic: str, *ends: int) -> None:
        """Manifests, ledger and snapshots are what they say."""
        given = {(topic, at): end for at, end in enumerate(ends)}
        found = shelf(self.spark, pinned(self.spark, topic, f"lake.floe.{topic}"), given)
        assert [str(each) for each in found] == []


@pytest.fixture
async def lake(tmp_path: Path, spark: SparkSession) -> AsyncIterator[Lake]:
    """The tables, as catalog `lake` of the session."""
    quick(spark)
    async with rigs.running(tmp_path, EAGER) as rig:
        catalog = Meddled(serving.catalog_of(rig)._parts)
        async with serving.served(catalog) as url:
            attach(spark, "lake", url)
            found = Lake(rig, catalog, spark, url)
            await found.fill()
            yield found


def by_topic(outcomes: list[Outcome]) -> dict[str | None, Outcome]:
    return {each.topic: each for each in outcomes}


def dry(lake: Lake) -> None:
    """It says what it would do, and does nothing."""
    counts = {topic: lake.count(topic) for topic in TOPICS}
    told = by_topic(maintain(lake.spark, Upkeep(files_min=2, dry_run=True), "lake"))
    assert {topic: each.planned_files for topic, each in told.items()} == counts
    assert told["plain"].planned_commits == 2
    assert sum(each.commits + each.files + each.manifests_rewritten for each in told.values()) == 0
    assert {topic: lake.count(topic) for topic in TOPICS} == counts
    few = Upkeep(["plain"], files_min=2, bytes_max=told["plain"].planned_bytes // 2, dry_run=True)
    (plain,) = maintain(lake.spark, few, "lake")
    assert plain.left_bytes < plain.planned_bytes
    assert plain.left_files >= 4


def killed(lake: Lake) -> None:
    """A driver of its own and its JVM die between two commits."""
    before, count = lake.sums(), lake.count("plain")
    words = [sys.executable, "-m", "tests.spark.maintenance_driver", lake.url, "plain", "2"]
    own = {**os.environ, "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(words, env=own, capture_output=True, text=True, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr[-3000:]
    assert lake.count("plain") == count - 8, "one partition's nine files are one"
    assert lake.sums() == before
    lake.assert_sound("plain", 27, 27)


def in_order(lake: Lake) -> None:
    """A sorted table's rows stand as it says, in files that do not lie across each other."""
    before = lake.sums()
    largest = max(each.stat().st_size for each in files(lake.spark, "lake.floe.sorted"))
    (told,) = maintain(lake.spark, Upkeep(["sorted"], target_bytes=4 * largest, files_min=2), "lake")
    assert (told.errors, told.commits, told.files, told.files_made) == ([], 4, 16, 4)
    (table,) = procedures.tables(lake.spark, "lake", lambda name: name == "floe.sorted", lambda topic: False)
    there = procedures.topic_files(lake.spark, table)
    assert [(each.partition, each.first, each.last) for each in there] == [
        (at, *ends) for at in (0, 1) for ends in ((0, 11), (12, 23), (24, 26))
    ]
    for path in files(lake.spark, "lake.floe.sorted"):
        times = [row["timestamp"] for row in pq.read_table(path).column("kafka").to_pylist()]
        assert times == sorted(times, reverse=True)
    assert lake.sums() == before
    lake.assert_sound("sorted", 27, 27)


def whole(lake: Lake) -> None:
    """All tables; the sick one is told, and then nothing is left to do."""
    before = lake.sums()
    gone = sorted(files(lake.spark, "lake.floe.sick"))[0]
    gone.unlink()
    told = by_topic(maintain(lake.spark, ALL, "lake"))
    assert gone.name in told["sick"].errors[0]
    assert "\n" not in told["sick"].errors[0]
    assert told["sick"].files == 2, "its other partition is sound"
    plain = told["plain"]
    assert (plain.planned_files, plain.moved) == (9, 1), "Floe had merged them before Spark's commit"
    assert (plain.commits, plain.files) == (0, 0), "and nothing was left to do"
    for topic in ("t", "plain", "sorted"):
        assert told[topic].errors == []
    assert lake.sums() == before
    lake.assert_sound("t", 72, 72)
    lake.assert_sound("plain", 27, 27)
    assert lake.count("plain") == 2
    specs = lake.spark.sql("SELECT DISTINCT spec_id FROM lake.floe.t.files").collect()
    assert len(specs) == 2, "files stay under their specs"
    assert lake.count("t") == 2 * (3 + 2 + 1), "of each value one; null stands under the second as well"
    again = by_topic(maintain(lake.spark, Upkeep(["t", "plain", "sorted"], files_min=2), "lake"))
    assert sum(each.planned_files + each.commits for each in again.values()) == 0


@pytest.mark.thorough
async def test_maintenance_keeps_every_row_whatever_dies_moves_or_is_sick(lake: Lake) -> None:
    await asyncio.to_thread(dry, lake)
    await asyncio.to_thread(killed, lake)
    await asyncio.to_thread(in_order, lake)
    lake.catalog.meddle = lake.compact
    await asyncio.to_thread(whole, lake)
    await lake.commit("plain", 9)
    assert (await asyncio.to_thread(lake.sums))["plain"][0] == 60, "Floe goes on"
    await asyncio.to_thread(lake.assert_sound, "plain", 30, 30)


def filled(spark: SparkSession, before: Callable[[int], None]) -> None:
    """A job's target of eight files, and an audit's note; afterwards somebody else commits to it."""
    spark.sql(f"CREATE TABLE {OWN} (partition INT, offset BIGINT) USING iceberg")

    def job(rows: DataFrame, target: str) -> None:
        rows.selectExpr("kafka.partition", "kafka.offset").repartition(4).writeTo(target).append()

    for number in range(2):
        before(number)
        assert exactly_once(spark, "lake.floe.plain", OWN, job) is not None
    others = spark.table(OWN).limit(1)
    noted = {f"snapshot-property.{TOPIC_ID}": "0" * 32, f"snapshot-property.{FINDINGS}": "1"}
    others.writeTo(OWN).options(**noted).append()
    others.writeTo(OWN).append()


def own(lake: Lake, before: Callable[[int], None]) -> None:
    """Files, snapshots and orphans of a table of one's own, when it is named."""
    spark = lake.spark
    spark.sql("CREATE NAMESPACE lake.own")
    filled(spark, before)
    due, mark = spark.table(OWN).count(), watermark_of(spark, "lake.floe.plain", OWN)
    count, folder = len(files(spark, OWN)), sorted(files(spark, OWN))[0].parent
    for name, days in (("old.parquet", 9), ("new.parquet", 0)):
        path = folder / name
        path.write_bytes(b"half a file")
        then = path.stat().st_mtime - days * DAY_S
        os.utime(path, (then, then))
    assert [each.table for each in maintain(spark, Upkeep(dry_run=True), "lake") if not each.topic] == []
    care = {"tables": ["own.*"], "files_min": 2, "expire_hours": 0, "orphan_hours": 24}
    (told,) = maintain(spark, Upkeep(**care, dry_run=True), "lake")  # type: ignore[arg-type]  # by name
    assert (told.planned_files, told.orphans, told.expired) == (count, 1, 0)
    assert (folder / "old.parquet").exists()
    snapshots = spark.table(f"{OWN}.snapshots").count()
    (told,) = maintain(spark, Upkeep(**care), "lake")  # type: ignore[arg-type]  # by name
    assert told.errors == []
    assert (told.files, told.files_made, told.orphans) == (count, 1, 1)
    assert told.expired > 0
    assert sorted(
        path.name for path in folder.glob("*.parquet") if path.name in ("old.parquet", "new.parquet")
    ) == ["new.parquet"]
    assert spark.table(OWN).count() == due
    assert spark.table(f"{OWN}.snapshots").count() < snapshots
    assert watermark_of(spark, "lake.floe.plain", OWN) == mark, "the newest run's snapshot is kept"
    kept = spark.sql(
        f"SELECT count(*) FROM {OWN}.snapshots WHERE summary['{TOPIC_ID}'] IS NOT NULL"
    ).collect()
    assert kept[0][0] == 1, "and the newest audit's"


async def test_tables_of_ones_own_keep_rows_and_what_jobs_and_audits_noted(lake: Lake) -> None:
    loop = asyncio.get_running_loop()

    def before(number: int) -> None:
        asyncio.run_coroutine_threadsafe(lake.commit("plain", 5 + number), loop).result()

    await asyncio.to_thread(own, lake, before)
