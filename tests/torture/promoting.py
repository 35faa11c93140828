"""A cluster that is copied, lost and promoted: what tests of that have in common. The store is one MinIO."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from deploy.services import Minio
from deploy.services.floe import FloeAgent, clustered
from tests.torture.copying import floe
from tests.torture.run import create_topic
from tests.torture.workload import Writer

PARTITIONS = (0, 1)
WAIT_S = 240
"""For anything to happen; a machine with few processors left makes everything late."""
SETTINGS: dict[str, dict[str, Any]] = {
    "snapshots": {"interval_s": 1},
    "log_archive": {"interval_ms": 200},
    "shutdown": {"drain_ms": 0},
    "tables": {"interval_ms": 300, "orphan_interval_s": 1, "orphan_grace_s": 0},
}


def written(agent: FloeAgent, topic: str, name: str, records: int) -> Writer:
    """So many records more, all acknowledged."""
    if name == "before":
        create_topic(agent.bootstrap, topic, len(PARTITIONS), {"retention.ms": "-1"})
    writer = Writer(name, agent.bootstrap, topic, PARTITIONS, rate=200, limit=records)
    writer.start()
    writer.join(WAIT_S)
    assert [send.outcome for send in writer.sent] == ["ok"] * records
    return writer


def copied_with(agent: FloeAgent, writers: Sequence[Writer], words: list[str]) -> None:
    """Rounds until one has all records, and then what the archive has by now: the tables' last commits."""
    due = {(send.topic, send.partition): send.offset for writer in writers for send in writer.sent}
    newest = int(json.loads(asked(f"{agent.http}/status.json"))["revision"])
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        done = floe("copy", *words, "--output", "json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        ends = {(each["topic"], each["partition"]): each["end"] for each in told["partitions"]}
        if told["revision"] >= newest and all(ends.get(at, 0) > offset for at, offset in due.items()):
            return
    raise AssertionError("the archive does not come to what was committed")


def asked(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read(), "utf-8")


def config_of(minio: Minio, url: str, folder: Path) -> Path:
    config = folder / "store.yaml"
    config.touch(mode=0o600)
    config.write_text(yaml.safe_dump({"store": clustered(etcd="", bucket_url=url, store=minio)["store"]}))
    return config


def emptied(minio: Minio, name: str) -> None:
    """The source is lost with its bucket."""
    client = minio.client()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=name):
        for each in page.get("Contents", ()):
            client.delete_object(Bucket=name, Key=each["Key"])


def properties(minio: Minio) -> dict[str, str]:
    """What pyiceberg needs to read the tables' files."""
    return {
        "s3.endpoint": minio.endpoint,
        "s3.access-key-id": minio.access_key,
        "s3.secret-access-key": minio.secret_key,
        "s3.region": minio.region,
    }
