"""The Spark side: a helper process that starts its JVM while the load goes on, then runs pipeline and audit.

Plan: `catalog_uri`, `s3` (null for a local folder), `jars`, `java_home`, `scratch`, `tables`, `sent`,
`consumed`, `out` folder. Once the session is up it waits to be told
`{"accounts": {topic: [produced, rejected]}}`. Events: `stage` (name), `stage done` (name, began, ended),
`done`. Leaves verdict.json and results.json in `out`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from deploy.run.children import run, tell, told
from iceberg.spark.audit import Account, AuditInput, audit
from iceberg.spark.pipelines import flights
from iceberg.spark.session import S3Access, session


def open_session(plan: Mapping[str, Any]) -> SparkSession:
    """The session, with the catalog seen to answer."""
    spark = session(
        plan["catalog_uri"],
        [Path(jar) for jar in plan["jars"]],
        scratch=Path(plan["scratch"]),
        java_home=Path(plan["java_home"]),
        s3=S3Access(**plan["s3"]) if plan["s3"] else None,
        short_lived=True,
    )
    spark.sql("SHOW NAMESPACES IN floe").collect()
    return spark


def run_pipeline(spark: SparkSession, plan: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Write the result tables, then read them back by name, as any other job would."""
    tables = flights.run(spark, plan["tables"])
    return {
        name: [row.asDict(recursive=True) for row in spark.table(table).collect()]
        for name, table in tables.items()
    }


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Tell the parent of a stage's beginning and how long it took."""
    began = time.time()
    tell("stage", name=name)
    yield
    tell("stage done", name=name, began=began, ended=time.time())


def main() -> None:
    """Run the plan given on standard input."""
    plan = told()
    out = Path(plan["out"])
    with stage("start"):
        spark = open_session(plan)
    go = told()
    if go is None:
        return
    with stage("pipeline"):
        (out / "results.json").write_text(json.dumps(run_pipeline(spark, plan), indent=1))
    with stage("audit"):
        given = AuditInput(
            tables=plan["tables"],
            sent=Path(plan["sent"]),
            consumed=Path(plan["consumed"]),
            accounts={topic: Account(*numbers) for topic, numbers in go["accounts"].items()},
        )
        (out / "verdict.json").write_text(audit(spark, given).to_json())
    tell("done")
    spark.stop()


if __name__ == "__main__":
    run(main)
