"""docs/tutorials/pyspark.md: eight commands from a clone to a row seen in Spark."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from deploy.run.stages import Embedded
from tests.equipment.pages import Shell, blocks
from tests.spark.cluster import QUICK

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorials" / "pyspark.md"
COMMANDS_MAX = 8

pytestmark = [pytest.mark.services, pytest.mark.timeout(1200)]


def test_a_newcomer_sees_a_row_in_spark(tmp_path: Path) -> None:
    """What `make setup` makes is there; `floe dev` is the fixture's. All else is done as the page says."""
    job, commands = tmp_path / "first_job.py", 0
    with Embedded(tmp_path / "floe") as floe:
        instead = {"http://127.0.0.1:8080": floe.http[0], "first_job.py": str(job)}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        here = {"FLOE_BOOTSTRAP": floe.bootstrap, "FLOE_HTTP": floe.http[0], "HOME": str(tmp_path)}
        shell = Shell(tmp_path, instead, {**here, **QUICK, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}, ROOT)
        for block in blocks(PAGE):
            if block.language == "sh":
                commands += len(block.text.splitlines())
            if block.language == "python":
                job.write_text(shell.of_here(block.text))
            elif block.language == "text":
                assert block.text.rstrip() in shell.said, shell.said
            elif block.name not in ("once", "running"):
                shell.run(block.text)
    assert commands <= COMMANDS_MAX
