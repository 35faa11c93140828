"""A topic as a witness of the audit: its records as Spark reads them, by Apache Kafka's own client.

Each task takes a range of one partition's offsets, with a consumer of its own, of committed records. Spark's
connector comes as jars beside Iceberg's (`python -m deploy.setup.jars sparkkafka`); nothing of Floe's reading
of records is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.audited import CLIENT_ID
from iceberg.spark.tables import COMPARED, HEADERS_SQL, Digest, headers_text

RECORDS_PER_TASK = 500_000
RECORDS_PER_POLL = 5_000
FETCH_BYTES = 8 << 20
"""Of one partition in one answer."""

UNTOLD = "a timestamp before the year 1600"
OVERFLOW = "long overflow"
_FIRST_TOLD = "1600-01-01 00:00:00"

Ranges = Mapping[int, Sequence[tuple[int, int]]]
"""By partition stretches of offsets, in order: the first and that behind the last."""


def untold(error: BaseException) -> bool:
    """Whether it says that a timestamp is one that the connector cannot give."""
    return UNTOLD in str(error) or OVERFLOW in str(error)


def consumed_history(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    ranges: Ranges,
    digest: Digest,
    security: Mapping[str, str] | None = None,
) -> DataFrame:
    """The committed records of these ranges, in the columns of a history.

    `security`: properties of Apache Kafka's client, such as security.protocol; files that they name lie where
    Spark's tasks run.

    A record that is not there any more is left out, and whether that is right is the audit's to say
    (`failOnDataLoss`). Times are given as java.sql.Timestamp, which has another calendar before 1582 and ends
    at microseconds of 63 bits: a record beyond fails the reading, and `untold` knows it.
    """
    columns = f"topic string, partition int, offset long, {digest.compared_sql}"
    found = [
        _read(spark, bootstrap, topic, each, security or {}).select(
            "topic", "partition", "offset", *_compared(digest)
        )
        for each in _turns(ranges)
    ]
    return reduce(DataFrame.unionByName, found) if found else spark.createDataFrame([], columns)


def _turns(ranges: Ranges) -> Iterator[Mapping[int, tuple[int, int]]]:
    """The first stretches of all partitions, the second ones and so on: one read has one of each."""
    wanted = {number: [each for each in own if each[0] < each[1]] for number, own in ranges.items()}
    for turn in range(max(map(len, wanted.values()), default=0)):
        yield {number: own[turn] for number, own in wanted.items() if turn < len(own)}


def _read(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    wanted: Mapping[int, tuple[int, int]],
    security: Mapping[str, str],
) -> DataFrame:
    begins, ends = ({topic: {str(p): each[at] for p, each in wanted.items()}} for at in (0, 1))
    read = spark.read.format("kafka").options(
        **{f"kafka.{name}": value for name, value in security.items()},
        **{
            "kafka.bootstrap.servers": bootstrap,
            "kafka.client.id": CLIENT_ID,
            "kafka.isolation.level": "read_committed",
            "kafka.max.poll.records": str(RECORDS_PER_POLL),
            "kafka.max.partition.fetch.bytes": str(FETCH_BYTES),
            "assign": json.dumps({topic: sorted(wanted)}),
            "startingOffsets": json.dumps(begins),
            "endingOffsets": json.dumps(ends),
            "includeHeaders": "true",
            "failOnDataLoss": "false",
            "maxRecordsPerPartition": str(RECORDS_PER_TASK),
        },
    )
    return read.load()


def _compared(digest: Digest) -> list[Column]:
    """COMPARED of a record: no headers are null here, and an empty list in a table."""
    told = F.col("timestamp") >= F.lit(_FIRST_TOLD).cast("timestamp")
    stamp = F.when(told, F.unix_micros("timestamp")).otherwise(F.raise_error(F.lit(UNTOLD)).cast("long"))
    headers = F.coalesce("headers", F.array().cast(HEADERS_SQL))
    columns = (
        digest.of(F.col("key")),
        digest.of(F.col("value")),
        digest.of(headers_text(headers)),
        stamp,
        F.col("timestampType"),
    )
    return [column.alias(name) for column, name in zip(columns, COMPARED, strict=True)]
