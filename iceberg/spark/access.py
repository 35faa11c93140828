"""`python -m iceberg.spark.access URI --topic T`: who could read or write a topic, and who did.

Reads the audit log's table (docs/security.md). *Did* are its events about the topic: accesses, changes,
refusals. *Could* are the ACLs that were in force for it, each with its time, from the changes of ACLs that
the log holds: one from before the log began is not in it, super users stand in agents' configurations, and
where no authorizer was in force everybody could.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from iceberg.spark.commands import add_reach, ended, started
from iceberg.spark.session import CATALOG
from iceberg.spark.watermark import JobError

TABLE = "floe.floe_audit"
ROWS_MAX = 10_000
"""Rows of each half of a report."""

FOREVER_MS = (1 << 63) - 1
_ACL = ("resource_type", "pattern_type", "name", "principal", "host", "operation", "permission")


@dataclass(frozen=True, slots=True)
class Did:
    """What somebody did, between `first_ms` and `last_ms` (Unix ms), so many times."""

    principal: str
    host: str
    kind: str
    operation: str
    outcome: str
    times: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Could:
    """An ACL that was in force from `from_ms` to `to_ms` (Unix ms; None: it still is)."""

    principal: str
    host: str
    operation: str
    permission: str
    pattern: str
    from_ms: int
    to_ms: int | None


@dataclass(frozen=True, slots=True)
class Report:
    """Both, of one topic within a time."""

    topic: str
    did: Sequence[Did]
    could: Sequence[Could]


def report(
    spark: SparkSession, topic: str, since_ms: int = 0, until_ms: int = FOREVER_MS, table: str = TABLE
) -> Report:
    """Of the events from `since_ms` on and before `until_ms` (Unix ms). Raises JobError without a table."""
    name = f"{CATALOG}.{table}"
    if not spark.catalog.tableExists(name):
        raise JobError(f"{name} is not there: set audit_log.topic, and wait for its first commit")
    events = _once(spark.table(name).select("value.*"))
    did = _did(events, topic, since_ms, until_ms).limit(ROWS_MAX).collect()
    could = _could(events, topic, since_ms, until_ms).limit(ROWS_MAX).collect()
    return Report(
        topic,
        [Did(*row) for row in did],
        [
            Could(who, host, what, permission, pattern, begun, None if until == FOREVER_MS else until)
            for who, host, what, permission, pattern, begun, until in could
        ],
    )


def _once(events: DataFrame) -> DataFrame:
    """An event that was written twice counts once."""
    return events.where("id is not null").dropDuplicates(["id"])


def _did(events: DataFrame, topic: str, since_ms: int, until_ms: int) -> DataFrame:
    about = (f.col("resource_type") == "Topic") & (f.col("resource") == topic)
    within = (f.col("time_ms") >= since_ms) & (f.col("time_ms") < until_ms)
    alike = "principal", "host", "kind", "operation", "outcome"
    return (
        events.where(about & within)
        .groupBy(*alike)
        .agg(f.sum("count"), f.min("time_ms").alias("first"), f.max("time_ms"))
        .orderBy("first", *alike)
    )


def _could(events: DataFrame, topic: str, since_ms: int, until_ms: int) -> DataFrame:
    """Each ACL of the topic from the change that brought it to the one that took it, where they overlap."""
    done = events.where((f.col("kind") == "CHANGE") & (f.col("outcome") == "NONE"))
    turns = _turns(done, "acls_added", 1).unionByName(_turns(done, "acls_removed", 0)).where(_covers(topic))
    order = Window.partitionBy(*_ACL).orderBy("time_ms", f.col("there").desc(), "id")
    until = f.coalesce(f.lead("time_ms").over(order), f.lit(FOREVER_MS))
    was = f.lag("there").over(order)
    spans = turns.withColumn("was", was).where("was is null or was <> there").withColumn("until", until)
    return (
        spans.where((f.col("there") == 1) & (f.col("until") > since_ms) & (f.col("time_ms") < until_ms))
        .select(
            "principal", "host", "operation", "permission",
            f.concat_ws(" ", f.col("pattern_type"), f.col("name")), "time_ms", "until",
        )
        .orderBy("time_ms", "principal", "operation", "host")
    )  # fmt: skip


def _turns(events: DataFrame, column: str, there: int) -> DataFrame:
    exploded = events.select("id", "time_ms", f.explode(column).alias("acl"))
    return exploded.select("id", "time_ms", "acl.*", f.lit(there).alias("there"))


def _covers(topic: str) -> Column:
    """Whether an ACL is about the topic."""
    prefixed = (f.col("pattern_type") == "PREFIXED") & f.startswith(f.lit(topic), f.col("name"))
    literal = (f.col("pattern_type") == "LITERAL") & f.col("name").isin(topic, "*")
    return (f.col("resource_type") == "Topic") & (prefixed | literal)


def main(words: list[str] | None = None) -> int:
    """Do what the command line says; prints one object of JSON."""
    arguments = _parser().parse_args(words)

    def work() -> int:
        since, until = _ms(arguments.since, 0), _ms(arguments.until, FOREVER_MS)
        spark = started(arguments)
        try:
            found = report(spark, arguments.topic, since, until, arguments.table)
        finally:
            spark.stop()
        print(json.dumps(asdict(found)))
        return 0

    return ended("access", work)


def _ms(text: str, default: int) -> int:
    if not text:
        return default
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise JobError(f"{text!r} is no time: give one as 2026-11-26T12:00") from None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m iceberg.spark.access", description=__doc__)
    add_reach(found)
    found.add_argument("--topic", required=True, help="who could use it, and who did")
    found.add_argument("--since", default="", help="from this time on, UTC, as 2026-11-26T12:00")
    found.add_argument("--until", default="", help="before this time")
    found.add_argument("--table", default=TABLE, help=f"the audit log's, below {CATALOG} (default {TABLE})")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
