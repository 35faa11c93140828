"""`floe restore cluster`: what it says and refuses. What it does: tests/unit/coordination/test_restore.py."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from google.protobuf.message import Message

from agent.cli.restore import _remarks
from coordination.commands import CommitTable, PutNamespace
from coordination.restore.report import Report, TopicBack
from coordination.state import Done
from deploy.services import Etcd
from objectstore.open import open_store
from objectstore.store import ObjectStore
from tests.unit.agent.cli.conftest import Ran, inside
from tests.unit.coordination.kit import A, Script
from tests.unit.coordination.lost import Lost, Sent

pytestmark = pytest.mark.services


async def fill(root: Path, *more: Message) -> None:
    """See fill_store."""
    await fill_store(open_store(f"file://{root}"), *more)


async def fill_store(store: ObjectStore, *more: Message) -> None:
    """A bucket with an archived topic and a chunk that is not archived. `more`: archived commands."""
    script = Script()
    script.register(A)
    lost = Lost(store, script)
    script.topic(A, "t")
    for each in more:
        assert isinstance(script.one(A, each), Done)
    await lost.bind()
    await lost.archive()
    await lost.commit(A, Sent(0, ["a", "b"]))
    await lost.store.close()


def restore(root: Path, to: str, *more: str) -> Ran:
    return inside("restore", "cluster", "--from", f"file://{root}", "--to", to, "--settle", "0", *more)


def test_it_says_what_it_found_and_refuses_to_do_it_twice(tmp_path: Path, etcd: Etcd) -> None:
    asyncio.run(fill(tmp_path))
    to = f"etcd://{etcd.endpoint}/{tmp_path.name}"
    ran = restore(tmp_path, to)
    assert (ran.status, "--log-is-lost" in ran.err, ran.err.count("\n")) == (5, True, 1)
    told = json.loads(restore(tmp_path, to, "--log-is-lost", "--dry-run", "--output", "json").out)
    assert (told["dry_run"], told["found"], told["in_doubt"]) == (True, 2, 2)
    ran = restore(tmp_path, to, "--log-is-lost")
    assert ran.status == 0, ran.err
    assert "start the agents" in ran.out
    assert "certain below" in ran.out
    assert "s after what is certain" in ran.out
    ran = restore(tmp_path, to, "--log-is-lost")
    assert (ran.status, "start the agents" in ran.err, ran.err.count("\n")) == (5, True, 1)


def test_tables_of_a_bucket_that_was_copied_are_told_where_they_are_or_why_not(
    tmp_path: Path, etcd: Etcd
) -> None:
    former = "s3://old/main/tables/n/t/metadata/00001-u.metadata.json"
    table = CommitTable(namespace="n", name="t", metadata_location=former)
    asyncio.run(fill(tmp_path, PutNamespace(name="n"), table))
    to = f"etcd://{etcd.endpoint}/{tmp_path.name}"
    ran = restore(tmp_path, to, "--log-is-lost", "--tables-from", "s3://old/main/", "--dry-run")
    assert (ran.status, "NOT MOVED: table n.t" in ran.out, "bring the object back" in ran.out) == (
        1,
        True,
        True,
    )
    metadata = tmp_path / former.removeprefix("s3://old/main/")
    metadata.parent.mkdir(parents=True)
    metadata.write_text(json.dumps({"format-version": 2, "location": "s3://old/main/tables/n/t"}))
    ran = restore(tmp_path, to, "--log-is-lost", "--tables-from", "s3://old/main/")
    assert (ran.status, f"table n.t is at file://{tmp_path}/tables/n/t" in ran.out) == (0, True), ran.out
    (made,) = set(metadata.parent.iterdir()) - {metadata}
    assert json.loads(made.read_text())["location"] == f"file://{tmp_path}/tables/n/t"


def test_the_file_of_the_clusters_agents_does_and_newer_metadata_is_told(tmp_path: Path, etcd: Etcd) -> None:
    """It may name where tables lie in the source's bucket, which is not below the copy's URL."""
    config = tmp_path / "floe.yaml"
    config.write_text("store: {url: 's3://floe/main'}\ntables: {warehouse: 's3://floe/main/lake'}\n")
    root = tmp_path / "bucket"
    location = f"file://{root}/lake/n/t/metadata/00001-u.metadata.json"
    asyncio.run(
        fill(root, PutNamespace(name="n"), CommitTable(namespace="n", name="t", metadata_location=location))
    )
    metadata = root / "lake/n/t/metadata"
    metadata.mkdir(parents=True)
    (metadata / "00002-v.metadata.json").write_text("{}")
    to = f"etcd://{etcd.endpoint}/{tmp_path.name}"
    ran = restore(root, to, "--log-is-lost", "--dry-run", "--config", str(config))
    assert ran.status == 0, ran.err
    assert "LOST: table n.t is no topic's, and 1 commits went with the log" in ran.out.replace("\n", " ")
    gone = f"LOST: {location} is a table's current metadata and not in the bucket"
    assert gone in ran.out.replace("\n", " ")
    (metadata / "00001-u.metadata.json").write_text("{}")
    ran = restore(root, to, "--log-is-lost", "--dry-run", "--config", str(config))
    assert (ran.status, "current metadata" in ran.out) == (0, False), ran.out


@pytest.mark.parametrize("there", [True, False])
def test_metadata_that_another_engine_named_is_looked_for(tmp_path: Path, etcd: Etcd, there: bool) -> None:
    location = f"file://{tmp_path}/tables/n/t/metadata/v1.metadata.json"
    asyncio.run(
        fill(
            tmp_path, PutNamespace(name="n"), CommitTable(namespace="n", name="t", metadata_location=location)
        )
    )
    if there:
        metadata = tmp_path / "tables/n/t/metadata"
        metadata.mkdir(parents=True)
        (metadata / "v1.metadata.json").write_text("{}")
    ran = restore(tmp_path, f"etcd://{etcd.endpoint}/{tmp_path.name}", "--log-is-lost", "--dry-run")
    assert (ran.status, "current metadata" in ran.out) == (0, not there), ran.out


def test_people_are_told_of_topics_that_were_deleted_and_written_to() -> None:
    told = [TopicBack("a", 3, "a"), TopicBack("b", 4, "floe-restored-1"), TopicBack("c", 5, "", "no room")]
    back, other, lost = _remarks(Report("main", "etcd:1", undeleted=told))
    assert ("3 records of topic a" in back, "it is back; " in back, "delete it again" in back) == (True,) * 3
    assert "it is back, as floe-restored-1; " in other
    assert (lost.startswith("LOST: 5 records of topic c"), lost.endswith("no room")) == (True, True)


def test_people_are_told_of_segments_that_are_not_there() -> None:
    lost, unread = _remarks(Report("main", "etcd:1", missing_merged=["segments/a"], manifests_unread=7))
    assert lost == "LOST: segments/a is referred to and not in the bucket"
    assert unread.startswith("of 7 partitions")


def test_what_makes_no_sense_is_said_in_one_line(tmp_path: Path, etcd: Etcd) -> None:
    ran = restore(tmp_path, "sqlite:///tmp/log.db")
    assert (ran.status, "etcd://" in ran.err) == (2, True)
    ran = restore(tmp_path, f"etcd://{etcd.endpoint}/nothing")
    assert (ran.status, "cluster.json" in ran.err, ran.err.count("\n")) == (5, True, 1)
    ran = restore(tmp_path, "etcd://127.0.0.1:1/nobody")
    assert ran.status in (4, 5)
