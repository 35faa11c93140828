"""Format version 3 with Spark: ids of rows stay through each compaction; users' own v3 tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from coordination.commands import CommitTable
from coordination.state.types import Done
from iceberg import ledger, manifest_avro, manifests, metadata
from iceberg.head import Head
from iceberg.spark.shelf import shelf
from iceberg.spark.tables import pinned
from iceberg.spark.verdict import FILE
from tests.spark.catalogs import attach
from tests.spark.test_compaction import EAGER, files, selected
from tests.spark.test_rewrites import commits, rewrite
from tests.spark.test_streams import Streams
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.row_ids import Witness
from tests.unit.iceberg.test_tables_row_ids import V3

pytestmark = pytest.mark.services
IDS = "_row_id, _last_updated_sequence_number"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent that merges each four files."""
    async with rigs.running(tmp_path, EAGER) as found:
        yield found


def ids(spark: SparkSession) -> dict[tuple[int, int], tuple[int, int]]:
    """By partition and offset a row's id and by which commit it came; no id is there twice."""
    rows = spark.sql(f"SELECT kafka.partition, kafka.offset, {IDS} FROM lake.floe.t").collect()
    found = {(row[0], row[1]): (row[2], row[3]) for row in rows}
    assert len({each[0] for each in found.values()}) == len(rows) == len(found)
    return found


def audit(spark: SparkSession, rows: int) -> list[str]:
    """What the audit finds of what the table says of itself, with so many rows in each partition."""
    found = shelf(spark, pinned(spark, "t", "lake.floe.t"), {("t", 0): rows, ("t", 1): rows})
    return [str(each) for each in found]


async def test_each_row_keeps_its_id_whoever_writes_it_into_another_file(
    rig: Rig, spark: SparkSession, tmp_path: Path
) -> None:
    await rig.create_topic(partitions=2, **V3)
    committer = rig.committer()
    await commits(rig, committer, 4)
    async with serving.served(serving.catalog_of(rig)) as url:
        streams = Streams(spark, tmp_path, url)
        assert len(await asyncio.to_thread(streams.run, "a")) == 16
        known, rows = await asyncio.to_thread(ids, spark), await asyncio.to_thread(selected, spark)
        assert {each for each, _ in known.values()} == {*range(16)}
        assert sorted(each for _, each in known.values()) == [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4
        assert await committer.compact(), "by Floe"
        assert (await asyncio.to_thread(files, spark), await asyncio.to_thread(ids, spark)) == (2, known)

        await commits(rig, committer, 3)
        grown = await asyncio.to_thread(ids, spark)
        assert known.items() <= grown.items()
        await asyncio.to_thread(rewrite, spark, "kafka.partition = 0")
        assert (await asyncio.to_thread(files, spark), await asyncio.to_thread(ids, spark)) == (5, grown)
        await asyncio.to_thread(spark.sql, "CALL lake.system.rewrite_manifests('floe.t')")
        assert await asyncio.to_thread(ids, spark) == grown
        committer = rig.committer()
        await commits(rig, committer, 1)
        assert await committer.compact(), "by Floe, of what Spark has made, too"
        last = await asyncio.to_thread(ids, spark)
        assert grown.items() <= last.items()
        assert (await asyncio.to_thread(selected, spark))[:4] == rows[:4]
        assert len(await asyncio.to_thread(streams.run, "a", on=True)) == 32, "a stream goes on"
        assert await asyncio.to_thread(audit, spark, 16) == []
    witness = Witness()
    await witness.look(rig)
    assert {place: (each.row_id, each.sequence) for place, each in witness.ids.items()} == last


async def test_nobody_else_changes_its_rows_or_its_version(rig: Rig, spark: SparkSession) -> None:
    await rig.create_topic(partitions=2, **V3)
    await commits(rig, rig.committer(), 1)
    async with serving.served(serving.catalog_of(rig)) as url:
        attach(spark, "lake", url)
        for statement in (
            "DELETE FROM lake.floe.t WHERE kafka.offset = 1",
            "UPDATE lake.floe.t SET key = null",
        ):
            with pytest.raises(Exception, match="written by Floe alone"):
                await asyncio.to_thread(spark.sql, statement)
        with pytest.raises(Exception, match=r"config floe\.table\.format-version says"):
            await asyncio.to_thread(
                spark.sql, "ALTER TABLE lake.floe.t SET TBLPROPERTIES ('format-version' = '4')"
            )


@pytest.mark.thorough
async def test_the_audit_finds_rows_that_share_an_id(rig: Rig, spark: SparkSession) -> None:
    await rig.create_topic(partitions=2, **V3)
    await commits(rig, rig.committer(), 2)
    head = await rig.head()
    async with serving.served(serving.catalog_of(rig)) as url:
        attach(spark, "lake", url)
        assert await asyncio.to_thread(audit, spark, 4) == []
        one, other = head.manifests[:2]
        other[len(other) - 1] = manifest_avro.manifest_first_row_id(one)
        await point(rig, head)
        found = await asyncio.to_thread(
            lambda: shelf(spark, pinned(spark, "t", "lake.floe.t"), {("t", 0): 4, ("t", 1): 4})
        )
        assert {each.kind for each in found} == {FILE}
        assert [each.detail for each in found] == [f"2 rows have the _row_id {at}" for at in (4, 5, 6, 7)]
        other[len(other) - 1] = 100
        await point(rig, head)
        found = await asyncio.to_thread(
            lambda: shelf(spark, pinned(spark, "t", "lake.floe.t"), {("t", 0): 4, ("t", 1): 4})
        )
        assert [each.detail for each in found][:1] == [
            "_row_id is 100 and _last_updated_sequence_number 1, the table is at 8 and 2"
        ]


async def point(rig: Rig, head: Head) -> None:
    """Let the table's current snapshot have the manifests of `head`, whatever they say now."""
    current: Any = ledger.current_snapshot(head.metadata)
    number, parent, sequence = (
        current[each] for each in ("snapshot-id", "parent-snapshot-id", "sequence-number")
    )
    prefix = f"{head.metadata['location']}/metadata/damaged-{rig.parts.clock.random_bits(32)}"
    made = manifests.write_list(f"{prefix}.avro", number, parent, sequence, head.manifests, 0)
    await rig.store.put(rig.warehouse.key(made.location), [made.content])
    snapshots = [
        {**each, "manifest-list": made.location} if each["snapshot-id"] == number else each
        for each in head.metadata["snapshots"]
    ]
    location = f"{prefix}.metadata.json"
    content = metadata.encode({**head.metadata, "snapshots": snapshots})
    await rig.store.put(rig.warehouse.key(location), [content])
    before = (await rig.head()).location
    message = CommitTable(namespace="floe", name="t", expected=before, metadata_location=location)
    assert isinstance(await rig.replica.propose(message), Done)


async def test_users_make_v3_tables_and_upgrade_theirs(rig: Rig, spark: SparkSession) -> None:
    await rig.create_topic()
    await rig.drain(rig.committer())

    def story() -> None:
        spark.sql("CREATE NAMESPACE lake.own")
        spark.sql(
            "CREATE TABLE lake.own.a (x int) USING iceberg TBLPROPERTIES ('format-version' = '3', "
            "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')"
        )
        spark.sql("CREATE TABLE lake.own.b (x int) USING iceberg")
        for table in ("a", "b"):
            spark.sql(f"INSERT INTO lake.own.{table} VALUES (1), (2), (3)")
        spark.sql("ALTER TABLE lake.own.b SET TBLPROPERTIES ('format-version' = '3')")
        for table in ("a", "b"):
            spark.sql(f"INSERT INTO lake.own.{table} VALUES (4)")
            spark.sql(f"DELETE FROM lake.own.{table} WHERE x = 2")
            spark.sql(f"UPDATE lake.own.{table} SET x = 30 WHERE x = 3")
            spark.sql(f"CALL lake.system.rewrite_data_files(table => 'own.{table}')")
            rows = spark.sql(f"SELECT x, {IDS} FROM lake.own.{table} ORDER BY x").collect()
            assert [row["x"] for row in rows] == [1, 4, 30]
            numbers = [row["_row_id"] for row in rows]
            assert len({*numbers}) == 3
            assert None not in numbers
        deleted = spark.sql("SELECT * FROM lake.own.a.all_delete_files").collect()
        assert {row["file_format"] for row in deleted} == {"PUFFIN"}, "deletion vectors"
        with pytest.raises(Exception, match="Cannot downgrade"):
            spark.sql("ALTER TABLE lake.own.a SET TBLPROPERTIES ('format-version' = '2')")

    async with serving.served(serving.catalog_of(rig)) as url:
        attach(spark, "lake", url)
        await asyncio.to_thread(story)
