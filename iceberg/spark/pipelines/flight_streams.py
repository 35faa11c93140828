"""The flights pipeline fed by streams: over the topic's table, or over Kafka itself.

A batch of a stream goes the way of a run, into the same tables and with the same watermarks
(`exactly_once_rows`): a batch that comes again changes nothing, streams and runs may take turns, and one that
lost its checkpoint goes on from silver's watermark. Gold is computed at the end of each batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.spark.jobs import exactly_once_rows, watermark_of
from iceberg.spark.pipelines import flight_rows as rows_of
from iceberg.spark.pipelines import flights as pipeline
from iceberg.spark.reading import stream
from iceberg.spark.sinks import PLACE, merge_into
from iceberg.spark.topics import topic_table
from iceberg.spark.watermark import Watermark

OFFSETS_A_TRIGGER = 1_000_000
"""Records of one batch from Kafka, at most."""


def from_table(spark: SparkSession, lake: pipeline.Lake) -> DataFrame:
    """Records of the flights' table, from where quarantine and silver are, whichever is behind."""
    return stream(spark, lake.bronze["flights"], _since(spark, lake))


def from_kafka(
    spark: SparkSession, lake: pipeline.Lake, bootstrap: str, topic: str, decode: Callable[[Column], Column]
) -> DataFrame:
    """Records of the topic, some seconds sooner than the table has them; `decode`: `decoding.decoder`.

    The session needs the jars of spark-sql-kafka (`deploy/setup/jars.py`: sparkkafka).
    """
    since = _since(spark, lake)
    starting = {} if since is None else _starting(since, topic_table(spark, lake.bronze["flights"]).end)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: starting}) if starting else "earliest",
        "maxOffsetsPerTrigger": str(OFFSETS_A_TRIGGER),
        "kafka.isolation.level": "read_committed",  # as the table
    }
    rows = spark.readStream.format("kafka").options(**options).load()
    place = F.struct("partition", "offset", "timestamp").alias("kafka")
    return rows.select(place, decode(F.col("value")).alias("value"))


def write(
    records: DataFrame, lake: pipeline.Lake, checkpoint: str, *, before: pipeline.Before = lambda s, t: None
) -> Any:
    """A DataStreamWriter that is to be given its trigger and started."""
    return records.writeStream.foreachBatch(lambda rows, number: batch(rows, lake, before=before)).option(
        "checkpointLocation", checkpoint
    )


def batch(
    records: DataFrame, lake: pipeline.Lake, *, before: pipeline.Before = lambda stage, step: None
) -> None:
    """Bring all stages up to date with the records of one batch."""
    spark = records.sparkSession
    lake.create(spark)
    kept = records.persist()  # read once for quarantine, silver and their watermarks
    try:
        for stage, table, job in (
            ("quarantine", lake.quarantine, _put_aside),
            ("silver", lake.silver, pipeline.merge),
        ):

            def step(name: str, stage: str = stage) -> None:
                before(stage, name)

            exactly_once_rows(spark, lake.bronze["flights"], table, kept, job, before=step)
    finally:
        kept.unpersist()
    pipeline.aggregate(spark, lake, lambda step: before("gold", step))


def _starting(since: Watermark, end: Watermark) -> dict[str, int]:
    """Offsets of all partitions: Spark wants each named."""
    count = max(len(since.offsets), len(end.offsets))
    return {str(partition): since.at(partition) for partition in range(count)}


def _put_aside(records: DataFrame, quarantine: str) -> None:
    merge_into(rows_of.quarantined(records), quarantine, key=PLACE[1:])


def _since(spark: SparkSession, lake: pipeline.Lake) -> Watermark | None:
    """The lower of quarantine's and silver's watermarks; None while one has none."""
    lake.create(spark)
    marks = [watermark_of(spark, lake.bronze["flights"], table) for table in (lake.quarantine, lake.silver)]
    known = [mark for mark in marks if mark is not None]
    if len(known) < len(marks):
        return None
    count = max(len(mark.offsets) for mark in known)
    lowest = tuple(min(mark.at(partition) for mark in known) for partition in range(count))
    return Watermark(known[0].topic_id, lowest)
