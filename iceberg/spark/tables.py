"""A topic's table as a witness of the audit: hashes made by Spark, and what its columns are found to be."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.spark.columns import COLUMNS_PROPERTY, MESSAGES, WRONG_SQL, TableColumns, judging
from iceberg.spark.schemas import TopicSchemas

COMPARED = ("key_hash", "value_hash", "headers_hash", "timestamp_us", "timestamp_type")
WRONG = "wrong"

_PLACE_SQL = "topic string, partition int, offset long"
_COMPARED_SQL = (
    "key_hash binary, value_hash binary, headers_hash binary, timestamp_us long, timestamp_type int"
)


def table_history(spark: SparkSession, topic: str, table: str, schemas: TopicSchemas | None) -> DataFrame:
    """A topic's table in the columns of a history, with `wrong`: where columns are not what the bytes say.

    All of it is read as of one snapshot. Without `schemas` no column is looked at, and `wrong` is null.
    """
    if schemas is None:
        rows = spark.table(table).select(F.lit(topic).alias("topic"), *_compared())
        return rows.withColumn(WRONG, F.lit(None).cast(WRONG_SQL))
    frame, columns = _pinned(spark, table)
    rows = frame.select(F.lit(topic).alias("topic"), *_compared(), *MESSAGES)
    described = f"{_PLACE_SQL}, {_COMPARED_SQL}, {WRONG} {WRONG_SQL}"
    return rows.mapInArrow(judging(columns, schemas), described)


def _pinned(spark: SparkSession, table: str) -> tuple[DataFrame, TableColumns]:
    """The table's rows and columns as of its present snapshot."""
    jvm: Any = spark._jvm  # PySpark shows neither the ids of columns nor the properties of a table
    found = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
    snapshot = found.currentSnapshot()
    if snapshot is None:
        frame, schema = spark.table(table), found.schema()
    else:
        frame = spark.sql(f"SELECT * FROM {table} VERSION AS OF {snapshot.snapshotId()}")
        schema = found.schemas()[snapshot.schemaId()]
    fields = json.loads(jvm.org.apache.iceberg.SchemaParser.toJson(schema))["fields"]
    ids = found.properties().get(COLUMNS_PROPERTY) or ""
    return frame, TableColumns(json.dumps(fields), ids)


def _compared() -> list[Column]:
    """Where a row is, and what of it is compared with what was sent and read.

    No list of headers is not an empty one, and a header without key or a null one is none that can be sent.
    """
    header_text = F.transform(
        F.col("headers"),
        lambda header: F.concat(
            F.coalesce(F.hex(F.encode(header["key"], "UTF-8")), F.lit("?")),
            F.lit(":"),
            F.coalesce(F.hex(header["value"]), F.lit("-")),
        ),
    )
    return [
        F.col("kafka.partition").alias("partition"),
        F.col("kafka.offset").alias("offset"),
        _sha256(F.col("key.__raw__")).alias("key_hash"),
        _sha256(F.col("value.__raw__")).alias("value_hash"),
        _sha256(F.encode(F.array_join(header_text, ","), "UTF-8")).alias("headers_hash"),
        F.unix_micros(F.col("kafka.timestamp")).alias("timestamp_us"),
        F.col("kafka.timestamp_type").alias("timestamp_type"),
    ]


def _sha256(data: Column) -> Column:
    return F.unhex(F.sha2(data, 256))
