"""A job over Spark Connect, of a process that has no JVM: `… URI REMOTE [STEP]`, dead before that step.

Prints what it did as one object of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from iceberg.spark import (
    Span,
    decoder,
    exactly_once,
    merge_into,
    read_since,
    rebuild,
    session,
    stream,
    watermark_of,
)

SOURCE, TARGET, STREAMED = "lake.floe.t", "lake.own.t", "lake.own.streamed"
COLUMNS = ("kafka.partition", "kafka.offset", "string(value.__raw__) AS text")


def write(rows: DataFrame, target: str) -> None:
    """One row per record."""
    merge_into(rows.selectExpr(*COLUMNS), target, key=["partition", "offset"])


def spoilt_and_rebuilt(spark: SparkSession) -> int:
    """Rows that are right again after those of a span were spoilt and made anew."""
    spark.sql(f"UPDATE {TARGET} SET text = 'spoilt' WHERE partition = 0 AND offset < 3").collect()
    rebuild(spark, SOURCE, TARGET, write, Span({0: (0, 2)}), clear="partition = 0 AND offset < 2")
    return int(spark.table(TARGET).where("text <> 'spoilt'").count())


def streamed(spark: SparkSession, checkpoint: str) -> int:
    """Rows that a stream brings into a table, behind the first ten of each partition."""
    mark = read_since(spark, SOURCE, offsets_max=10).watermark
    rows = stream(spark, SOURCE, mark).selectExpr(*COLUMNS)
    query = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
    query.toTable(STREAMED).awaitTermination()
    return int(spark.table(STREAMED).count())


def decoded(spark: SparkSession) -> list[int]:
    """What the server's Python makes of a message."""
    file = FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(file)
    value = T.StructType().add("__raw__", "binary").add("__err__", "string").add("seconds", "long")
    known = FileDescriptorSet(file=[file]).SerializeToString()
    decode = decoder(known, "google.protobuf.Timestamp", value, framed=False)
    raw = [(timestamp_pb2.Timestamp(seconds=number).SerializeToString(),) for number in (7, 8)]
    rows = spark.createDataFrame(raw, "raw binary").select(decode(F.col("raw")).alias("value"))
    return sorted(row["seconds"] for row in rows.select("value.seconds").collect())


def main() -> None:
    """Bring the target up to date. A third word that is a folder, for a checkpoint: do the rest, too."""
    uri, remote, last = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else ""
    spark = session(uri, remote=remote)

    def before(step: str) -> None:
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)

    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.own").collect()
    columns = "(partition INT, offset BIGINT, text STRING)"
    spark.sql(f"CREATE TABLE IF NOT EXISTS {TARGET} {columns} USING iceberg").collect()
    done = exactly_once(spark, SOURCE, TARGET, write, before=before)
    mark = watermark_of(spark, SOURCE, TARGET)
    assert mark is not None
    told: dict[str, object] = {
        "new": [done.since.offsets, done.watermark.offsets] if done else None,
        "unread": read_since(spark, SOURCE, mark).rows.count(),
        "behind": read_since(spark, SOURCE, mark, skip_gone=True).is_empty,
    }
    if last.startswith("/"):
        told |= {"right": spoilt_and_rebuilt(spark), "streamed": streamed(spark, last)}
        told["decoded"] = decoded(spark)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
