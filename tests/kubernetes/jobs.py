"""Jobs by Spark on the cluster: the chart's audit and maintenance, and a user's job by spark-submit.

On a release of their own, beside the autoscaler's experiment, and behind all else on the processors: Java
machines that start would be what the clients of both wait for.
"""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy.images.jobs import NAME as IMAGE
from deploy.kubernetes.namespaces import PATIENCE
from deploy.kubernetes.node import NodeError
from tests.kubernetes.manifests import NAMESPACE

if TYPE_CHECKING:
    from tests.kubernetes.lab import Lab

NAME = "jobs by Spark"
RELEASE = "floe-jobs"
TOPIC = "load-jobs-by-spark"
"""The topic of the experiment's own load, which is written meanwhile."""
TABLE = TOPIC.replace("-", "_")
TABLES = "/iceberg/v1/namespaces/floe/tables"
CONFIG = {"floe.table.compaction": "false"}
"""Of the topic: who leaves that to Spark turns it off, or both do the same work (docs/tables.md)."""
SECONDS_MAX = 900.0 * PATIENCE
"""Of one job, which has the processors when nobody else wants them."""
NEVER = "0 0 1 1 *"
_POD = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "3Gi"}}
JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""For jobs of a minute, of which the JVM's own compiler takes most otherwise; `iceberg.spark.session` does
the same for those that it knows to be short."""
INTERVAL_MS = 9_000
"""Between two commits of the table; Spark, which stands behind all else, has to come between two of them."""
RELEASE_VALUES: dict[str, Any] = {"config": {"tables": {"interval_ms": INTERVAL_MS}}}
VALUES: dict[str, Any] = {
    "image": IMAGE.removeprefix("docker.io/"),
    "extraEnv": [{"name": "JAVA_TOOL_OPTIONS", "value": JAVA}],
    "audit": {
        "enabled": True,
        "topics": [TOPIC],
        "schedule": NEVER,
        "wholeSchedule": "",
        "cores": 1,
        "memoryMiB": 1024,
        "resources": _POD,
    },
    "maintenance": {
        "enabled": True,
        "schedule": NEVER,
        "arguments": ["--topics", TOPIC, "--files-min", "2"],
        "resources": _POD,
    },
}
PIPELINE = Path(__file__).with_name("pipeline.py")


def by_spark(lab: Lab) -> str:
    """The chart's CronJobs as Jobs, a pipeline beside them, and the pipeline once more."""
    lab.until(lambda: _listed(lab), f"the catalog of {lab.release} has no table of {TOPIC}")
    lab.kubectl("create", "configmap", "pipeline", f"--from-file={PIPELINE}")
    lab.kubectl("apply", "-f", "-", given=json.dumps(_pipeline(lab, "pipeline-1")))
    for name in ("audit", "maintenance"):
        lab.kubectl("create", "job", name, f"--from=cronjob/{lab.release}-{name}")
    first = _rows(_done(lab, "pipeline-1"))
    lab.kubectl("apply", "-f", "-", given=json.dumps(_pipeline(lab, "pipeline-2")))
    audited = json.loads(_json_of(_done(lab, "audit")))
    kept = json.loads(_json_of(_done(lab, "maintenance")))
    second = _rows(_done(lab, "pipeline-2"))
    lab.kubectl("delete", "job", "audit", "maintenance", "pipeline-1", "pipeline-2")
    lab.kubectl("delete", "configmap", "pipeline")
    rows = sum(each["table"] for each in audited["topics"])
    if audited["equal"] is not True or not rows or second <= first:
        raise NodeError(f"audit: {audited}; pipeline: {first}, then {second} rows")
    made = [each["topic"] for each in kept["tables"]]
    return (
        f"in pods, under load, on a release of their own: audit of {rows:,} rows, equal; maintenance of "
        f"{', '.join(made)}; `spark-submit` of an exactly-once job, {first:,} rows, then {second:,}, each "
        "once"
    )


def _listed(lab: Lab) -> bool:
    """Whether the topic has a table by now."""
    address = lab.agents()[0]["status"]["podIP"]
    try:
        with urllib.request.urlopen(f"http://{address}:8080{TABLES}", timeout=10) as answer:
            return any(each["name"] == TABLE for each in json.load(answer)["identifiers"])
    except OSError:  # of a namespace without tables, too
        return False


def _pipeline(lab: Lab, name: str) -> dict[str, Any]:
    """The maintenance's Job with another command: spark-submit in client mode, local."""
    dry = ("--dry-run=client", "-o", "json")
    job: dict[str, Any] = json.loads(
        lab.kubectl("create", "job", name, f"--from=cronjob/{lab.release}-maintenance", *dry)
    )
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container["command"] = ["sh", "-c", _SUBMIT, "submit", TABLE]
    container["volumeMounts"].append({"name": "job", "mountPath": "/opt/job"})
    pod["volumes"].append({"name": "job", "configMap": {"name": "pipeline"}})
    return job


_SUBMIT = (
    "python -m iceberg.spark.package floe-spark.zip && exec spark-submit --master 'local[1]' "
    "--driver-java-options -XX:+UseSerialGC --conf spark.ui.enabled=false "
    "--jars $(echo $FLOE_SPARK_JARS/*.jar | tr ' ' ',') --py-files floe-spark.zip "
    "/opt/job/pipeline.py $FLOE_HTTP/iceberg $1 http://minio:9000"
)


def _done(lab: Lab, job: str) -> str:
    """Wait for its end; what it printed. Raises NodeError with the end of that when it failed."""
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{job}"

    def ended() -> bool:
        lab.put_behind(f"app.kubernetes.io/instance={lab.release},app.kubernetes.io/name=floe-test")
        status = lab.node.asked(path)["status"]
        return bool(status.get("succeeded") or status.get("failed"))

    lab.until(ended, f"job {job} does not end", SECONDS_MAX)
    said = lab.kubectl("logs", f"job/{job}")
    if not lab.node.asked(path)["status"].get("succeeded"):
        raise NodeError(f"job {job} failed:\n{said[-4000:]}")
    return said


def _json_of(said: str) -> str:
    """The one object among what a container wrote to both streams."""
    found = re.search(r"^\{.*?^\}$|^\{.*\}$", said, re.MULTILINE | re.DOTALL)
    if found is None:
        raise NodeError(f"no verdict in: {said[-2000:]}")
    return found[0]


def _rows(said: str) -> int:
    found = re.search(r"^rows (\d+) distinct \1 of \1 in True$", said, re.MULTILINE)
    if found is None:
        raise NodeError(f"the pipeline's target is not its source: {said[-2000:]}")
    return int(found[1])
