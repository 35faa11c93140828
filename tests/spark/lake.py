"""A cluster's tables as catalog `lake` of a Spark session, with tables of users' own beside them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig

TOPIC = "lake.floe.t"
OFFSETS = ("kafka.partition AS partition", "kafka.offset AS offset")

Places = list[tuple[int, int]]


@asynccontextmanager
async def lake(spark: SparkSession, folder: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent whose catalog is served, and known to the session as `lake`; namespace
    `lake.own`.
    """
    async with rigs.running(folder) as rig, serving.served(serving.catalog_of(rig)) as url:
        name_lake(spark, url)
        yield rig


def name_lake(spark: SparkSession, url: str) -> None:
    """Let the session know the catalog at this URL as `lake`."""
    for name, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": url,
        ".cache-enabled": "false",
        ".io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
    }.items():
        spark.conf.set(f"spark.sql.catalog.lake{name}", value)


def places(spark: SparkSession, table: str) -> Places:
    """(partition, offset) of a table of ours, every row, in order."""
    rows = spark.table(table).select("partition", "offset").collect()
    return sorted((row["partition"], row["offset"]) for row in rows)


def files(spark: SparkSession, table: str) -> set[Path]:
    """The data files of a table as it is now."""
    found = spark.sql(f"SELECT file_path FROM {table}.files").collect()
    return {Path(row["file_path"].removeprefix("file:").replace("//", "/")) for row in found}


@contextmanager
def away(paths: set[Path]) -> Iterator[None]:
    """While files are not there: whoever opens one fails."""
    assert paths
    for path in paths:
        os.rename(path, f"{path}.away")
    try:
        yield
    finally:
        for path in paths:
            os.rename(f"{path}.away", path)
