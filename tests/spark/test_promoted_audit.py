"""A cluster is copied and lost, its copy promoted: `floe table audit` proves the moved table whole."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deploy.run.damage import damage
from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent, clustered
from deploy.setup.jars import ensure
from deploy.setup.java import java_home
from tests.torture.copying import floe
from tests.torture.promoting import (
    PARTITIONS,
    SETTINGS,
    asked,
    config_of,
    copied_with,
    emptied,
    properties,
    written,
)
from tests.torture.run import open_catalog, table_differs
from tests.torture.workload import read_all

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]
TOPIC = "audited"
BEFORE, AFTER = 2_000, 100
ROOT = Path(__file__).parents[2]


class Promoted(NamedTuple):
    """The copy's agent, and where the tables were before and are."""

    agent: FloeAgent
    minio: Minio
    source: str
    url: str


@pytest.fixture(scope="module")
def promoted(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Promoted]:
    """Nothing of the source is left; the table has rows of before and of after."""
    names = minio.make_bucket("audited-source"), minio.make_bucket("audited-copy")
    source, url = f"s3://{names[0]}/main", f"s3://{names[1]}/copy"
    config = config_of(minio, url, tmp_path_factory.mktemp("promoted"))
    with Etcd(fsync=False) as own:
        settings = {**clustered(etcd=own.endpoint, bucket_url=source, store=minio), **SETTINGS}
        with FloeAgent("origin", settings) as agent:
            writer = written(agent, TOPIC, "before", BEFORE)
            _in_table(agent, minio)
            copied_with(agent, [writer], ["--from", source, "--to", url, "--config", str(config)])
    emptied(minio, names[0])
    log = f"etcd://{etcd.endpoint}/{names[1]}"
    words = ["restore", "cluster", "--from", url, "--to", log, "--config", str(config)]
    done = floe(*words, "--log-is-lost", "--settle", "0", "--output", "json")
    assert done.returncode == 0, done.stderr
    assert [each["error"] for each in json.loads(done.stdout)["moved"]] == [""]
    settings = {**clustered(etcd="", bucket_url=url, store=minio), **SETTINGS, "log": {"url": log}}
    with FloeAgent("promoted", settings) as agent:
        written(agent, TOPIC, "after", AFTER)
        _in_table(agent, minio)
        yield Promoted(agent, minio, source, url)


def _in_table(agent: FloeAgent, minio: Minio) -> None:
    """Wait until the table has every record."""
    final = read_all(agent.bootstrap, TOPIC, PARTITIONS)
    assert table_differs(open_catalog(agent.http, properties(minio)), TOPIC, final) == []


def audit(promoted: Promoted) -> tuple[int, dict[str, Any]]:
    """Status and verdict of the command, of all that the topic ever had."""
    words = ["table", "audit", TOPIC, "--since", "start", "--output", "json"]
    words += ["--jars", str(ensure("iceberg")[0].parent), "--kafka-jars", str(ensure("sparkkafka")[0].parent)]
    words += ["--java-home", str(java_home()), "--config", str(promoted.agent.config_file)]
    words += ["--bootstrap", promoted.agent.bootstrap, "--http", promoted.agent.http]
    done = subprocess.run(
        [sys.executable, "-m", "agent", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.thorough
def test_a_moved_table_that_went_on_is_proven_equal_from_its_start(promoted: Promoted) -> None:
    status, verdict = audit(promoted)
    assert (status, verdict["equal"], verdict["since"]) == (0, True, []), verdict
    (count,) = verdict["topics"]
    assert count["table"] == count["consumed"] == BEFORE + AFTER
    told = asked(f"{promoted.agent.http}/iceberg/v1/namespaces/floe/tables/{TOPIC}")
    assert promoted.url in told
    assert promoted.source not in told


@pytest.mark.thorough
def test_a_row_of_before_the_move_that_was_changed_is_found(promoted: Promoted) -> None:
    (done,) = damage(
        ["change"], TOPIC, f"floe.{TOPIC}", f"{promoted.agent.http}/iceberg", properties(promoted.minio)
    )
    assert done.offset < BEFORE / len(PARTITIONS), "it was there before"
    assert done.path.startswith(f"{promoted.url}/tables/")
    status, verdict = audit(promoted)
    assert (status, verdict["equal"]) == (1, False)
    found = {(each["kind"], each["partition"], each["offset"]) for each in verdict["findings"]}
    assert found == {("changed", done.partition, done.offset)}
