"""Iceberg tables against the log by Spark: each committed record is a row, once, and no other row is there.

`broker_log` (tables.py) says what is committed: what no transaction wrote, and what a commit ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tests.checker.spark_judge import RUN_KEY, Found, finding

PLACE = [*RUN_KEY, "offset"]


def audit_tables(spark: SparkSession, folder: Path, rows: DataFrame) -> Found:
    """table-missing, table-extra, table-doubled, table-changed. `rows`: run, key, offset, value (JSON text).

    Runs of which `rows` has nothing are judged as well, if they are in broker_log: their tables are empty.
    """
    log = spark.read.parquet(str(folder / "broker_log.parquet"))
    due = committed(log)
    held = rows.groupBy(*PLACE).agg(F.count("value").alias("n"), F.min("value").alias("row"))
    both = due.join(held, PLACE, "full").select(*PLACE, "value", "row", "n")
    queries = [
        finding(both.where("row IS NULL"), "table-missing"),
        finding(both.where("value IS NULL"), "table-extra"),
        finding(both.where("n > 1"), "table-doubled"),
        finding(both.where("value <> row"), "table-changed"),
    ]
    every = reduce(DataFrame.union, queries).groupBy("run", "anomaly", "weight", "key").count()
    found: Found = defaultdict(Counter)
    for run, anomaly, weight, key, count in every.collect():
        found[run][anomaly, weight, key] += count
    return found


def committed(log: DataFrame) -> DataFrame:
    """run, key, offset, value of the records that consumers of committed ones are given."""
    of = Window.partitionBy(*RUN_KEY, "producer").orderBy("base_offset")
    following = of.rowsBetween(1, Window.unboundedFollowing)
    end = F.when(F.col("kind") != "records", F.col("kind"))
    rows = log.where("kind <> 'bounds' AND (kind <> 'records' OR transactional)")
    ended = rows.withColumn("ends", F.first(end, ignorenulls=True).over(following))
    plain = log.where("kind = 'records' AND NOT transactional")
    kept = ended.where("kind = 'records' AND ends = 'commit'").drop("ends").union(plain)
    pairs = kept.select(*RUN_KEY, F.explode(F.arrays_zip("offsets", "values")).alias("record"))
    return pairs.select(
        *RUN_KEY, F.col("record.offsets").alias("offset"), F.col("record.values").alias("value")
    )


def table_rows(spark: SparkSession, tables: Mapping[str, tuple[str, str]]) -> DataFrame:
    """The rows of topics' tables. `tables`: by run the table and its topic.

    Values are what torture writes: ASCII, filled up with dots (tests/torture/history.py).
    """
    parts = []
    for run, (table, topic) in tables.items():
        value = F.concat(F.lit('"'), F.rtrim(F.col("value.__raw__").cast("string"), F.lit(".")), F.lit('"'))
        key = F.concat(F.lit(f"{topic}-"), F.col("kafka.partition").cast("string"))
        columns = [F.lit(run).alias("run"), key.alias("key"), F.col("kafka.offset").alias("offset")]
        parts.append(spark.table(table).select(*columns, value.alias("value")))
    return reduce(DataFrame.union, parts)
