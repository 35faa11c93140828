"""docs/tutorials, command by command: whoever follows a page comes to what it says."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from deploy.services.kafka import Kafka
from tests.compat.conftest import Embedded, start, stop
from tests.equipment.pages import Shell, blocks

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
ELSEWHERE = {"kubernetes.md", "pyspark.md"}
"""Run by tests/deploy/test_tutorial.py and tests/spark/test_tutorial.py."""
OF_MAKE = {"make setup                # some minutes, once\n. .venv/bin/activate\n"}

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]


@pytest.fixture
def floe(tmp_path: Path) -> Iterator[Embedded]:
    agent = start(tmp_path / "floe-data", "tables.enabled=true")
    try:
        yield agent
    finally:
        stop(agent)


def terminal(tmp_path: Path, floe: Embedded, more: Mapping[str, str] | None = None) -> Shell:
    """A user's, with Floe's addresses for the page's."""
    home = tmp_path / "home"
    home.mkdir()
    instead = {"http://127.0.0.1:8080": floe.http, **(more or {}), "127.0.0.1:9092": floe.bootstrap}
    here = {"HOME": str(home), "FLOE_BOOTSTRAP": floe.bootstrap, "FLOE_HTTP": floe.http}
    return Shell(home, instead, {**here, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}, home)


def follow(page: str, shell: Shell) -> int:
    """Do what the page says, in its order; gives how many blocks were run."""
    ran = 0
    for block in blocks(TUTORIALS / page):
        if block.name == "running":
            assert block.text == "floe dev\n"
        elif block.name == "once":
            assert block.text in OF_MAKE
        elif block.language == "sh":
            shell.run(block.text, fails=block.name == "fails")
            ran += 1
        elif block.name:
            (shell.folder / block.name).write_text(shell.of_here(block.text))
        else:
            assert block.language == "text", block
            for line in block.text.splitlines():
                assert any(line in each for each in shell.said), (line, shell.said)
    return ran


def test_five_minutes_embedded(tmp_path: Path, floe: Embedded) -> None:
    assert follow("embedded.md", terminal(tmp_path, floe)) == 4


def test_protobuf_from_zero(tmp_path: Path, floe: Embedded) -> None:
    assert follow("protobuf.md", terminal(tmp_path, floe)) == 6


def test_from_kafka_with_clients_unchanged(tmp_path: Path, floe: Embedded) -> None:
    with Kafka() as kafka:
        shell = terminal(tmp_path, floe, {"127.0.0.1:19092": kafka.bootstrap})
        assert follow("from-kafka.md", shell) == 3


def test_every_tutorial_is_run_by_a_test() -> None:
    here = set(re.findall(r'follow\("([a-z-]+\.md)"', Path(__file__).read_text()))
    assert {page.name for page in TUTORIALS.glob("*.md")} == here | ELSEWHERE
