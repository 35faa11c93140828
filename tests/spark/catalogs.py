"""Catalogs that a test gives to a session which runs already."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

_KIND = "org.apache.iceberg.spark.SparkCatalog"


def attach(spark: SparkSession, name: str, uri: str) -> None:
    """A REST catalog as `name`; each query asks for the newest metadata."""
    files = "org.apache.iceberg.hadoop.HadoopFileIO"
    _set(spark, name, {"type": "rest", "uri": uri, "cache-enabled": "false", "io-impl": files})


def keep_below(spark: SparkSession, name: str, folder: Path) -> None:
    """A catalog `name` whose tables lie below a folder, and which nobody serves."""
    _set(spark, name, {"type": "hadoop", "warehouse": f"file://{folder}"})


def _set(spark: SparkSession, name: str, settings: dict[str, str]) -> None:
    spark.conf.set(f"spark.sql.catalog.{name}", _KIND)
    for each, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{each}", value)


def expect_little(spark: SparkSession) -> None:
    """For tables of some rows: one task behind a shuffle, and no plan that is made anew by what came."""
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
