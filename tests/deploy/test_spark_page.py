"""docs/spark.md, what of it no Spark runs: the operator's form of its CronJob, the image of the jobs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import yaml

from deploy.setup.jars import JARS

ROOT = Path(__file__).resolve().parents[2]
AGENTS = (ROOT / "deploy" / "images" / "Containerfile").read_text()
PAGE = (ROOT / "docs" / "spark.md").read_text()


def block(name: str) -> str:
    (found,) = re.findall(rf"^```\w+ {re.escape(name)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert isinstance(found, str)
    return found


def test_the_operators_job_is_the_one_of_the_cron_job() -> None:
    """That one is run with every command of the page (tests/spark/test_page.py)."""
    cron = list(yaml.safe_load_all(block("clicks.yaml")))[-1]
    (container,) = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    words = container["args"]
    conf = dict(word.removeprefix("--conf=").split("=", 1) for word in words if word.startswith("--conf="))
    (packages,) = [word.removeprefix("--py-files=") for word in words if word.startswith("--py-files=")]
    job, *arguments = [word for word in words if not word.startswith("--")]
    scheduled = yaml.safe_load(block("clicks-operator.yml"))["spec"]
    application = scheduled["template"]
    assert (scheduled["schedule"], scheduled["concurrencyPolicy"]) == (
        cron["spec"]["schedule"],
        cron["spec"]["concurrencyPolicy"],
    )
    assert application["image"] == container["image"] == conf["spark.kubernetes.container.image"]
    assert application["mainApplicationFile"] == f"local://{job}"
    assert application["deps"]["pyFiles"] == [f"local://{packages}"]
    assert application["arguments"] == arguments
    executor = application["executor"]
    assert str(executor["instances"]) == conf["spark.executor.instances"]
    assert executor["memory"] == conf["spark.executor.memory"]
    account = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["serviceAccountName"]
    assert application["driver"]["serviceAccount"] == account
    assert f"pyspark=={application['sparkVersion']}" in (ROOT / "requirements.lock").read_text()


def test_the_image_of_the_charts_jobs_has_what_they_name() -> None:
    text = block("Containerfile.jobs")
    lock = (ROOT / "requirements.lock").read_text()
    pinned = re.findall(r"(\w+)==(\S+)", text)
    assert {name for name, _ in pinned} == {"pyspark", "pandas"}
    for name, version in pinned:
        assert f"\n{name}=={version} " in lock, name
    spark = yaml.safe_load((ROOT / "helm" / "floe" / "values.yaml").read_text())["spark"]
    assert {spark["jars"], spark["kafkaJars"]} == set(re.findall(r"^COPY \S+ (\S+)$", text, re.MULTILINE))
    venv = (ROOT / "deploy" / "images" / "Containerfile").read_text()
    assert "ENV PATH=/opt/floe/bin:" in venv, "whose Python it installs into"
    assert text.rstrip().endswith("USER 10001:10001")


def test_the_image_of_the_charts_jobs_is_built_by_the_commands_of_the_page() -> None:
    """From an agent's image that has what it calls, and with jars that lie where the build looks for them."""
    text = block("Containerfile.jobs")
    agent, jars, jobs = map(shlex.split, block("build-jobs.sh").splitlines())
    assert agent == shlex.split(_said_in_the_agents())
    argument = jobs[jobs.index("--build-arg") + 1]
    assert argument == f"AGENT_IMAGE={agent[agent.index('-t') + 1]}"
    assert f"ARG {argument.partition('=')[0]}\n" in text
    context = ROOT / jobs[-1]
    assert not [each for each in (".dockerignore", ".containerignore") if (context / each).exists()]
    brought = jars[jars.index("deploy.setup.jars") + 1 :]
    folders = {Path(source) for source in re.findall(r"^COPY (\S+) \S+$", text, re.MULTILINE)}
    assert {context / each for each in folders} == {JARS / each for each in brought}
    assert all((ROOT / "deploy" / "setup" / f"jars-{each}.sha256").exists() for each in brought)
    base = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", AGENTS, re.MULTILINE)
    assert base, "Debian with pip and apt: python's own image"
    assert "/python:" in base[0]


def _said_in_the_agents() -> str:
    (command,) = re.findall(r"^#   (docker build .+)$", AGENTS, re.MULTILINE)
    assert isinstance(command, str)
    return command
