"""JVMs of short-lived sessions have as much room for compiled code as others, and start from an archive."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deploy.setup import class_archive
from deploy.setup.java import java_home
from iceberg.spark.consumed import consumed_history
from iceberg.spark.session import QUICK
from iceberg.spark.tables import XXHASH
from tests.spark import cluster

pytestmark = pytest.mark.services
BYTES_MIN = 200 << 20


@pytest.mark.parametrize("options", [QUICK, cluster.QUICK["JAVA_TOOL_OPTIONS"]], ids=["driver", "workers"])
def test_the_code_cache_holds_what_spark_generates(options: str) -> None:
    """A JVM without its optimising compiler has 48 MiB of it by default; Spark fills that, and then fails."""
    command = [str(java_home() / "bin" / "java"), *options.split(), "-XX:+PrintFlagsFinal", "-version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    (size,) = re.findall(r"ReservedCodeCacheSize\s+= (\d+)", told)
    assert int(size) >= BYTES_MIN


def test_a_driver_has_its_classes_from_the_archive(jvm: SparkSession) -> None:
    """Where class path or Java are others the JVM starts without it: slowly, and without a word."""
    archive = class_archive.make()
    process = jvm.sparkContext._gateway.proc
    assert str(archive) in Path(f"/proc/{process.pid}/maps").read_text()


def test_records_of_a_topic_come_as_rows_of_spark(jvm: SparkSession) -> None:
    """Spark's older source makes Java objects of each record first, for a third more of the processor."""
    found = consumed_history(jvm, "127.0.0.1:1", "t", {0: [(0, 1)]}, XXHASH)
    planned = found._jdf.queryExecution().optimizedPlan().toString()
    assert "RelationV2" in planned, planned
