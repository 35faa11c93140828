"""Whether rows of a table of format version 3 have ids as the specification wants them (Row Lineage).

Each row has `_row_id`, which no other has, below the table's `next-row-id`, and
`_last_updated_sequence_number`, not beyond its snapshot's. As Spark reads them: nothing of Floe's own reading
is used. Rows of files that an earlier audit looked at are not compared with newer ones again.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.spark.tables import Pinned
from iceberg.spark.verdict import FILE, Finding

ROW_ID, SEQUENCE = "_row_id", "_last_updated_sequence_number"
FOUND_MAX = 1_000
"""Rows of each kind that are counted."""


def findings(spark: SparkSession, of: Pinned, read: Column) -> Iterator[Finding]:
    """What is wrong with the ids of the rows that are `read`; nothing where rows have none."""
    if of.next_row_id is None:
        return
    rows = spark.sql(f"SELECT kafka, {ROW_ID}, {SEQUENCE} FROM {of.rows}").where(read)
    row_id, sequence = F.col(ROW_ID), F.col(SEQUENCE)
    beyond = (row_id < 0) | (row_id >= of.next_row_id) | (sequence > of.sequence)
    wrong = rows.where(row_id.isNull() | sequence.isNull() | beyond)
    for each in _places(wrong):
        told = f"{ROW_ID} is {each[ROW_ID]} and {SEQUENCE} {each[SEQUENCE]}"
        yield _finding(of, each, f"{told}, the table is at {of.next_row_id} and {of.sequence}")
    first = F.min_by(F.struct("kafka", SEQUENCE), F.struct("kafka.partition", "kafka.offset"))
    twice = (
        rows.groupBy(ROW_ID)
        .agg(F.count(F.lit(1)).alias("count"), first.alias("first"))
        .where("count > 1")
        .select("first.*", ROW_ID, "count")
    )
    for each in _places(twice):
        yield _finding(of, each, f"{each['count']} rows have the {ROW_ID} {each[ROW_ID]}")


def _places(rows: DataFrame) -> list[dict[str, object]]:
    found = rows.orderBy("kafka.partition", "kafka.offset").limit(FOUND_MAX).collect()
    return [each.asDict(recursive=True) for each in found]


def _finding(of: Pinned, row: dict[str, object], detail: str) -> Finding:
    kafka = row["kafka"]
    assert isinstance(kafka, dict)
    return Finding(FILE, of.topic, kafka["partition"], kafka["offset"], detail)
