"""Iceberg's own Java client changes two tables by one commit of the catalog."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake import lake
from tests.unit.iceberg.rig import Rig

pytestmark = pytest.mark.services
TABLES = ("a", "b")


class Client:
    """Iceberg's RESTCatalog in the session's JVM, beside the one that SQL goes through."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        iceberg = self._jvm.org.apache.iceberg
        catalog = iceberg.rest.RESTCatalog()
        catalog.setConf(spark.sparkContext._jsc.hadoopConfiguration())
        settings = {
            "uri": spark.conf.get("spark.sql.catalog.lake.uri"),
            "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        }
        catalog.initialize("java", self._jvm.java.util.HashMap(settings))
        self._catalog, self._iceberg = catalog, iceberg

    def appended(self, *names: str) -> Any:
        """Two rows more in each of the tables, as a commit that is not made yet."""
        found = self._jvm.java.util.ArrayList()
        for name in names:
            place = self._iceberg.catalog.TableIdentifier.parse(f"own.{name}")
            table = self._catalog.loadTable(place)
            file = self._iceberg.DataFiles.builder(table.spec()).withRecordCount(2).withFileSizeInBytes(9)
            path = f"{table.location()}/data/nobody-reads-it.parquet"
            change = table.newTransaction()
            change.newAppend().appendFile(file.withPath(path).build()).commit()
            before, after = change.startMetadata(), change.currentMetadata()
            found.add(self._iceberg.catalog.TableCommit.create(place, before, after))
        return found

    def commit(self, changes: Any) -> None:
        """Make it."""
        self._catalog.commitTransaction(changes)

    def rows(self) -> list[str]:
        """How many each table has, as it says."""
        places = (self._iceberg.catalog.TableIdentifier.parse(f"own.{name}") for name in TABLES)
        found = (self._catalog.loadTable(place).currentSnapshot() for place in places)
        return [each.summary()["total-records"] for each in found]


def story(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE lake.own")
    for name in TABLES:
        spark.sql(f"CREATE TABLE lake.own.{name} (id BIGINT) USING iceberg")
    client = Client(spark)
    client.commit(client.appended(*TABLES))
    assert client.rows() == ["2", "2"]
    stale = client.appended(*TABLES)
    client.commit(client.appended("b"))
    with pytest.raises(Exception, match=r"CommitFailedException.*table own\.b: Requirement failed"):
        client.commit(stale)
    assert client.rows() == ["2", "4"], "not the one that was as expected either"


def revisions(rig: Rig) -> list[int]:
    return [rig.replica.state.tables["own", name].revision for name in TABLES]


async def test_two_tables_or_none(spark: SparkSession, tmp_path: Path) -> None:
    async with lake(spark, tmp_path) as rig:
        await asyncio.to_thread(story, spark)
        assert sorted(rig.replica.state.tables) == [("own", name) for name in TABLES]
        assert len(set(revisions(rig))) == 2
