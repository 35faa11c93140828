"""The promotion of a copy is killed by SIGKILL at a step, and made again: tables are the topics afterwards.

One copied bucket is copied again for each story, by the store itself. The cluster and its bucket are gone.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from coordination.steps import MOVE_STEPS, RESTORE_STEPS
from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent, clustered
from objectstore.across import across
from objectstore.copying import Copier, side_by_side
from objectstore.open import StoreOptions, open_store
from tests.equipment.thorough import one_in
from tests.torture.copying import floe
from tests.torture.crashing_agent import Armed
from tests.torture.promoting import (
    PARTITIONS,
    SETTINGS,
    WAIT_S,
    asked,
    config_of,
    copied_with,
    emptied,
    properties,
    written,
)
from tests.torture.run import open_catalog, table_differs
from tests.torture.verdict import judge
from tests.torture.workload import Writer, read_all

pytestmark = [pytest.mark.services, pytest.mark.timeout(1200)]
ROOT = Path(__file__).parents[2]
TOPICS = ("first", "second")
RECORDS, MORE = 200, 60
ELSEWHERE = ("move/put-deletes", "move/put-segment")
"""Of tables that others delete from, and of those with 160 commits: tests/spark/test_moved_tables.py and
tests/unit/iceberg/test_moved_tables.py die there."""


class Origin(NamedTuple):
    """A copied bucket, which is only read, and what the topics of the cluster had."""

    minio: Minio
    url: str
    source: str
    writers: list[Writer]


@pytest.fixture(scope="module")
def origin(minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Origin:
    names = minio.make_bucket("moves-source"), minio.make_bucket("moves-copy")
    source, copy = f"s3://{names[0]}/main", f"s3://{names[1]}/copy"
    with Etcd(fsync=False) as etcd:
        settings = {**clustered(etcd=etcd.endpoint, bucket_url=source, store=minio), **SETTINGS}
        with FloeAgent("origin", settings) as agent:
            writers = [written(agent, topic, "before", RECORDS) for topic in TOPICS]
            for topic, writer in zip(TOPICS, writers, strict=True):
                same(agent, minio, topic, writer)
            config = config_of(minio, source, tmp_path_factory.mktemp("origin"))
            copied_with(agent, writers, ["--from", source, "--to", copy, "--config", str(config)])
    emptied(minio, names[0])
    return Origin(minio, copy, source, writers)


def same(agent: FloeAgent, minio: Minio, topic: str, *writers: Writer) -> None:
    """The topic has what was acknowledged, each once; the table is the topic."""
    final = read_all(agent.bootstrap, topic, PARTITIONS)
    verdict = judge([send for writer in writers for send in writer.sent], final, [])
    verdict.findings += table_differs(open_catalog(agent.http, properties(minio)), topic, final)
    assert verdict.findings == [], verdict.report()


class Story(NamedTuple):
    """A copy of the copy, and how it is promoted."""

    origin: Origin
    url: str
    log: str
    config: Path
    armed: Armed

    @property
    def words(self) -> list[str]:
        return [
            "restore", "cluster", "--from", self.url, "--to", self.log, "--config", str(self.config),
            "--log-is-lost", "--settle", "0", "--output", "json",
        ]  # fmt: skip

    def killed(self, step: str, times: int = 1) -> None:
        """The promotion dies where it reaches the step for the n-th time."""
        self.armed.arm(step, times)
        command = [sys.executable, "-m", "tests.torture.crashing_agent", str(self.armed.path), *self.words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == -signal.SIGKILL, f"{step}: {done.stdout}{done.stderr}"

    def promoted(self) -> None:
        """Made again, it is as if nothing had been."""
        done = floe(*self.words)
        assert done.returncode == 0, done.stderr
        tables = json.loads(done.stdout)["moved"]
        assert [(each["name"], each["error"], each["lost"]) for each in tables] == [
            (topic, "", []) for topic in TOPICS
        ]
        assert all(each["metadata"].startswith(f"{self.url}/tables/") for each in tables)


@pytest.fixture
def story(origin: Origin, etcd: Etcd, bucket: Callable[[Minio], str], tmp_path: Path) -> Story:
    name = bucket(origin.minio)
    url = f"s3://{name}/copy"
    asyncio.run(_again(origin, url))
    config = config_of(origin.minio, url, tmp_path)
    return Story(origin, url, f"etcd://{etcd.endpoint}/{name}", config, Armed(tmp_path / "armed"))


async def _again(origin: Origin, url: str) -> None:
    minio = origin.minio
    options = StoreOptions(
        endpoint=minio.endpoint, access_key=minio.access_key, secret_key=minio.secret_key, allow_http=True
    )
    given = {name: getattr(options, name) for name in ("endpoint", "access_key", "secret_key", "allow_http")}
    source, target = open_store(origin.url, **given), open_store(url, **given)
    copier = Copier(source, target, None, across((origin.url, url), (options, options), lambda: None))
    async for pair in side_by_side(source, target, ""):
        assert pair.source is not None
        await copier.begin(pair.source)
    await copier.end()
    assert copier.counts.by_store == copier.counts.objects
    for each in (source, target):
        await each.close()


@pytest.mark.parametrize("step", one_in(3, [each for each in MOVE_STEPS if each not in ELSEWHERE]))
def test_killed_within_a_table(story: Story, step: str) -> None:
    """At the first time that the step is reached, and later: in the second table, or behind others."""
    story.killed(step)
    story.killed(step, 2)
    story.promoted()
    _goes_on(story)


def test_killed_at_each_step_of_the_promotion_in_turn(story: Story) -> None:
    *before, last = RESTORE_STEPS
    for step in before:
        story.killed(step)
    story.killed(last)
    done = floe(*story.words)
    assert done.returncode != 0
    assert "start the agents" in done.stderr, "it was done before it died"
    _goes_on(story)


def _goes_on(story: Story) -> None:
    """An agent of the copy commits more, and removes what nobody names."""
    minio = story.origin.minio
    settings = {**clustered(etcd="", bucket_url=story.url, store=minio), **SETTINGS}
    settings["log"] = {"url": story.log}
    with FloeAgent("promoted", settings) as agent:
        orphans = [_orphan(story, agent, topic) for topic in TOPICS]
        writers = [
            [before, written(agent, topic, "after", MORE)]
            for topic, before in zip(TOPICS, story.origin.writers, strict=True)
        ]
        for topic, both in zip(TOPICS, writers, strict=True):
            same(agent, minio, topic, *both)
        until = time.monotonic() + WAIT_S
        while not all(_gone(story, key) for key in orphans):
            assert time.monotonic() < until, "orphans stay"
            for topic, both in zip(TOPICS, writers, strict=True):
                both.append(written(agent, topic, f"more-{len(both)}", 2))  # a sweep follows a commit
        for topic, all_of_them in zip(TOPICS, writers, strict=True):
            same(agent, minio, topic, *all_of_them)
            metadata = asked(f"{agent.http}/iceberg/v1/namespaces/floe/tables/{topic}")
            assert story.origin.source not in metadata


def _orphan(story: Story, agent: FloeAgent, topic: str) -> str:
    """A file in the table's folder that no snapshot names, as a death leaves them."""
    name = story.url.split("/")[2]
    table = open_catalog(agent.http, properties(story.origin.minio)).load_table(("floe", topic))
    key = f"{table.location().removeprefix(f's3://{name}/')}/data/orphan.parquet"
    story.origin.minio.client().put_object(Bucket=name, Key=key, Body=b"left behind")
    return key


def _gone(story: Story, key: str) -> bool:
    name = story.url.split("/")[2]
    return not story.origin.minio.client().list_objects_v2(Bucket=name, Prefix=key).get("Contents")
