"""What audits have found before, in a table of the users' own: where the next one may begin.

`lake.audits.offsets` has one row per audit and partition, with the snapshot of the table that was looked at.
It is a table like any other, in Floe's catalog and not of a topic; who deletes it makes the next audit a
whole one. The summary of each audit's snapshot has its outcome, of which agents make metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from iceberg.audited import FINDINGS, OFFSETS, TABLE, TOPIC_ID
from iceberg.spark.session import CATALOG

NAMESPACE = f"{CATALOG}.{TABLE[0]}"
NAME = TABLE[1]
SNAPSHOT = "snapshot_id"
_GIVEN = (
    "topic string, topic_id string, partition int, from_offset long, next_offset long, "
    "equal boolean, findings long, snapshot_id long"
)
_PROPERTIES = (
    "'write.metadata.delete-after-commit.enabled' = 'true', 'write.metadata.previous-versions-max' = '10'"
)


class Last(NamedTuple):
    """What equal audits have looked at: by partition up to which offset, and in the newest one's snapshot."""

    offsets: dict[int, int]
    snapshot: int | None = None


def last(spark: SparkSession, topic_id: str, namespace: str = NAMESPACE) -> Last:
    """Of the equal audits of a topic's life; nothing before there is one."""
    table = f"{namespace}.{NAME}"
    if not spark.catalog.tableExists(table) or SNAPSHOT not in spark.table(table).columns:
        return Last({})
    own = spark.table(table).where((F.col("topic_id") == topic_id) & F.col("equal"))
    found = (
        own.groupBy("partition")
        .agg(
            F.max_by("next_offset", "audited_at").alias("offset"),
            F.max(F.struct("audited_at", SNAPSHOT)).alias("newest"),
        )
        .collect()
    )
    newest = max((row["newest"] for row in found), key=lambda each: each["audited_at"], default=None)
    return Last({row["partition"]: row["offset"] for row in found}, newest and newest[SNAPSHOT])


def keep(
    spark: SparkSession,
    topic: str,
    topic_id: str,
    compared: Mapping[int, tuple[int, int]],
    findings: int,
    snapshot: int | None = None,
    namespace: str = NAMESPACE,
) -> None:
    """Write down what an audit found and compared: by partition the first offset and that behind the last.

    `snapshot`: of the table, whose files were looked at.
    """
    rows = [
        (topic, topic_id, partition, *offsets, not findings, findings, snapshot)
        for partition, offsets in sorted(compared.items())
    ]
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    table = f"{namespace}.{NAME}"
    columns = f"{_GIVEN}, audited_at timestamp"
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING iceberg TBLPROPERTIES ({_PROPERTIES})")
    if SNAPSHOT not in spark.table(table).columns:  # made by an earlier version
        spark.sql(f"ALTER TABLE {table} ADD COLUMN {SNAPSHOT} bigint AFTER findings")
    found = spark.createDataFrame(rows, _GIVEN).withColumn("audited_at", F.current_timestamp())
    ends = ",".join(f"{partition}:{end}" for partition, (_, end) in sorted(compared.items()))
    outcome = {TOPIC_ID: topic_id, FINDINGS: str(findings), OFFSETS: ends}
    writer = found.coalesce(1).writeTo(table)
    writer.options(**{f"snapshot-property.{name}": value for name, value in outcome.items()}).append()
