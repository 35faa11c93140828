"""The judgement of all runs by one Spark job: what clients saw, what the log holds, what the tables hold.

`python -m tests.proof.spark` reads `{"folder": …, "topics": {run: topic}, "catalog": {"uri", "endpoint",
"access_key", "secret_key"} or null}` and prints the counts of what fails, by run, by anomaly.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import SparkSession

from deploy.setup.jars import ensure
from deploy.setup.java import java_home
from iceberg.spark.session import CATALOG, S3Access, session
from tests.checker.spark_audits import audit_all
from tests.checker.spark_judge import Found, judge_all
from tests.checker.spark_tables import audit_tables, table_rows
from tests.proof.ran import PATIENCE
from tests.torture.spark import NO_CATALOG


def verdicts(spark: SparkSession, folder: Path, topics: Mapping[str, str]) -> dict[str, Counter[str]]:
    """All that fails, by run. `topics`: whose tables are looked at."""
    found = [judge_all(spark, folder, healed_ns=0, patience=PATIENCE), audit_all(spark, folder)]
    if topics:
        places = {run: (f"{CATALOG}.floe.{table_of(topic)}", topic) for run, topic in topics.items()}
        told = audit_tables(spark, folder, table_rows(spark, places))
        found.append({run: each for run, each in told.items() if run in topics})
    return counted(found)


def counted(verdicts: list[Found]) -> dict[str, Counter[str]]:
    """What fails, by run, by anomaly."""
    total: dict[str, Counter[str]] = defaultdict(Counter)
    for verdict in verdicts:
        for run, found in verdict.items():
            for (anomaly, weight, _), count in found.items():
                total[run][anomaly] += count * (weight == "fail")
    return {run: +found for run, found in total.items()}


def table_of(topic: str) -> str:
    """The name of a topic's table."""
    return topic.replace("-", "_").replace(".", "_")


def main(order: dict[str, Any]) -> None:
    """Judge, print."""
    at: dict[str, str] | None = order["catalog"]
    s3 = S3Access(at["endpoint"], at["access_key"], at["secret_key"]) if at else None
    with TemporaryDirectory() as scratch:
        spark = session(
            at["uri"] if at else NO_CATALOG, ensure("iceberg"), scratch=Path(scratch), java_home=java_home(),
            short_lived=True, s3=s3,
        )  # fmt: skip
        try:
            found = verdicts(spark, Path(order["folder"]), order["topics"])
        finally:
            spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.load(sys.stdin))
