"""The Spark side: a helper process that starts its JVM while the load goes on, then runs the pipeline, twice,
and the audit.

Plan: `http` (an agent), `catalog_uri`, `s3` (null for a local folder), `jars`, `java_home`, `trust` (options
of the JVM), `catalog` and `command` (how Spark and what asks the agent log in; nothing, in the clear),
`scratch`, `tables`, `sent`, `consumed`, `out` folder. Once the session is up it waits to be told
`{"until": watermark}`, up to where the first increment of flights goes, and then for the rest
`{"accounts": {topic: [produced, rejected]}}`. Events: `stage` (name), `working` (name, done and open tasks,
seconds) while one takes long, `stage done` (name, began, ended), `increment` (deploy/run/increments.py),
`done`. Leaves verdict.json
and results.json in `out`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from agent.cli.audit import schemas
from deploy.run.children import run, tell, told
from deploy.run.increments import increment
from deploy.run.secure import LENT
from iceberg.spark.audit import audit
from iceberg.spark.given import Account, AuditInput
from iceberg.spark.pipelines import flights
from iceberg.spark.session import CATALOG, QUICK, S3Access, session
from iceberg.spark.watermark import Watermark

WORKING_S = 10.0  # between two words of a stage that takes long


def open_session(plan: Mapping[str, Any]) -> SparkSession:
    """The session, with the catalog seen to answer."""
    spark = session(
        plan["catalog_uri"],
        [Path(jar) for jar in plan["jars"]],
        scratch=Path(plan["scratch"]),
        java_home=Path(plan["java_home"]),
        s3=S3Access(**plan["s3"]) if plan["s3"] else None,
        short_lived=True,
        settings=_secured(plan) if plan["trust"] else None,
    )
    spark.sql(f"SHOW NAMESPACES IN {CATALOG}").collect()
    return spark


def _secured(plan: Mapping[str, Any]) -> dict[str, str]:
    """Settings of a session that trusts the authority of this run and logs in at the catalog (OAuth2).

    Topics' tables are read by a second catalog, LENT, of the same server: it has no key of the bucket, and is
    lent one for each table. The pipeline's own tables are written with the key of the first.
    """
    uri = plan["catalog_uri"]
    login = {**plan["catalog"], "oauth2-server-uri": f"{uri}/v1/oauth/tokens"}
    lent = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        "type": "rest",
        "uri": uri,
        "cache-enabled": "false",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
    }
    found = {"spark.driver.extraJavaOptions": f"-Duser.timezone=UTC {QUICK} {plan['trust']}"}
    for catalog, properties in ((CATALOG, login), (LENT, {**lent, **login})):
        name = f"spark.sql.catalog.{catalog}"
        found |= {f"{name}.{key}" if key else name: value for key, value in properties.items()}
    return found


def figures(spark: SparkSession, lake: flights.Lake) -> dict[str, list[dict[str, Any]]]:
    """What the pipeline's tables tell, read back as any other job would."""
    return {
        name: [row.asDict(recursive=True) for row in frame.collect()]
        for name, frame in flights.results(spark, lake).items()
    }


class Tasks:
    """How far Spark has come since this was made, in tasks."""

    def __init__(self, spark: SparkSession) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._over = set(self._tracker.getJobIdsForGroup())  # jobs that need no further look
        self._done: dict[int, int] = {}  # by Spark's stage

    def count(self) -> tuple[int, int]:
        """Tasks that are done, and those of the stages that run now which are not."""
        for number in set(self._tracker.getJobIdsForGroup()) - self._over:
            job = self._tracker.getJobInfo(number)
            for one in job.stageIds if job is not None else ():
                ended = self._tracker.getStageInfo(one)
                self._done[one] = ended.numCompletedTasks if ended is not None else 0
            if job is not None and job.status != "RUNNING":
                self._over.add(number)
        left = 0
        for number in self._tracker.getActiveStageIds():
            found = self._tracker.getStageInfo(number)
            if found is not None:
                self._done[number] = found.numCompletedTasks
                left += found.numTasks - found.numCompletedTasks
        return sum(self._done.values()), left


@contextmanager
def stage(name: str, spark: SparkSession | None = None, every_s: float = WORKING_S) -> Iterator[None]:
    """Tell the parent of a stage's beginning, how far it is each `every_s`, and how long it took."""
    began, ended = time.time(), threading.Event()
    tell("stage", name=name)

    def working(tasks: Tasks) -> None:
        while not ended.wait(every_s):
            done, left = tasks.count()
            tell("working", name=name, done=done, open=left, seconds=round(time.time() - began, 1))

    watching = threading.Thread(target=working, args=(Tasks(spark),), daemon=True) if spark else None
    if watching is not None:
        watching.start()
    try:
        yield
    finally:
        ended.set()
        if watching is not None:
            watching.join()
    tell("stage done", name=name, began=began, ended=time.time())


def main() -> None:
    """Run the plan given on standard input."""
    plan = told()
    os.environ.update(plan["command"])  # what asks the agent for schemas says who it is
    out = Path(plan["out"])
    with stage("start"):
        spark = open_session(plan)
    lake = flights.Lake(plan["tables"])
    first = told()
    if first is None:
        return
    with stage("first increment", spark):
        tell("increment", **increment(spark, lake, Watermark.parse(first["until"])))
    go = told()
    if go is None:
        return
    with stage("second increment", spark):
        tell("increment", **increment(spark, lake, None))
        (out / "results.json").write_text(json.dumps(figures(spark, lake), indent=1))
    with stage("audit", spark):
        given = AuditInput(
            tables=plan["tables"],
            sent=Path(plan["sent"]),
            consumed=Path(plan["consumed"]),
            accounts={topic: Account(*numbers) for topic, numbers in go["accounts"].items()},
            schemas={topic: schemas(plan["http"], topic) for topic in plan["tables"]},
        )
        (out / "verdict.json").write_text(audit(spark, given).to_json())
    tell("done")
    spark.stop()


if __name__ == "__main__":
    run(main)
