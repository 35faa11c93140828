"""What audits have found before, in a table of the users' own: where the next one may begin.

`lake.audits.offsets` has one row per audit and partition, with the snapshot of the table that was looked at.
It is a table like any other, in Floe's catalog and not of a topic; who deletes it makes the next audit a
whole one. The summary of each audit's snapshot has its outcome, of which agents make metrics.

`lake.audits.files_seen` has what the last equal audit of each topic saw of the table's files (seen.py). It is
written first: what is in it counts only where it goes with that audit's offsets and snapshot, and is whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from iceberg.audited import FINDINGS, OFFSETS, TABLE, TOPIC_ID
from iceberg.spark import seen
from iceberg.spark.procedures import Table
from iceberg.spark.session import CATALOG
from iceberg.spark.steady import local_rows, steady

NAMESPACE = f"{CATALOG}.{TABLE[0]}"
NAME, FILES = TABLE[1], "files_seen"
SNAPSHOT = "snapshot_id"
KEPT_DAYS, FILES_MAX, SNAPSHOTS_MAX = 30, 100, 100
"""What tidying leaves: days of rows, files that are few enough to stay as they are, and snapshots."""
_GIVEN = (
    "topic string, topic_id string, partition int, from_offset long, next_offset long, "
    "equal boolean, findings long, snapshot_id long"
)
_OF_FILES = "topic_id string, form int, snapshot_id long, upto long, files long"
"""Form, the table's snapshot, below which offset of the partition, and how many rows an audit kept."""
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


def files_seen(spark: SparkSession, topic_id: str, of: Last, namespace: str = NAMESPACE) -> DataFrame | None:
    """What the audit `of` which these offsets and snapshot are saw of files; None where nobody knows.

    None also of what another version kept, of what goes with another audit, and where some of it is gone.
    """
    table = f"{namespace}.{FILES}"
    if of.snapshot is None or not spark.catalog.tableExists(table):
        return None
    if not {*seen.COLUMNS, "form", SNAPSHOT, "upto", "files"} <= {*spark.table(table).columns}:
        return None
    snapshot = F.col(SNAPSHOT).cast("string") == str(of.snapshot)  # a number would be in generated code
    same = (F.col("topic_id") == topic_id) & (F.col("form") == seen.FORM) & snapshot
    own = spark.table(table).where(same).cache()
    other = F.count_if(~F.col("upto").eqNullSafe(seen.at(of.offsets, F.col("partition"))))
    (row,) = own.agg(F.count(F.lit(1)), F.min("files"), F.max("files"), other).collect()
    count, least, most, others = row
    return own.select(*seen.COLUMNS) if count == least == most and not others else None


def _keep_files(
    spark: SparkSession,
    topic_id: str,
    facts: DataFrame,
    ends: Mapping[int, int],
    snapshot: int,
    namespace: str,
) -> None:
    """Write down what an equal audit saw of a topic's files, in place of what the one before it saw.

    `facts`: see seen.facts. `ends`: by partition the offset below which it compared.
    """
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    table = f"{namespace}.{FILES}"
    columns = f"{_OF_FILES}, {seen.FACTS}"
    parts = f"PARTITIONED BY (topic_id) TBLPROPERTIES ({_PROPERTIES})"
    if spark.catalog.tableExists(table) and spark.table(table).columns != _names(columns):
        spark.sql(f"DROP TABLE {table}")  # made by another version, which cannot be added to
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING iceberg {parts}")
    facts = facts.cache()
    named = {
        "topic_id": F.lit(topic_id),
        "form": F.lit(seen.FORM),
        SNAPSHOT: steady(snapshot, F.col("path")),
        "upto": seen.at(ends, F.col("partition")),
        "files": steady(facts.count(), F.col("path")),
    }
    rows = facts.select(
        *(named[each].alias(each) if each in named else F.col(each) for each in _names(columns))
    )
    rows.coalesce(1).writeTo(table).overwrite(F.col("topic_id") == topic_id)


def _names(columns: str) -> list[str]:
    return [each.split()[0] for each in columns.split(", ")]


def keep(
    spark: SparkSession,
    topic: str,
    topic_id: str,
    compared: Mapping[int, tuple[int, int]],
    findings: int,
    snapshot: int | None = None,
    files: DataFrame | None = None,
    namespace: str = NAMESPACE,
) -> None:
    """Write down what an audit found and compared: by partition the first offset and that behind the last.

    `snapshot`: of the table, whose files were looked at. `files`: what was seen of them (seen.facts), which
    is kept where nothing was found.
    """
    if files is not None and snapshot is not None and not findings:
        upto = {partition: end for partition, (_, end) in compared.items()}
        _keep_files(spark, topic_id, files, upto, snapshot, namespace)
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
    found = local_rows(spark, rows, _GIVEN).withColumn("audited_at", F.current_timestamp())
    ends = ",".join(f"{partition}:{end}" for partition, (_, end) in sorted(compared.items()))
    outcome = {TOPIC_ID: topic_id, FINDINGS: str(findings), OFFSETS: ends}
    writer = found.coalesce(1).writeTo(table)
    writer.options(**{f"snapshot-property.{name}": value for name, value in outcome.items()}).append()


def tidy(spark: SparkSession, namespace: str = NAMESPACE) -> None:
    """Make what many audits leave few: rows in one file, without those that nobody asks for; few snapshots.

    Rows stay for KEPT_DAYS, and of each topic's partitions the newest and the newest equal one for ever;
    snapshots: the newest SNAPSHOTS_MAX, and of each topic that with its newest outcome and its newest equal
    one. Raises what Spark does when another audit is kept meanwhile; then nothing is lost.
    """
    for name in (NAME, FILES):
        if spark.catalog.tableExists(f"{namespace}.{name}"):
            if name == NAME:
                _fewer_rows(spark, f"{namespace}.{name}")
            _fewer_snapshots(spark, namespace, name)


def _fewer_rows(spark: SparkSession, table: str) -> None:
    files = spark.table(f"{table}.files").count()
    if files <= FILES_MAX or SNAPSHOT not in spark.table(table).columns:
        return
    (read,) = spark.sql(f"SELECT snapshot_id FROM {table}.refs WHERE name = 'main'").collect()
    of = Window.partitionBy("topic_id", "partition")
    newest = F.max("audited_at").over(of)
    equal = F.max(F.when(F.col("equal"), F.col("audited_at"))).over(of)
    young = F.col("audited_at") >= F.current_timestamp() - F.expr(f"INTERVAL {KEPT_DAYS} DAYS")
    at = F.col("audited_at")
    kept = spark.table(table).withColumn("_kept", young | (at == newest) | at.eqNullSafe(equal))
    writer = kept.where("_kept").drop("_kept").coalesce(1).writeTo(table)
    since = {"isolation-level": "serializable", "validate-from-snapshot-id": str(read[0])}
    writer.options(**since).overwrite(F.lit(True))


def _fewer_snapshots(spark: SparkSession, namespace: str, name: str) -> None:
    catalog, _, space = namespace.partition(".")
    table = Table(f"{space}.{name}", catalog, f"{namespace}.{name}", None)
    rows = spark.sql(
        f"SELECT snapshot_id, summary FROM {table.sql}.snapshots ORDER BY committed_at"
    ).collect()
    kept = {row["snapshot_id"] for row in rows[-SNAPSHOTS_MAX:]}
    newest: dict[tuple[str, bool], int] = {}
    for row in rows:
        topic_id, findings = (row["summary"].get(each) for each in (TOPIC_ID, FINDINGS))
        if topic_id is not None:
            newest[topic_id, findings == "0"] = row["snapshot_id"]
    gone = [row["snapshot_id"] for row in rows if row["snapshot_id"] not in kept | {*newest.values()}]
    if gone:
        spark.sql(table.call("expire_snapshots", snapshot_ids=f"array({', '.join(map(str, gone))})"))
