"""A job of a user, by spark-submit in a pod: rows that are new in a topic's table, exactly once in another.

`pipeline.py URI TABLE S3_ENDPOINT`. Run again and again; each time target and source have to be equal, row by
row up to where it has read.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame

from iceberg.spark import S3Access, exactly_once, session


def main(uri: str, table: str, endpoint: str) -> int:
    """1: the two differ."""
    spark = session(uri, s3=S3Access(endpoint))
    source, target = f"lake.floe.{table}", "lake.made.values"

    def write(rows: DataFrame, to: str) -> None:
        rows.selectExpr("kafka.partition", "kafka.offset").writeTo(to).append()

    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.made")
    spark.sql(f"CREATE TABLE IF NOT EXISTS {target} (partition INT, offset BIGINT) USING iceberg")
    done = exactly_once(spark, source, target, write)
    made = spark.table(target)
    ends = made.groupBy("partition").max("offset").withColumnRenamed("max(offset)", "end")
    wanted = spark.table(source).selectExpr("kafka.partition", "kafka.offset")
    read = wanted.join(ends, "partition").where("offset <= end").count()
    print("rows", made.count(), "distinct", made.distinct().count(), "of", read, "in", done is not None)
    return int(not made.count() == made.distinct().count() == read > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
