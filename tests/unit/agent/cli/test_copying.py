"""`floe copy`: what it says and refuses. What it does: tests/unit/coordination/test_copying.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from deploy.services import Minio
from objectstore.open import open_store
from tests.unit.agent.cli.conftest import Ran, inside
from tests.unit.agent.cli.test_restore import fill, fill_store


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


@pytest.mark.services
@pytest.mark.parametrize("how", ["--by-store", "--through-here"])
def test_buckets_of_one_store_are_copied_by_the_store_unless_that_is_off(
    minio: Minio, bucket: Callable[[Minio], str], tmp_path: Path, how: str
) -> None:
    source, target = bucket(minio), bucket(minio)
    url, keys = f"s3://{source}/main", {"access_key": minio.access_key, "secret_key": minio.secret_key}
    options = {"endpoint": minio.endpoint, **keys, "allow_http": True}
    asyncio.run(fill_store(open_store(url, **options)))
    config = tmp_path / "store.yaml"
    config.touch(mode=0o600)
    config.write_text(yaml.safe_dump({"store": {**options, "url": url}}))
    words = ["copy", "--from", url, "--to", f"s3://{target}/copy", "--config", str(config), how]
    ran = inside(*words, "--rate", "1000", "--verify", "read", "--output", "json")
    assert ran.status == 0, ran.err
    told = json.loads(ran.out)
    assert (told["objects"] > told["by_store"], told["refused"]) == (True, "")
    assert (told["by_store"] > 0) == (how == "--by-store")
    assert told["read_back"] == told["objects"]
