"""`floe copy`: what it says and refuses. What it does: tests/unit/coordination/test_copying.py."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.unit.agent.cli.conftest import Ran, inside
from tests.unit.agent.cli.test_restore import fill


def copied(source: Path, target: Path, *more: str) -> Ran:
    return inside("copy", "--from", f"file://{source}", "--to", f"file://{target}", *more)


def test_it_says_how_far_it_is_and_goes_on(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    asyncio.run(fill(source))
    ran = copied(source, target)
    assert (ran.status, "complete through revision" in ran.out) == (0, True), ran.err
    told = json.loads(copied(source, target, "--output", "json").out)
    assert (told["objects"], told["missing"], told["partitions"][0]["topic"]) == (0, [], "t")
    assert (target / "copy.json").exists()


def test_what_makes_no_sense_is_said_in_one_line(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    ran = copied(source, target)
    assert (ran.status, "cluster.json" in ran.err, ran.err.count("\n")) == (5, True, 1)
    assert copied(source, source).status == 2
    asyncio.run(fill(source))
    target.mkdir(exist_ok=True)
    (target / "mine").write_bytes(b"x")
    ran = copied(source, target)
    assert (ran.status, "empty prefix" in ran.err, ran.err.count("\n")) == (5, True, 1)
