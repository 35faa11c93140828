"""A cluster is copied under load to another S3 server, lost with its bucket, and goes on as its copy."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from deploy.services import Etcd, Minio, VersityGw
from deploy.services.floe import FloeAgent, clustered
from tests.torture.copying import (
    GROUP,
    PARTITIONS,
    PLACES,
    STEADY,
    TOPIC,
    CopyProcess,
    Group,
    Sender,
    Told,
    Transactions,
    ended,
    floe,
    judge,
    moved,
    positions,
    read,
    until,
)

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]
SETTINGS: dict[str, Any] = {
    "log": {"lease_ttl_s": 5},
    "snapshots": {"interval_s": 1},
    "log_archive": {"interval_ms": 500},
    "merging": {"interval_ms": 500, "age_s": 1},
    "collection": {"interval_s": 1, "grace_s": 1},
    "shutdown": {"drain_ms": 0},
    "tables": {"enabled": False},
}
"""Chunks are merged, collected and deleted at the source while they are copied."""
SIZES = {TOPIC: PARTITIONS, STEADY.topic: 1}
SCHEMA = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]})


class Lab(NamedTuple):
    """A cluster with its own servers, and where its copy is to be. The copy's etcd is new."""

    etcd: Etcd
    source: Minio
    agents: list[FloeAgent]
    copy: CopyProcess
    copy_log: str
    copy_store: dict[str, Any]
    copy_config: Path

    @property
    def bootstrap(self) -> str:
        return ",".join(agent.bootstrap for agent in self.agents)


@pytest.fixture
def lab(tmp_path: Path, etcd: Etcd, versitygw: VersityGw, bucket: Any) -> Iterator[Lab]:
    url = f"s3://{bucket(versitygw)}/copy"
    with built(tmp_path, etcd, versitygw, url, SETTINGS) as made:
        yield made


@contextmanager
def built(
    folder: Path, etcd: Etcd, versitygw: VersityGw, url: str, own_settings: dict[str, Any]
) -> Iterator[Lab]:
    """Two agents over servers of their own; the copy is to be at `url`, its log in `etcd`."""
    with ExitStack() as stack:
        own, source = stack.enter_context(Etcd(fsync=False)), stack.enter_context(Minio())
        urls = f"s3://{source.make_bucket('floe-source')}/main", url
        settings = clustered(etcd=own.endpoint, bucket_url=urls[0], store=source)
        other = clustered(etcd=etcd.endpoint, bucket_url=urls[1], store=versitygw)
        for section, values in own_settings.items():
            settings[section] = {**settings.get(section, {}), **values}
        log = f"etcd://{etcd.endpoint}/{urls[1].split('/')[2]}"
        files = folder / "source.yaml", folder / "copy.yaml"
        for file, store in zip(files, (settings["store"], other["store"]), strict=True):
            file.touch(mode=0o600)
            file.write_text(yaml.safe_dump({"store": store}))
        agents = [stack.enter_context(FloeAgent(f"agent-{number}", settings)) for number in range(2)]
        copy = CopyProcess(*files, urls)
        stack.callback(copy.stop)
        yield Lab(own, source, agents, copy, log, other["store"], files[1])


class Load(NamedTuple):
    """The clients of the source, and what of theirs the copy has to have."""

    senders: list[Sender]
    steady: Sender
    transactions: Transactions
    group: Group
    tasks: list[asyncio.Task[None]]

    async def wait(self, true: Callable[[], object], what: str) -> None:
        await until(true, what, self.tasks)

    def due(self) -> dict[TopicPartition, int]:
        """The offsets that were told so far; the copy is to have a greater end of each partition."""
        due = {each.told[-1].place: each.told[-1].offset for each in (*self.senders, self.steady)}
        return due | {each.place: max(each.offset, due.get(each.place, 0)) for each in self.transactions.open}

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await asyncio.gather(*(each.stop() for each in self.senders))


async def test_a_copy_under_load_becomes_the_cluster_with_all_that_it_had(lab: Lab) -> None:
    await _create(lab.bootstrap)
    schema_id = await asyncio.to_thread(_registered, lab)
    load = await _begun(lab)
    await asyncio.to_thread(lab.copy.start)
    for _ in range(20):
        await load.steady.send()
    await load.wait(lambda: len(lab.copy.rounds()) >= 3 and len(load.transactions.done) > 5, "rounds")
    await asyncio.to_thread(lab.copy.restart)  # by SIGKILL
    kept_open = await load.transactions.leave_open()
    await load.wait(lambda: len(load.group.committed) == PARTITIONS, "positions of every partition")
    committed, whole = dict(load.group.committed), list(load.transactions.done)
    await _copied(lab, load)
    await load.end()
    await ended(kept_open)
    await asyncio.to_thread(disaster, lab)
    report = await asyncio.to_thread(promoted, lab)
    assert report["missing_chunks"] == []
    for agent in lab.agents:
        moved(agent.config_file, lab.copy_log, lab.copy_store)
        await asyncio.to_thread(agent.start)
    await _same(lab, load, whole)
    now = await positions(lab.bootstrap)
    for place, offset in committed.items():
        assert now[place] >= offset, f"{GROUP} at {place}"
        assert now[place] in load.group.asked[place], f"{GROUP} at {place}"
    assert await asyncio.to_thread(_registered, lab) == schema_id
    await _goes_on(lab, load.steady)


async def _begun(lab: Lab) -> Load:
    senders = [await Sender(lab.bootstrap, f"i{n}", PLACES[n]).start() for n in range(2)]
    steady = await Sender(lab.bootstrap, "steady", STEADY).start()
    transactions, group = Transactions(lab.bootstrap), Group(lab.bootstrap)
    runs = [*(each.run() for each in senders), transactions.run(), group.run()]
    return Load(senders, steady, transactions, group, [asyncio.create_task(each) for each in runs])


async def _copied(lab: Lab, load: Load) -> None:
    """What was told and committed until now is in the last complete round."""
    rounds, due = len(lab.copy.rounds()), load.due()
    await load.wait(
        lambda: (
            len(lab.copy.rounds()) > rounds + 4  # what the group committed is archived with one of these
            and all(lab.copy.ends().get(place, 0) > offset for place, offset in due.items())
        ),
        f"a round that has {due}",
    )


async def _same(lab: Lab, load: Load, whole: Sequence[Sequence[Told]]) -> None:
    """Every record of the last complete round is where it was; `whole` are the transactions it surely has."""
    found = await read(lab.bootstrap)
    judge(found, lab.copy.ends(), [*load.senders, load.steady], load.transactions.done)
    values = {each.value for each in found}
    assert all(each.value in values for records in whole for each in records), "a committed one is missing"
    assert not [each for each in load.transactions.open if each.value in values], (
        "the open one is not aborted"
    )


async def _goes_on(lab: Lab, steady: Sender) -> None:
    """The producer's last batch, sent again, is told its offset; its next sequences are taken."""
    assert await steady.again() == steady.told[-1].offset
    for _ in range(5):
        await steady.send()
    assert [each for each in await read(lab.bootstrap) if each.place == STEADY] == steady.told
    await steady.stop()


async def _create(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    kept = {"retention.ms": "-1"}  # its records' times are of long ago
    topics = (NewTopic(name, number, 1, topic_configs=kept) for name, number in SIZES.items())
    await admin.create_topics(list(topics))
    await admin.close()


def _registered(lab: Lab) -> int:
    """The id of the schema, which is registered where it is not yet."""
    url, body = f"{lab.agents[0].http}/subjects/{TOPIC}-value/versions", json.dumps({"schema": SCHEMA})
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers), timeout=60) as answer:
        told: dict[str, int] = json.load(answer)
        return told["id"]


def disaster(lab: Lab) -> None:
    """The copy is as its last moment left it; nothing of the source is there any more."""
    for each in (lab.copy, *lab.agents, lab.etcd, lab.source):
        each.kill()


def promoted(lab: Lab, *more: str) -> dict[str, Any]:
    """The report of the restore; before it no agent starts."""
    url = lab.copy_store["url"]
    refused = floe("serve", "--config", str(lab.copy_config), "--set", f"log.url={lab.copy_log}")
    assert refused.returncode != 0
    assert "made by `floe copy`: promote it" in refused.stderr + refused.stdout, refused.stderr
    words = ["restore", "cluster", "--from", url, "--to", lab.copy_log, "--config", str(lab.copy_config)]
    words += ["--log-is-lost", "--settle", "0", "--output", "json", *more]
    done = floe(*words)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told
