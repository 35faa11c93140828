"""spark-submit on a standalone cluster of two workers: the driver is killed, and what it leaves is exact."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.run.stages import Embedded
from deploy.setup.jars import ensure
from deploy.setup.java import java_home
from iceberg.spark.package import build
from tests.spark.cluster import QUICK, WORKERS, Cluster, standalone
from tests.spark.doubtful_job import BETWEEN
from tests.spark.embedded import produce, rows

JOB = Path(__file__).with_name("doubtful_job.py")

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A master and two workers of 512 MiB."""
    with standalone(tmp_path / "spark") as found:
        yield found


def submit(
    folder: Path, floe: Embedded, cluster: Cluster, step: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the job by the archive alone: the checkout is not on its path."""
    words = [str(Path(sys.executable).parent / "spark-submit"), "--master", cluster.url]
    words += ["--driver-memory", "512m", "--executor-memory", "512m", "--conf", "spark.ui.enabled=false"]
    words += ["--jars", ",".join(map(str, ensure("iceberg")))]
    words += ["--py-files", str(build(folder / "floe-spark.zip")), str(JOB), f"{floe.http[0]}/iceberg", step]
    environment = {"PATH": os.environ["PATH"], "JAVA_HOME": str(java_home()), "HOME": str(folder)}
    environment |= {**QUICK, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    return subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=False)


WITHOUT_SUBMIT = """
import sys
from pathlib import Path
from iceberg.spark import read_since, session
uri, master, scratch, *jars = sys.argv[1:]
spark = session(uri, jars, master=master, scratch=Path(scratch), driver_memory_mib=512, short_lived=True,
                settings={"spark.executor.memory": "512m"})
rows = read_since(spark, "lake.floe.t").rows
print("rows", rows.repartition(2).selectExpr("kafka.offset").distinct().count(), spark.sparkContext.master)
"""


def placed(floe: Embedded) -> list[tuple[object, object, object]]:
    return sorted((row["partition"], row["offset"], row["half"]) for row in rows(floe, "own.t"))


def due(*ends: int) -> list[tuple[int, int, str]]:
    """Each record's two halves, once."""
    return [
        (partition, offset, half)
        for partition, end in enumerate(ends)
        for offset in range(end)
        for half in "ab"
    ]


@pytest.mark.thorough
def test_a_driver_killed_before_and_after_its_commit_leaves_each_row_once(
    floe: Embedded, cluster: Cluster, tmp_path: Path
) -> None:
    produce(floe, 0, 50, 50)
    produce(floe, 1, 30, 80)
    for step, left in ((BETWEEN, due()), ("publish", due()), ("drop the branch", due(50, 30))):
        ran = submit(tmp_path, floe, cluster, step)
        assert ran.returncode == -9, ran.stderr[-3000:]
        assert placed(floe) == left, step
    produce(floe, 1, 5, 85)
    ran = submit(tmp_path, floe, cluster)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert f"executors {WORKERS} offsets (50, 35)" in ran.stdout
    assert placed(floe) == due(50, 35)

    words = [f"{floe.http[0]}/iceberg", cluster.url, str(tmp_path), *map(str, ensure("iceberg"))]
    own = {"JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_SUBMIT, *words],
        env={**os.environ, **own}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert f"rows 50 {cluster.url}" in ran.stdout, ran.stderr[-3000:]
