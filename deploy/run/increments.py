"""One increment of the pipeline, and what it read and wrote: a second one reads only what is new."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from iceberg.spark.jobs import watermark_of
from iceberg.spark.pipelines import flights
from iceberg.spark.topics import topic_table
from iceberg.spark.watermark import Watermark

TOLD = ("name", "read", "added", "removed", "days")
"""Of what a stage did."""


def increment(spark: SparkSession, lake: flights.Lake, until: Watermark | None) -> dict[str, Any]:
    """Run the pipeline. `since` and `until` are offsets of flights by partition, `files` counts those of the
    table whose bounds have such offsets, `files_all` all, and `stages` tell what each did.
    """
    table = lake.bronze["flights"]
    lake.create(spark)
    end = topic_table(spark, table).end
    since = watermark_of(spark, table, lake.silver) or Watermark(end.topic_id)
    stages = flights.run(spark, lake, until=until)
    until = until or end
    files, files_all = _files(spark, table, since, until)
    done = [{name: getattr(stage, name) for name in TOLD} for stage in stages]
    ends = (list(since.offsets) or [0] * len(until.offsets), list(until.offsets))
    return {"since": ends[0], "until": ends[1], "files": files, "files_all": files_all, "stages": done}


def _files(spark: SparkSession, table: str, since: Watermark, until: Watermark) -> tuple[int, int]:
    """How many files a query of these offsets opens, by their bounds, and of how many."""
    rows = spark.sql(
        "SELECT readable_metrics.`kafka.partition`.lower_bound AS p, "
        "readable_metrics.`kafka.offset`.lower_bound AS low, "
        f"readable_metrics.`kafka.offset`.upper_bound AS high FROM {table}.files"
    ).collect()
    wanted = [row for row in rows if row["high"] >= since.at(row["p"]) and row["low"] < until.at(row["p"])]
    return len(wanted), len(rows)
