"""Jobs over Spark Connect: a client without a JVM reads increments, merges, dies; each row is there once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.run.stages import Embedded
from tests.spark.connect import EXTENSIONS, Connect
from tests.spark.embedded import produce, rows

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Connect]:
    """A Connect server with Iceberg."""
    with Connect(tmp_path / "connect") as found:
        yield found


def client(code: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    """A Python process that could start no JVM if it tried."""
    environment = {
        "PATH": "", "JAVA_HOME": "/nowhere", "PYTHONPATH": str(ROOT), "HOME": os.environ.get("HOME", "/"),
    }  # fmt: skip
    line = [sys.executable, *code, *words]
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False)


def job(floe: Embedded, server: Connect, last: str = "") -> dict[str, Any]:
    """What a run of the job says."""
    ran = client(["-m", "tests.spark.connect_job"], f"{floe.http[0]}/iceberg", server.url, last)
    assert ran.returncode == 0, ran.stderr[-3000:]
    said: dict[str, Any] = json.loads(ran.stdout)
    return said


def placed(floe: Embedded) -> list[tuple[object, object, object]]:
    return sorted((row["partition"], row["offset"], row["text"]) for row in rows(floe, "own.t"))


def due(*ends: int) -> list[tuple[int, int, str]]:
    """Each record once, its text the count within what was produced together."""
    return [(partition, offset, str(offset)) for partition, end in enumerate(ends) for offset in range(end)]


@pytest.mark.thorough
def test_a_job_over_connect_has_each_row_once_wherever_its_client_dies(
    floe: Embedded, server: Connect, tmp_path: Path
) -> None:
    produce(floe, 0, 50, 50)
    produce(floe, 1, 30, 80)
    for step, left in (("note the watermark", due()), ("publish", due()), ("drop the branch", due(50, 30))):
        ran = client(["-m", "tests.spark.connect_job"], f"{floe.http[0]}/iceberg", server.url, step)
        assert ran.returncode == -9, ran.stderr[-3000:]
        assert placed(floe) == left, step
    assert job(floe, server)["new"] is None, "the run that died had published"
    produce(floe, 1, 2, 82)
    assert job(floe, server)["new"] == [[50, 30], [50, 32]]
    told = job(floe, server, str(tmp_path / "checkpoint"))
    assert (told["new"], told["unread"], told["behind"]) == (None, 0, True)
    assert (told["right"], told["streamed"], told["decoded"]) == (81, 62, [7, 8])


SESSION = """
import sys
from iceberg.spark import session
session("http://127.0.0.1:1/iceberg", remote=sys.argv[1])
"""


def test_a_server_without_iceberg_s_sql_is_refused_and_told_what_it_lacks(tmp_path: Path) -> None:
    with Connect(tmp_path / "bare", settings=()) as server:
        ran = client(["-c", SESSION], server.url)
    (*_, line) = ran.stderr.splitlines()
    assert line.startswith(f"ValueError: remote='{server.url}': its spark.sql.extensions are ''"), ran.stderr
    assert "start the server with --packages org.apache.iceberg:iceberg-spark-runtime" in line
    assert line.endswith(EXTENSIONS)
