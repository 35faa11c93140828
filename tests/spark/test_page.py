"""docs/spark.md, command by command: a stranger who follows the page comes to what it says."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate  # type: ignore[import-untyped]  # it has no stubs
import pytest
import yaml

from deploy.run.stages import Embedded
from tests.equipment.pages import BLOCK, Shell, blocks
from tests.spark.cluster import QUICK, Cluster, standalone
from tests.spark.connect import EXTENSIONS, Connect

KUBERNETES = "1.36.0"
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "spark.md"
INLINE = re.compile(r"`((?:python|spark-submit|spark-class|floe|make|pip) [^`]+)`")
ELSEWHERE = {
    "make run",  # tests/spark/test_main_job.py runs its job
    "floe table audit",  # tests/unit/agent/cli/test_audit.py
    "floe table audit --continuous",  # tests/unit/agent/cli/test_audit_continuous.py
    "floe table audit --since digests",  # tests/spark/test_digests_live.py
    "floe quarantine replay",  # tests/compat/test_replay_embedded.py
    "make bench ONLY=replay",  # a million records take minutes
    "make kubernetes",  # needs root and a quarter of an hour; docs/kubernetes.md is what it saw
    "make image",  # `make kubernetes` begins with it
    "make run-cluster SECURE=1",  # the whole main job; its log is in docs/security.md
}
DONE_BEFORE = re.compile(r"^make setup\b.*$", re.MULTILINE)  # `make test` begins with it
RUNNING = {  # what the fixtures start, on ports of their own
    "floe dev\n",
    "spark-class org.apache.spark.deploy.master.Master --host 127.0.0.1 --port 7077\n",
    "spark-class org.apache.spark.deploy.worker.Worker spark://127.0.0.1:7077 --host 127.0.0.1 "
    "--cores 1 --memory 512m\n",
    "spark-submit --class org.apache.spark.sql.connect.service.SparkConnectServer --jars $JARS \\\n"
    f"    --conf {EXTENSIONS} spark-internal\n",
}

pytestmark = [pytest.mark.services, pytest.mark.timeout(3000)]  # some twenty JVMs, which wait for processors


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A terminal with Floe, a Spark cluster and a Connect server running beside it."""
    with (
        Embedded(tmp_path / "floe") as floe,
        standalone(tmp_path / "spark") as cluster,
        Connect(tmp_path / "connect") as connect,
    ):
        yield terminal(tmp_path, floe, cluster, connect)


def terminal(tmp_path: Path, floe: Embedded, cluster: Cluster, connect: Connect) -> Shell:
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    here = {"HOME": str(home), "FLOE_BOOTSTRAP": floe.bootstrap, "FLOE_HTTP": floe.http[0]}
    venv = f"{Path(sys.executable).parent}:{kept['PATH']}"
    instead = {
        "http://127.0.0.1:8080": floe.http[0],
        "127.0.0.1:9092": floe.bootstrap,
        "spark://127.0.0.1:7077": cluster.url,
        "sc://127.0.0.1:15002": connect.url,
        ". .venv/bin/activate": "true",
    }
    return Shell(home, instead, {**kept, **here, **QUICK, "PATH": venv, "SPARK_LOCAL_IP": "127.0.0.1"}, ROOT)


def run_as_kubernetes_would(shell: Shell, text: str) -> None:
    """The manifests are Kubernetes', what the image copies is there, and the driver's command does its job.

    Instead of the cluster's pods there is one thread; jars are given, since nothing is baked in here.
    """
    documents = list(yaml.safe_load_all(text))
    for each in documents:
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
    for source in re.findall(
        r"^COPY (.*) /opt/\S+$", (shell.folder / "Containerfile").read_text(), re.MULTILINE
    ):
        for name in source.split():
            assert (shell.folder / name).exists(), name
    (container,) = documents[-1]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    line = " ".join(f"'{word}'" for word in [*container["command"], *container["args"]])
    for theirs, ours in {
        "/opt/spark/bin/": "",
        "k8s://https://kubernetes.default.svc": "local[1]",
        "$(POD_IP)": "127.0.0.1",
        "/opt/job": str(shell.folder),
        "http://floe.streams.svc:8080": "http://127.0.0.1:8080",
        "'--conf=spark.executor.instances=2'": "--jars=$JARS",
    }.items():
        assert theirs in line, theirs
        line = line.replace(theirs, ours)
    shell.run(line)
    assert shell.said[-1:] == ["offsets as before rows 4"]


@pytest.mark.thorough
def test_every_command_of_the_page_runs_and_says_what_the_page_says(shell: Shell) -> None:
    ran = 0
    for block in blocks(PAGE):
        if block.name == "running":
            assert block.text in RUNNING, "nothing here starts it"
        elif block.language == "sh":
            shell.run(DONE_BEFORE.sub("", block.text))
            ran += 1
        elif block.name:
            (shell.folder / block.name).write_text(shell.of_here(block.text))
            if block.language == "yaml":
                run_as_kubernetes_would(shell, block.text)
        else:
            assert block.language == "text", block
            for line in block.text.splitlines():
                assert any(each.startswith(line) for each in shell.said), (line, shell.said)
    assert ran >= 13


def test_a_command_within_the_text_is_one_that_runs() -> None:
    text = PAGE.read_text()
    run = "\n".join(block.text for block in blocks(PAGE) if block.language == "sh")
    assert {each for each in INLINE.findall(BLOCK.sub("", text)) if each not in run} <= ELSEWHERE
