"""A job for spark-submit whose writes may come twice nowhere; it dies where it is told to, `… URI [STEP]`."""

from __future__ import annotations

import os
import signal
import sys

from pyspark.sql import DataFrame

from iceberg.spark import exactly_once, session

TARGET = "lake.own.t"
BETWEEN = "between two writes"


def main() -> None:
    """Append the rows of topic t in two commits; the driver's JVM and this process die before the step."""
    uri, last = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    spark = session(uri)

    def before(step: str) -> None:
        if step == last:
            os.kill(os.getppid(), signal.SIGKILL)  # spark-submit's JVM
            os.kill(os.getpid(), signal.SIGKILL)

    def job(rows: DataFrame, target: str) -> None:
        for half in "ab":
            rows = rows.repartition(2)  # so that executors exchange rows
            rows.selectExpr("kafka.partition", "kafka.offset", f"'{half}' AS half").writeTo(target).append()
            before(BETWEEN)

    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.own")
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {TARGET} (partition INT, offset BIGINT, half STRING) USING iceberg"
    )
    done = exactly_once(spark, "lake.floe.t", TARGET, job, before=before)
    print(
        "executors",
        spark.sparkContext.defaultParallelism,
        "offsets",
        done.watermark.offsets if done else None,
    )


if __name__ == "__main__":
    main()
