"""The chart's jobs by Spark: their own commands, run as their pods would, against the quickstart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.setup import class_archive
from deploy.setup.java import java_home
from tests.deploy.test_chart import CHART, environment_of, pod_of, refused_with, render, resources, workloads
from tests.deploy.test_quickstart import QUICKSTART, TOOLS, Agent, Container, agent_files, ran

pytestmark = [pytest.mark.services, pytest.mark.timeout(1800)]
SPARK, CONTINUOUS = CHART / "ci" / "spark.yaml", CHART / "ci" / "spark-continuous.yaml"
NODES = CHART / "ci" / "spark-nodes.yaml"
ROOT = CHART.parents[1]
FIELDS = {"metadata.name": "floe-0", "status.podIP": "127.0.0.1", "spec.nodeName": "n"}
JOBS = (
    *("--set", "spark.image=jobs:1", "--set", "spark.maintenance.enabled=true"),
    *("--set-json", 'spark.maintenance.arguments=["--files-min","2"]'),
    *("--set", "spark.audit.enabled=true", "--set", "spark.audit.topics={nothing,hello}"),
    *("--set", "spark.audit.memoryMiB=1024", "--set", "spark.audit.cores=1"),
)
STANDS_FOR = ("http://floe-minio:9000", "/etc/floe/floe.yaml", "/var/lib/floe", "floe-http:8080")
"""What a command of the jobs names in its pod, in the order of what it is here."""


def container_of(rendered: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = rendered[f"CronJob/{name}"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def as_in_its_pod(
    container: dict[str, Any], secret: dict[str, str], here: tuple[str, ...], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Runs a job's command with what its pod gives it, addresses and folders being those of here."""
    (folder / "bin").mkdir(exist_ok=True)
    floe = folder / "bin" / "floe"
    floe.write_text(f'#!/bin/sh\nexec {sys.executable} -m agent "$@"\n')
    floe.chmod(0o755)
    environment = environment_of(container, FIELDS | {"metadata.name": "floe-audit-7d9f6c-x7k2p"})
    for variable in container["env"]:
        if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
            environment[variable["name"]] = secret[reference["key"]]
    words = list(container["command"])
    for theirs, ours in zip(STANDS_FOR, here, strict=True):
        words = [word.replace(theirs, ours) for word in words]
        environment = {name: value.replace(theirs, ours) for name, value in environment.items()}
    for name in ("FLOE_JARS", "FLOE_SPARK_JARS", "FLOE_KAFKA_JARS"):
        environment[name] = environment[name].replace("/opt/floe/jars", str(ROOT / "build" / "jars"))
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment |= {"PATH": path, "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment[class_archive.VARIABLE] = os.environ[class_archive.VARIABLE]
    return subprocess.run(
        words, check=False, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=540
    )


def objects(text: str) -> list[Any]:
    """The values of JSON that were printed one after another."""
    found, place = [], 0
    while place < len(text):
        value, place = json.JSONDecoder().raw_decode(text, place)
        found.append(value)
        place += len(text) - place - len(text[place:].lstrip())
    return found


@pytest.mark.thorough
def test_the_jobs_do_their_work_by_their_own_commands(tmp_path: Path) -> None:
    """One topic of the audit is not there: it is told of, and keeps the other one from nothing."""
    rendered = resources(render(QUICKSTART, *JOBS))
    secret = rendered["Secret/floe-minio"]["stringData"]
    tools = {
        name: Container(name, rendered[f"StatefulSet/floe-{name}"], secret, tmp_path / name) for name in TOOLS
    }
    file = agent_files(rendered, tools, secret, tmp_path)
    (agents,) = workloads(rendered)
    environment = environment_of(pod_of(agents)["containers"][0], FIELDS) | {"TMPDIR": str(tmp_path)}
    with tools["etcd"], tools["minio"]:
        ran(["bucket", "prepare", "--config", str(file)], environment)
        with Agent(file, environment, tmp_path / "agent") as agent:
            bootstrap = ("--bootstrap", f"127.0.0.1:{agent.kafka}")
            ran(["topic", "create", "hello", "--partitions", "1", *bootstrap], environment)
            ran(["produce", "hello", "--value", "world", *bootstrap], environment)
            minio = f"http://127.0.0.1:{tools['minio'].port}"
            here = (minio, str(file), str(tmp_path), f"127.0.0.1:{agent.http}")
            audit = container_of(rendered, "floe-audit")
            for variable in audit["env"]:
                if variable["name"] == "FLOE_BOOTSTRAP":
                    assert variable["value"] == "floe:9092"
                    variable["value"] = bootstrap[1]
            audited = as_in_its_pod(audit, secret, here, tmp_path)
            kept = as_in_its_pod(container_of(rendered, "floe-maintenance"), secret, here, tmp_path)
    assert audited.returncode not in (0, 1), "no verdict of one of them"
    assert "nothing" in audited.stderr
    assert [each["equal"] for each in objects(audited.stdout)] == [None, True], audited.stderr
    assert kept.returncode == 0, kept.stderr
    (outcome,) = objects(kept.stdout)
    assert [each["topic"] for each in outcome["tables"]] == ["hello"]


def test_audits_of_all_come_by_a_schedule_of_their_own() -> None:
    rendered = resources(render(SPARK))
    runs = {}
    for name in ("audit", "audit-whole", "maintenance"):
        spec = rendered[f"CronJob/r-floe-{name}"]["spec"]
        assert (spec["concurrencyPolicy"], spec["jobTemplate"]["spec"]["backoffLimit"]) == ("Forbid", 0)
        runs[spec["schedule"]] = container_of(rendered, f"r-floe-{name}")["command"]
    assert runs["17 * * * *"][3:] == ["audit", "last", "clicks", "orders.v1"]
    assert runs["41 2 * * 0"][3:] == ["audit", "start", "clicks", "orders.v1"]
    assert runs["7 3 * * *"][-2:] == ["--files-min", "2"]
    never = resources(render(SPARK, "--set", "spark.audit.wholeSchedule="))
    assert "CronJob/r-floe-audit-whole" not in never


def test_one_spark_that_stays_takes_the_place_of_the_hourly_audit() -> None:
    name = "r-floe-audit"
    rendered = resources(render(CONTINUOUS))
    assert not [each for each in rendered if each.startswith("CronJob/")]
    spec = rendered[f"Deployment/{name}"]["spec"]
    pod = spec["template"]
    (container,) = pod["spec"]["containers"]
    assert (spec["replicas"], spec["strategy"]["type"], pod["spec"]["restartPolicy"]) == (
        1,
        "Recreate",
        "Always",
    )
    assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert container["command"][:6] == ["floe", "table", "audit", "--continuous", "--every", "600"]
    assert container["command"][-1] == "--", "no topic: all that have a table"
    both = ("spark.audit.topics={clicks}", "spark.audit.wholeSchedule=41 2 * * 0")
    rendered = resources(render(CONTINUOUS, *(word for each in both for word in ("--set", each))))
    (container,) = pod_of(rendered[f"Deployment/{name}"])["containers"]
    assert container["command"][-2:] == ["--", "clicks"]
    assert container_of(rendered, f"{name}-whole")["command"][-2:] == ["start", "clicks"]
    assert f"CronJob/{name}" not in rendered


@pytest.mark.parametrize("values", [CONTINUOUS, NODES], ids=lambda path: path.stem)
def test_the_audit_that_stays_runs_by_its_own_command(tmp_path: Path, values: Path) -> None:
    """As it stands in the chart, but for how many rounds it makes and with nobody to ask."""
    rendered = resources(render(values))
    (container,) = pod_of(rendered["Deployment/r-floe-audit"])["containers"]
    place = container["command"].index("--")
    container["command"][place:place] = ["--rounds", "1"]
    file = tmp_path / "floe.yaml"
    text = rendered["ConfigMap/r-floe"]["data"]["floe.yaml"]
    for key in ("access-key", "secret-key"):
        (tmp_path / key).write_text("k")
        text = text.replace(f"/etc/floe/store-keys/{key}", str(tmp_path / key))
    file.write_text(text)
    container["env"].append({"name": "FLOE_HTTP", "value": "http://127.0.0.1:1"})
    here = (STANDS_FOR[0], str(file), str(tmp_path), STANDS_FOR[3])
    told = as_in_its_pod(container, {"access-key": "a", "secret-key": "b"}, here, tmp_path)
    assert told.returncode == 4, told
    assert "no agent answers at http://127.0.0.1:1" in told.stderr, "words and configuration were taken"


def test_the_audit_that_stays_is_made_anew_with_its_configuration() -> None:
    """It reads the file once: its pod has to change with that."""

    def checksums(*extra: str) -> set[str]:
        rendered = resources(render(CONTINUOUS, *extra))
        pods = [
            rendered[name]["spec"]["template"] for name in ("Deployment/r-floe-audit", "StatefulSet/r-floe")
        ]
        return {pod["metadata"]["annotations"]["checksum/config"] for pod in pods}

    (before,) = checksums()
    (after,) = checksums("--set", "objectStore.endpoint=https://another.store:9000")
    assert before != after


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("spark.image=", "spark.image is empty"),
        ("spark.audit.topics=null", "spark.audit.topics is empty"),
        ("spark.audit.topics={a b}", "/spark/audit/topics"),
        ("spark.audit.topics={--http}", "/spark/audit/topics"),
        ("spark.audit.schedule=now", "/spark/audit/schedule"),
        ("spark.audit.continuous.everySeconds=0", "/spark/audit/continuous/everySeconds"),
        ("spark.extraEnv[0].name=HOME", "spark.extraEnv: HOME is there already: the chart sets it"),
        ("spark.extraEnv[0].name=FLOE_JARS", "spark.extraEnv: FLOE_JARS is there already: set spark.jars"),
        (
            "spark.extraEnv[0].name=A,extraEnv[0].name=A",
            "spark.extraEnv: A is there already: extraEnv sets it",
        ),
        ("extraEnv[0].name=AWS_ACCESS_KEY_ID", "there AWS_ACCESS_KEY_ID is already: it is in objectStore"),
        ("spark.extraEnv[0].name=A,spark.extraEnv[0].value=1", "/spark/extraEnv/0/value"),
        ("spark.extraVolumes[0].name=config", "spark.extraVolumes: the volume config is the chart's own"),
        ("spark.extraVolumes[0].name=store-keys", "the volume store-keys is the chart's own"),
        ("spark.extraVolumes[0].name=a,extraVolumes[0].name=a", "the volume a is one of extraVolumes"),
        ("spark.extraVolumeMounts[0].name=a", "/spark/extraVolumeMounts/0"),
        (
            "spark.extraVolumeMounts[0].name=a,spark.extraVolumeMounts[0].mountPath=/a",
            "spark.extraVolumeMounts: a is mounted and Spark's pods have no such volume",
        ),
        (
            "extraVolumes[0].name=a,extraVolumeMounts[0].name=a,extraVolumeMounts[0].mountPath=/tmp/",
            "extraVolumeMounts: something is mounted at /tmp/ of Spark's pods already",
        ),
        ("objectStore.credentialsSecretName=", "spark.audit needs objectStore.credentialsSecretName"),
    ],
)
def test_jobs_that_could_not_run_are_refused(setting: str, complaint: str) -> None:
    refused_with(SPARK, "r", setting, complaint)


def test_a_whole_audit_needs_names() -> None:
    refused_with(CONTINUOUS, "r", "spark.audit.wholeSchedule=41 2 * * 0", "spark.audit.topics is empty")


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        (
            f"fullnameOverride={'n' * 41},spark.audit.enabled=false",
            f"spark.maintenance.enabled: the CronJob {'n' * 41}-maintenance has a name of 53 characters, and "
            "52 are possible: set fullnameOverride to 40 at most",
        ),
        (f"fullnameOverride={'n' * 41}", f"spark.audit.wholeSchedule: the CronJob {'n' * 41}-audit-whole"),
        (
            f"fullnameOverride={'n' * 47},spark.audit.wholeSchedule=,spark.maintenance.enabled=false",
            "fullnameOverride to 46 at most",
        ),
        (
            "kind=Deployment,groups[0].name=audit,spark.audit.continuous.enabled=true",
            "the Deployment r-floe-audit would be there twice, for spark.audit.continuous.enabled and for",
        ),
    ],
    ids=["maintenance", "whole", "audit", "twice"],
)
def test_jobs_with_names_that_kubernetes_would_refuse_are_refused(setting: str, complaint: str) -> None:
    refused_with(SPARK, "r", setting, complaint)


def test_jobs_with_the_longest_names_are_possible() -> None:
    rendered = resources(render(SPARK, "--set", f"fullnameOverride={'n' * 40},objectStore.prepare=true"))
    assert max(len(name) for name in rendered if name.startswith("CronJob/")) == len("CronJob/") + 52
