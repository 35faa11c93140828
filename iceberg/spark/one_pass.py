"""All that an audit asks of a table's rows, in one pass over them: by file and partition.

The look at sums (glance.py), what a file holds beside its manifest (shelf.py) and what manifests say of
columns (bounds.py) each read the rows; of large records that is most of what an audit of new ones costs.
Here their counts stand side by side, and each takes its own of them. Of topics to which nothing was ever
bound: rows of others are decoded in Python, which costs more than to read them. Rows that were compared
before and lie in other files now would be read with their values, of which nothing is asked: where there are
many, each reads for itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.spark import bounds, glance
from iceberg.spark.given import AuditInput
from iceberg.spark.seen import LOOKED_AT, at, of_topic
from iceberg.spark.shelf import Shelved, held
from iceberg.spark.steady import apart
from iceberg.spark.tables import WRONG, XXHASH, Pinned, unbound_columns

COMPARED_PER_MOVED = 2
"""Records that are compared for each row that was moved. To read a row's value and hash it costs about what
reading its place twice more does.
"""


def may_be_one(given: AuditInput, of: Pinned, highs: Mapping[tuple[str, int], int]) -> bool:
    """Whether one pass does: for a look at sums, of a topic without bindings, and of no old digests."""
    if of.snapshot is None or given.digest is not XXHASH or any(given.covered.values()):
        return False
    return not given.schemas[of.topic].schemas and glance.may_glance(given, highs)


def is_worth_it(on: Shelved, given: AuditInput) -> bool:
    """Whether few of the rows that have to be read were compared before."""
    moved = sum(each.rows for each in on.went)
    return moved * COMPARED_PER_MOVED <= given.records


def one_pass(
    spark: SparkSession,
    of: Pinned,
    shelved: Shelved,
    given: AuditInput,
    highs: Mapping[tuple[str, int], int],
) -> DataFrame:
    """By `path` and `partition` of the rows that are compared and those of files that are looked at: what is
    `held` and `counted` there, and of those that are compared the fields of a look (glance.Sums).

    It is cached: who asks first has it read.
    """
    columns, parts = shelved.columns, shelved.parts
    wanted = shelved.read | given.rows(of.topic)
    rows = spark.sql(f"SELECT _file, * FROM {of.rows}").where(wanted & apart(F.col("_file")))
    named = rows.select(
        F.col("_file").alias("path"),
        "kafka",
        *unbound_columns(of, given.digest),
        *bounds.values(columns, parts),
    )
    if columns or parts:
        named = bounds.beside(named, F.col("path"), shelved.told.where(LOOKED_AT), columns, parts)
    looks = glance.looked_at(given, highs, F.col(WRONG).isNull())
    due = _compared(of_topic(of.topic, given.since)).alias("compared")
    counted = bounds.counts(columns, parts) if columns or parts else []
    return (
        named.select("*", *looks, due)
        .groupBy("path", "partition")
        .agg(*held(shelved, of_topic(of.topic, given.ends)), *glance.sums(F.col("compared")), *counted)
        .cache()
    )


def _compared(since: Mapping[int, int]) -> Column:
    """Whether a row is compared, as tables.beyond says it, without numbers in generated code."""
    partition, offset = F.col("partition"), F.col("offset")
    beyond = offset >= at(since, partition)
    return partition.isNull() | offset.isNull() | (offset < F.lit(0)) | beyond
