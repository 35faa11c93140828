"""What a table says of itself against what it holds: manifests, ledger and kept snapshots.

* `file`: a manifest's count and bounds of partition, offset and timestamp are those of the rows in the file.
* `ledger`: the current snapshot's ledger (`floe.next-offsets`) lies behind all rows of its partition, not
  beyond the topic, where its own ranges end, and is of the topic's id.
* `snapshot`: of each kept snapshot: what it says to have added is what its manifests add, inside the ranges
  that it says (`floe.ranges`), which no other snapshot has; its totals are its parent's and what it changed,
  and its manifest list names as many files.

Spark reads all of it from Iceberg's metadata tables; nothing of Floe's own reading of them is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from iceberg.spark.tables import Pinned
from iceberg.spark.verdict import FILE, LEDGER, SNAPSHOT, Finding

TOPIC_ID, NEXT, RANGES = "floe.topic-id", "floe.next-offsets", "floe.ranges"
FOUND_MAX = 1_000
"""Findings of one check of one table that are counted."""

_BOUNDED = {"partition": "kafka.partition", "offset": "kafka.offset", "timestamp": "kafka.timestamp"}


def shelf(spark: SparkSession, of: Pinned, highs: Mapping[tuple[str, int], int]) -> list[Finding]:
    """All that is wrong. `highs`: where the topic's partitions end, asked after the snapshot was chosen."""
    if of.snapshot is None:
        return []
    files = _files(spark, of).localCheckpoint()
    found = _wrong_files(of, files)
    if TOPIC_ID in of.properties:
        held = {
            row["partition"]: row["behind"]
            for row in files.groupBy("partition").agg((F.max("offset_high") + 1).alias("behind")).collect()
        }
        found += [Finding(LEDGER, of.topic, *each) for each in ledger_problems(of, held, highs)]
    totals = files.agg(F.count("path").alias("files"), F.sum("told_rows").alias("rows")).collect()[0]
    found += [
        Finding(SNAPSHOT, of.topic, -1, -1, f"snapshot {of.snapshot} says {name} {told}, it has {actual}")
        for name, actual in (("total-data-files", totals["files"]), ("total-records", totals["rows"] or 0))
        if (told := of.summary.get(name)) is not None and int(told) != actual
    ]
    return found + _snapshots(spark, of)


def _files(spark: SparkSession, of: Pinned) -> DataFrame:
    """One row per data file: what its manifest says (`told_…`), and what is in it."""
    kept = [F.col("file_path").alias("path"), F.col("record_count").alias("told_rows")]
    for name, column in _BOUNDED.items():
        metrics = F.col("readable_metrics")[column]
        kept += [
            metrics["lower_bound"].alias(f"told_{name}_low"),
            metrics["upper_bound"].alias(f"told_{name}_high"),
        ]
    told = spark.sql(f"SELECT * FROM {of.table}.files VERSION AS OF {of.snapshot}").select(*kept)
    rows = spark.sql(f"SELECT _file AS file, kafka FROM {of.rows}")
    ends = [
        how(f"kafka.{name}").alias(f"{name}_{end}")
        for name in _BOUNDED
        for end, how in (("low", F.min), ("high", F.max))
    ]
    held = rows.groupBy("file").agg(F.count(F.lit(1)).alias("rows"), *ends)
    found = told.join(held, F.col("path") == F.col("file"), "left")
    return found.withColumn("partition", F.col("partition_low"))


def _wrong_files(of: Pinned, files: DataFrame) -> list[Finding]:
    rows = F.coalesce("rows", F.lit(0))
    details = [
        F.when(
            F.col("told_rows") != rows,
            F.concat(F.lit("the manifest says "), "told_rows", F.lit(" rows, it has "), rows),
        )
    ]
    for name, column in _BOUNDED.items():
        for end, word in (("low", "lowest"), ("high", "highest")):
            told, actual = F.col(f"told_{name}_{end}"), F.col(f"{name}_{end}")
            says = F.concat(F.lit(f"the manifest says that its {word} {column} is "), told.cast("string"))
            text = F.concat(says, F.lit(", it is "), F.coalesce(actual.cast("string"), F.lit("null")))
            details.append(F.when(told.isNotNull() & ~told.eqNullSafe(actual), text))
    detail = F.concat_ws("; ", *details)
    name = F.element_at(F.split("path", "/"), -1)
    wrong = files.where(detail != "").select(
        name.alias("name"), detail.alias("detail"), "partition", "offset_low"
    )
    return [
        Finding(FILE, of.topic, *_place(row), f"file {row['name']}: {row['detail']}")
        for row in wrong.orderBy("name").limit(FOUND_MAX).collect()
    ]


def _place(row: Any) -> tuple[int, int]:
    low = row["offset_low"]
    return (-1, -1) if row["partition"] is None or low is None else (row["partition"], low)


def ledger_problems(
    of: Pinned, held: Mapping[int | None, int | None], highs: Mapping[tuple[str, int], int]
) -> Iterator[tuple[int, int, str]]:
    """What is wrong with the current ledger: partition, offset, and what.

    `held`: by partition the offset behind the table's last row. `highs`: none where nobody knows them.
    """
    if NEXT not in of.summary:
        yield -1, -1, f"the current snapshot {of.snapshot} has no ledger"
        return
    own, topic_id = of.summary.get(TOPIC_ID), of.properties[TOPIC_ID]
    if own != topic_id:
        yield -1, -1, f"the ledger is of topic {own}, the table of {topic_id}"
    try:
        ledger = dict(enumerate(int(each) for each in of.summary[NEXT].split(",") if each))
        added = [
            (int(partition), int(end))
            for partition, _, end in (
                each.replace(":", "-").split("-") for each in of.summary.get(RANGES, "").split(",") if each
            )
        ]
    except ValueError:
        yield -1, -1, f"the ledger is no list of numbers: {of.summary[NEXT]!r}, {of.summary.get(RANGES)!r}"
        return
    for partition, behind in held.items():
        known = 0 if partition is None else ledger.get(partition, 0)
        if partition is not None and behind is not None and behind > known:
            yield partition, known, f"the ledger says {known:,}, there are rows up to {behind - 1:,}"
    for partition, known in ledger.items() if highs else ():
        high = highs.get((of.topic, partition), 0)
        if known > high:
            yield partition, known, f"the ledger says {known:,}, the partition ends at {high:,}"
    for partition, due in added:
        known = ledger.get(partition, 0)
        if known != due:
            yield partition, known, f"the ledger says {known:,}, what the snapshot added ends at {due:,}"


def _snapshots(spark: SparkSession, of: Pinned) -> list[Finding]:
    """What is wrong with the kept snapshots."""
    kept = spark.sql(f"SELECT * FROM {of.table}.snapshots").localCheckpoint()
    entries = spark.sql(f"SELECT * FROM {of.table}.all_entries").where("status = 1")
    metrics = F.col("readable_metrics")
    added = (
        entries.select(
            "snapshot_id",
            F.col("data_file.file_path").alias("path"),
            F.col("data_file.record_count").alias("rows"),
            metrics["kafka.partition"]["lower_bound"].alias("partition"),
            metrics["kafka.offset"]["lower_bound"].alias("low"),
            metrics["kafka.offset"]["upper_bound"].alias("high"),
        )
        .dropDuplicates(["snapshot_id", "path"])
        .localCheckpoint()
    )
    wrong = [_totals(spark, of, kept, added), _outside(kept, added), _overlapping(kept)]
    told = reduce(DataFrame.unionByName, wrong).orderBy("partition", "offset", "detail").limit(FOUND_MAX)
    return [
        Finding(SNAPSHOT, of.topic, row["partition"], row["offset"], row["detail"]) for row in told.collect()
    ]


def _totals(spark: SparkSession, of: Pinned, kept: DataFrame, added: DataFrame) -> DataFrame:
    """Snapshots whose counts are not those of their parent, their manifests and their list.

    The first one may say what it added and nothing else: older ones were folded into it.
    """
    lists = spark.sql(f"SELECT * FROM {of.table}.all_manifests").where("content = 0")
    named = lists.groupBy(F.col("reference_snapshot_id").alias("listed_id")).agg(
        F.sum(F.col("added_data_files_count") + F.col("existing_data_files_count")).alias("listed")
    )
    adds = added.groupBy(F.col("snapshot_id").alias("adds_id")).agg(
        F.count("path").alias("files"), F.sum("rows").alias("records")
    )
    before = kept.select(F.col("snapshot_id").alias("before_id"), F.col("summary").alias("before"))
    rows = (
        kept.join(named, F.col("snapshot_id") == F.col("listed_id"), "left")
        .join(adds, F.col("snapshot_id") == F.col("adds_id"), "left")
        .join(before, F.col("parent_id") == F.col("before_id"), "left")
    )
    first = F.col("parent_id").isNull()
    details = []
    for what, actual in (("data-files", "files"), ("records", "records")):
        told = _number("summary", f"added-{what}")
        details.append(_differs(f"added-{what}", told, F.coalesce(actual, F.lit(0)), "its manifests add "))
        total = _number("summary", f"total-{what}")
        parent = F.coalesce(_number("before", f"total-{what}"), _number("before", f"added-{what}"))
        changed = F.coalesce(told, F.lit(0)) - F.coalesce(_number("summary", f"deleted-{what}"), F.lit(0))
        due = F.when(first, changed).otherwise(parent + changed)
        details.append(_differs(f"total-{what}", total, due, "with its parent's it is "))
    files = F.coalesce(
        _number("summary", "total-data-files"), F.when(first, _number("summary", "added-data-files"))
    )
    details.append(_differs("data files", files, F.coalesce("listed", F.lit(0)), "its manifest list names "))
    detail = F.concat_ws("; ", *details)
    text = F.concat(F.lit("snapshot "), F.col("snapshot_id").cast("string"), F.lit(": "), detail)
    return _told(rows.where(detail != ""), text)


def _differs(name: str, told: Column, due: Column, words: str) -> Column:
    text = F.concat(F.lit(f"it says {name} "), told.cast("string"), F.lit(f", {words}"), due.cast("string"))
    return F.when(told != due, text)


def _number(summary: str, name: str) -> Column:
    return F.col(summary)[name].cast("long")


def _outside(kept: DataFrame, added: DataFrame) -> DataFrame:
    """Files outside the ranges that their snapshot says to have added."""
    telling = kept.where(F.col("summary")[RANGES].isNotNull()).select("snapshot_id")
    files = added.join(telling, "snapshot_id", "left_semi")
    ranges = _ranges(kept).withColumnRenamed("snapshot_id", "ranges_id").withColumnRenamed("partition", "of")
    inside = (
        (F.col("snapshot_id") == F.col("ranges_id"))
        & (F.col("partition") == F.col("of"))
        & (F.col("low") >= F.col("start"))
        & (F.col("high") < F.col("end"))
    )
    wrong = files.join(ranges, inside, "left_anti").where("low IS NOT NULL")
    offsets = F.concat(F.lit(" has the offsets "), "low", F.lit(" to "), "high")
    name = F.element_at(F.split("path", "/"), -1)
    text = F.concat(
        F.lit("snapshot "), F.col("snapshot_id").cast("string"), F.lit(": its file "), name, offsets,
        F.lit(", outside the ranges that it says to have added"),
    )  # fmt: skip
    return _told(wrong, text, F.col("partition"), F.col("low"))


def _overlapping(kept: DataFrame) -> DataFrame:
    """Ranges that two snapshots say to have added, or that one added behind a later one."""
    order = Window.partitionBy("partition").orderBy("committed_at", "start")
    rows = _ranges(kept).withColumn(
        "before", F.max("end").over(order.rowsBetween(Window.unboundedPreceding, -1))
    )
    text = F.concat(
        F.lit("snapshot "),
        F.col("snapshot_id").cast("string"),
        F.lit(": it says to have added offsets from "),
        F.col("start").cast("string"),
        F.lit(", an earlier one up to "),
        F.col("before").cast("string"),
    )
    return _told(rows.where("start < before"), text, F.col("partition"), F.col("start"))


def _ranges(kept: DataFrame) -> DataFrame:
    each = kept.select(
        "snapshot_id", "committed_at", F.explode(F.split(F.col("summary")[RANGES], ",")).alias("range")
    )
    parts = F.split("range", "[:-]")
    return each.where("range != ''").select(
        "snapshot_id",
        "committed_at",
        parts[0].cast("int").alias("partition"),
        parts[1].cast("long").alias("start"),
        parts[2].cast("long").alias("end"),
    )


def _told(
    wrong: DataFrame, detail: Column, partition: Column | None = None, offset: Column | None = None
) -> DataFrame:
    nowhere = F.lit(-1)
    return wrong.select(
        (nowhere if partition is None else F.coalesce(partition, nowhere)).cast("int").alias("partition"),
        (nowhere if offset is None else F.coalesce(offset, nowhere)).cast("long").alias("offset"),
        detail.alias("detail"),
    )
