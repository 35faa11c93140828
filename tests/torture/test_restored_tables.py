"""etcd is lost while tables are ahead of what is archived: each record is one row before and after.

The archive ends where the test says, so that the restored log has what the table's newest snapshots are of at
the same offsets, at other ones, or not at all.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
import yaml
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent, clustered
from tests.torture.copying import floe

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]
TOPIC, PARTITIONS = "t", 2
OTHER = "side.t"
"""A table that pyiceberg made: no topic's."""
WAIT_S = 300
SETTINGS: dict[str, Any] = {
    "log": {"lease_ttl_s": 5},
    "snapshots": {"interval_s": 1},
    "log_archive": {"interval_ms": 200},
    "shutdown": {"drain_ms": 0},
    "tables": {"interval_ms": 300},
}
Rows = dict[tuple[int, int], str]
"""Values by partition and offset."""


class Lab(NamedTuple):
    """A cluster on servers of which the etcd is to be lost."""

    etcd: Etcd
    minio: Minio
    bucket: str
    agent: FloeAgent
    config: Path

    @property
    def catalog(self) -> RestCatalog:
        store = {"s3.endpoint": self.minio.endpoint, "s3.access-key-id": self.minio.access_key}
        store |= {"s3.secret-access-key": self.minio.secret_key, "s3.region": self.minio.region}
        return RestCatalog("floe", uri=f"{self.agent.http}/iceberg", **store)

    def keys(self) -> frozenset[str]:
        """What the bucket has of snapshots and of the archived log."""
        pages = self.minio.client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return frozenset(key for key in keys if key.startswith(("main/log/", "main/snapshots/")))

    def rows(self) -> Rows:
        """Of the topic's table. Raises AssertionError where two rows are of one offset."""
        with suppress(NoSuchTableError):
            found = self.catalog.load_table(("floe", TOPIC)).scan().to_arrow().to_pylist()
            rows = {
                (each["kafka"]["partition"], each["kafka"]["offset"]): each["value"]["__raw__"].decode()
                for each in found
            }
            assert len(rows) == len(found), "an offset has two rows"
            return rows
        return {}


@pytest.fixture
def lab(tmp_path: Path, own_etcd: Etcd, minio: Minio, bucket: Callable[[Minio], str]) -> Iterator[Lab]:
    name = bucket(minio)
    settings = clustered(etcd=own_etcd.endpoint, bucket_url=f"s3://{name}/main", store=minio)
    for section, values in SETTINGS.items():
        settings[section] = {**settings.get(section, {}), **values}
    config = tmp_path / "restore.yaml"
    config.touch(mode=0o600)
    config.write_text(yaml.safe_dump({"store": settings["store"]}))
    with FloeAgent("agent-0", settings) as agent:
        yield Lab(own_etcd, minio, name, agent, config)


async def test_rows_that_the_restored_log_has_elsewhere_or_not_at_all(lab: Lab) -> None:
    """Archived is the first record of each partition. Then come a transaction, which moves what is behind it,
    and records of an idempotent and of a plain producer; all of them are rows when etcd is lost."""
    await _create(lab.agent.bootstrap)
    idempotent = AIOKafkaProducer(bootstrap_servers=lab.agent.bootstrap, enable_idempotence=True)
    plain = AIOKafkaProducer(bootstrap_servers=lab.agent.bootstrap)
    await idempotent.start()
    await plain.start()
    for partition in range(PARTITIONS):
        await idempotent.send_and_wait(TOPIC, b"archived", partition=partition)
    await _table_has(lab, {(0, 0): "archived", (1, 0): "archived"})
    archived = await _archived(lab)
    await _transaction(lab.agent.bootstrap)
    await idempotent.send_and_wait(TOPIC, b"numbered", partition=0)
    await plain.send_and_wait(TOPIC, b"plain", partition=0)
    kept = {(0, 0): "archived", (1, 0): "archived"}
    ahead = {(0, 1): "of a transaction", (1, 1): "of a transaction", (0, 3): "numbered", (0, 4): "plain"}
    await _table_has(lab, kept | ahead)
    report = await asyncio.to_thread(_lost_and_restored, lab, archived)
    assert [(each["name"], each["topic"]) for each in report["tables"]] == [(TOPIC, TOPIC)]
    assert report["unended"] == 2, "the transaction is told of"
    await asyncio.to_thread(lab.agent.start)
    moved = {(0, 1): "numbered", (0, 2): "plain"}  # the transaction and its marker are away
    await _table_has(lab, kept | moved)
    again = await idempotent.send_and_wait(TOPIC, b"later", partition=0)
    await _table_has(lab, kept | moved | {(0, again.offset): "later"})
    await idempotent.stop()
    await plain.stop()


async def test_a_table_that_is_no_topics_is_told_and_can_be_had_again(lab: Lab) -> None:
    """No log has its rows: its commits behind the archive are named, and registering the last brings them."""
    await _create(lab.agent.bootstrap)
    archived = await asyncio.to_thread(_other_table, lab)
    await asyncio.to_thread(_append, lab, "acknowledged, not archived")
    report = await asyncio.to_thread(_lost_and_restored, lab, archived)
    (told,) = report["tables"]
    assert (told["namespace"], told["name"], told["topic"], told["newer"]) == ("side", "t", "", 1)
    await asyncio.to_thread(lab.agent.start)
    assert await asyncio.to_thread(_words, lab) == ["archived"]
    lab.catalog.drop_table(OTHER)
    lab.catalog.register_table(OTHER, told["newest"])
    assert await asyncio.to_thread(_words, lab) == ["acknowledged, not archived", "archived"]


async def _create(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
    await admin.close()


async def _transaction(bootstrap: str) -> None:
    """One that is acknowledged, of a record in each partition: at offset 1, its marker at 2."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="x")
    await producer.start()
    async with producer.transaction():
        for partition in range(PARTITIONS):
            await producer.send(TOPIC, b"of a transaction", partition=partition)
    await producer.stop()


async def _table_has(lab: Lab, due: Mapping[tuple[int, int], str]) -> None:
    until, rows = time.monotonic() + WAIT_S, Rows()
    while time.monotonic() < until:
        rows = await asyncio.to_thread(lab.rows)
        if rows == due:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"the table has {rows}, not {dict(due)}")


async def _archived(lab: Lab) -> frozenset[str]:
    """Snapshots and pieces, once there are new ones: they have what was done before."""
    before, now = await asyncio.to_thread(lab.keys), frozenset[str]()
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        now = await asyncio.to_thread(lab.keys)
        if len([key for key in now - before if "/log/" in key]) >= 2:
            return now
        await asyncio.sleep(0.2)
    raise AssertionError(f"nothing is archived: {sorted(now)}")


def _lost_and_restored(lab: Lab, archived: frozenset[str]) -> dict[str, Any]:
    """etcd's data is gone, and the bucket's archive is as it was; the report of the restore."""
    lab.agent.kill()
    lab.etcd.kill()
    shutil.rmtree(lab.etcd.data)
    lab.etcd.start()
    newer = [{"Key": key} for key in sorted(lab.keys() - archived)]
    if newer:  # else it is that old anyway
        lab.minio.client().delete_objects(Bucket=lab.bucket, Delete={"Objects": newer})  # type: ignore[typeddict-item]  # names are all it takes
    words = ["restore", "cluster", "--from", f"s3://{lab.bucket}/main", "--config", str(lab.config)]
    words += [
        "--to",
        f"etcd://{lab.etcd.endpoint}/floe",
        "--log-is-lost",
        "--settle",
        "0",
        "--output",
        "json",
    ]
    done = floe(*words)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _other_table(lab: Lab) -> frozenset[str]:
    """Make it, with one row; the archive that has this."""
    lab.catalog.create_namespace("side")
    lab.catalog.create_table(OTHER, pa.schema([("word", pa.string())]))
    _append(lab, "archived")
    return asyncio.run(_archived(lab))


def _append(lab: Lab, word: str) -> None:
    lab.catalog.load_table(OTHER).append(pa.table({"word": [word]}))


def _words(lab: Lab) -> list[str]:
    found = lab.catalog.load_table(OTHER).scan().to_arrow()["word"].to_pylist()
    return sorted(str(each) for each in found)
