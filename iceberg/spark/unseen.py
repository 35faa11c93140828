"""Iceberg's metadata tables over some of a table's snapshots, so that lists of others are not read.

`all_manifests` and `all_entries` read the list of every kept snapshot, of which there may be 17,000, each
time they are asked. What a snapshot's list and manifests say never changes.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from pyspark.sql import DataFrame, SparkSession

ALL_ENTRIES, ALL_MANIFESTS = "ALL_ENTRIES", "ALL_MANIFESTS"


def of_snapshots(spark: SparkSession, table: str, numbers: Collection[int]) -> dict[str, DataFrame]:
    """`all_entries` and `all_manifests` of the table, of these snapshots and its present one."""
    jvm: Any = spark._jvm  # as Iceberg's own actions do it
    iceberg = jvm.org.apache.iceberg
    found = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
    told: dict[str, Any] = json.loads(iceberg.TableMetadataParser.toJson(found.operations().current()))
    kept = {*numbers, told["current-snapshot-id"]}
    told["snapshots"] = [each for each in told["snapshots"] if each["snapshot-id"] in kept]
    told["refs"] = {name: each for name, each in told["refs"].items() if each["snapshot-id"] in kept}
    told |= {"snapshot-log": [], "statistics": [], "partition-statistics": []}
    metadata = iceberg.TableMetadataParser.fromJson(json.dumps(told))
    fewer = iceberg.BaseTable(iceberg.StaticTableOperations(metadata, found.io()), table)
    load = iceberg.spark.SparkTableUtil.loadMetadataTable
    return {
        name: DataFrame(load(spark._jsparkSession, fewer, iceberg.MetadataTableType.valueOf(name)), spark)
        for name in (ALL_ENTRIES, ALL_MANIFESTS)
    }
