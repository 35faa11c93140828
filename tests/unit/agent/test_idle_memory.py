"""An agent without tables has nothing in its memory that only tables need; the first topic that wants one
brings it, and gets its table."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.unit.agent.cli.conftest import CLEAN, ROOT, Dev, start_dev

ONLY_TABLES = {"pyarrow", "pyiceberg", "numpy", "pandas", "requests"}
"""With what is built upon them some 45 MiB of an agent's own memory, and as much of libraries' pages."""
ELSEWHERE = {"boto3", "botocore", "protovalidate", "opentelemetry", "sqlalchemy", "pyspark"}
"""Each is for one setting, or in a process of its own."""
LIBRARY = "libarrow.so"
WAIT_S_MAX = 300.0


@pytest.mark.parametrize("root", ["agent.app", "agent.following.app"])
def test_what_an_agent_imports_has_nothing_of_what_only_tables_need(root: str) -> None:
    script = f"import sys, {root}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, env=CLEAN, check=True
    )
    found = {name.partition(".")[0] for name in done.stdout.split()}
    assert not found & (ONLY_TABLES | ELSEWHERE)


def test_the_first_topic_that_wants_a_table_brings_what_tables_need(tmp_path: Path) -> None:
    dev = start_dev(tmp_path / "data")
    try:
        dev.run("topic", "create", "plain", "--config", "floe.table.enabled=false")
        dev.run("produce", "plain", "-v", "one")
        assert not _loaded(dev)
        dev.run("topic", "create", "kept", "--config", "floe.table.enabled=true")
        dev.run("produce", "kept", "-v", "one")
        end = time.monotonic() + WAIT_S_MAX
        while (found := _behind(dev, "kept")) != 0 and time.monotonic() < end:
            time.sleep(0.2)
        assert (found, _loaded(dev)) == (0, True)
    finally:
        assert dev.stop() == 0


def _loaded(dev: Dev) -> bool:
    return LIBRARY in Path(f"/proc/{dev.process.pid}/maps").read_text()


def _behind(dev: Dev, topic: str) -> int | None:
    """Records that the topic's table lacks; None while there is no table."""
    with urlopen(f"{dev.http}/status.json") as response:
        tables = json.loads(response.read())["tables"]
    return next((each["records_behind"] for each in tables if each["topic"] == topic), None)
