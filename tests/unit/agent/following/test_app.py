"""A replica of a bucket (decision 0041) reads what the cluster has, changes nothing, says what is amiss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from agent.app import App
from agent.following.app import ReplicaApp
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import fetch as f
from agent.net.wire.generated import init_producer_id as ip
from agent.net.wire.generated import join_group as jg
from agent.net.wire.generated import metadata as md
from coordination.kafka_codes import Code
from objectstore.copied import CopyMark
from objectstore.fingerprint import Fingerprint, ForeignBucket, decode
from objectstore.naming import CHUNKS, LOG
from tests.bench.load import Wire
from tests.unit.agent.rig import batch
from tests.unit.agent.test_app import World, config, produce, topic, until

WAIT_S = 300
SOURCE: dict[str, Any] = {"log_archive": {"interval_ms": 100}, "snapshots": {"interval_s": 3600}}
CUT_BYTES = 100  # less than a piece's header has
QUICK = {"poll_ms": 50, "gap_wait_ms": 60_000}


class Lab(World):
    """A cluster of one agent, and replicas of its bucket."""

    def __init__(self) -> None:
        super().__init__()
        self.replicas: list[ReplicaApp] = []
        self.wires: list[Wire] = []

    async def follow(self, **sections: Any) -> ReplicaApp:
        given = config("replica", **{"follow": QUICK, **sections})
        app = ReplicaApp(given, store=self.store)
        self.replicas.append(app)
        async with asyncio.timeout(WAIT_S):
            await app.start()
        return app

    async def connect(self, app: App) -> Wire:
        self.wires.append(wire := await Wire.open(f"127.0.0.1:{app.kafka_port}"))
        return wire

    async def keys(self, prefix: str = "") -> dict[str, str]:
        """Every object and its etag."""
        return {meta.key: meta.etag async for page in self.store.list(prefix) for meta in page}

    async def take(self, key: str) -> bytes:
        """An object that is in the bucket no more."""
        content = await self.store.get(key)
        await self.store.delete([key])
        return content

    async def stop(self) -> None:
        for wire in self.wires:
            await wire.close()
        for app in [*self.replicas, *self.apps]:
            await app.stop()


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    await made.stop()


async def written(app: App, wire: Wire, value: bytes = b"x") -> int:
    """The offset of a record, once the revision that has it is archived."""
    answer = await produce(wire, batch(value))
    assert answer.error_code == 0
    revision = app.replica.revision
    async with asyncio.timeout(WAIT_S):
        await until(lambda: _through(app) >= revision)
    return int(answer.base_offset)


def _through(app: App) -> int:
    archive = app.background.archive
    return archive.head.last if archive is not None and archive.head is not None else 0


async def fetched(wire: Wire, offset: int = 0) -> Any:
    part = f.FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = f.FetchRequest(
        max_wait_ms=1, min_bytes=1, isolation_level=1, topics=[f.FetchTopic(topic="t", partitions=[part])]
    )
    return (await wire.call("Fetch", request, 11)).responses[0].partitions[0]


async def caught_up(app: ReplicaApp, revision: int) -> None:
    async with asyncio.timeout(WAIT_S):
        await until(lambda: app.replica.revision >= revision)


async def readiness(app: ReplicaApp) -> tuple[int, dict[str, Any]]:
    async with httpx.AsyncClient(timeout=WAIT_S) as client:
        answer = await client.get(f"http://127.0.0.1:{app.http_port}/readyz")
    return answer.status_code, answer.json()


async def test_it_serves_what_is_archived_goes_on_with_it_and_names_itself_alone(lab: Lab) -> None:
    source = await lab.start("source", **SOURCE)
    await topic(source)
    wire = await lab.connect(source)
    await written(source, wire, b"one")
    replica = await lab.follow()
    reading = await lab.connect(replica)
    first = await fetched(reading)
    assert first.high_watermark == 1
    assert b"one" in bytes(first.records)
    assert await written(source, wire, b"two") == 1
    await caught_up(replica, _through(source))
    second = await fetched(reading, 1)
    assert (second.high_watermark, second.last_stable_offset) == (2, 2)
    assert b"two" in bytes(second.records)
    told = await reading.call("Metadata", md.MetadataRequest(topics=None), 9)
    assert [(each.node_id, each.port) for each in told.brokers] == [(1, replica.kafka_port)]
    assert replica.replica.state.hash == source.replica.state.hash_at(replica.replica.state.revision)
    status, answer = await readiness(replica)
    assert (status, answer["reasons"]) == (200, [])


async def test_all_that_writes_is_refused_with_the_remedy_and_nothing_is_written(lab: Lab) -> None:
    source = await lab.start("source", **SOURCE)
    await topic(source)
    wire = await lab.connect(source)
    await written(source, wire)
    await source.stop()
    before = await lab.keys()
    replica = await lab.follow()
    reading = await lab.connect(replica)
    answer = await produce(reading, batch(b"no"))
    assert answer.error_code == Code.TOPIC_AUTHORIZATION_FAILED
    assert "floe restore cluster" in answer.error_message
    made = await reading.call(
        "CreateTopics", ct.CreateTopicsRequest(topics=[ct.CreatableTopic("n", 1, 1)], timeout_ms=1_000), 5
    )
    assert made.topics[0].error_code == Code.TOPIC_AUTHORIZATION_FAILED
    assert "read-only replica" in made.topics[0].error_message
    given = await reading.call("InitProducerId", ip.InitProducerIdRequest(None, 1_000), 4)
    assert given.error_code == Code.CLUSTER_AUTHORIZATION_FAILED
    joined = await reading.call(
        "JoinGroup",
        jg.JoinGroupRequest(
            "g", 10_000, 10_000, "", None, "consumer", [jg.JoinGroupRequestProtocol("p", b"")]
        ),
        5,
    )
    assert joined.error_code == Code.GROUP_AUTHORIZATION_FAILED
    await _http_only_reads(replica)
    await readiness(replica)  # which tries a write at an agent
    await replica.stop()
    assert await lab.keys() == before


async def _http_only_reads(replica: ReplicaApp) -> None:
    schema = {"schema": '{"type": "string"}'}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{replica.http_port}", timeout=WAIT_S) as client:
        refused = [
            await client.post("/subjects/t-value/versions", json=schema),
            await client.put("/config", json={"compatibility": "NONE"}),
            await client.delete("/subjects/t-value"),
            await client.post("/iceberg/v1/namespaces", json={"namespace": ["n"]}),
            await client.post("/admin/drain", json={"drain": True}),
        ]
        assert [each.status_code for each in refused] == [403] * len(refused)
        assert all("floe restore cluster" in each.text for each in refused)
        assert (await client.get("/subjects")).json() == []
        assert (await client.post("/subjects/t-value", json=schema)).status_code == 404  # a question


async def test_a_missing_piece_is_waited_for_and_told(lab: Lab) -> None:
    source = await lab.start("source", **SOURCE)
    await topic(source)
    wire = await lab.connect(source)
    await written(source, wire)
    replica = await lab.follow()
    at, had = replica.replica.revision, set(await lab.keys(LOG))
    lab.replicas.clear()
    await replica.stop()
    await written(source, wire)
    (gone,) = sorted(set(await lab.keys(LOG)) - had)[:1]
    content = await lab.take(gone)
    await written(source, wire)
    replica = await lab.follow()
    status, answer = await readiness(replica)
    assert status == 503
    assert f"entries from revision {at + 1} to" in answer["checks"]["archive"]["message"]
    assert replica.replica.revision == at
    assert (await fetched(await lab.connect(replica))).high_watermark == 1
    await lab.store.put(gone, [content])
    await caught_up(replica, _through(source))
    assert (await fetched(await lab.connect(replica))).high_watermark == 3
    assert (await readiness(replica))[0] == 200


async def test_a_cut_or_foreign_piece_is_not_applied_and_a_newer_snapshot_is_taken_instead(lab: Lab) -> None:
    source = await lab.start("source", **SOURCE)
    await topic(source)
    wire = await lab.connect(source)
    await written(source, wire)
    replica = await lab.follow(follow={"poll_ms": 50, "gap_wait_ms": 200})
    at, had = replica.replica.revision, set(await lab.keys(LOG))
    source_looks = replica.archived._pieces

    async def cut() -> Any:  # all that is listed is cut before it is read
        pieces = await source_looks()
        for key in sorted(set(await lab.keys(LOG)) - had):
            content = await lab.store.get(key)
            if len(content) > CUT_BYTES:
                await lab.store.put(key, [content[:CUT_BYTES]])
        return pieces

    replica.archived._pieces = cut
    await written(source, wire)
    async with asyncio.timeout(WAIT_S):
        await until(lambda: bool(replica.archived.problem))
    assert "cannot be used" in replica.archived.problem
    assert replica.replica.revision == at
    await source.background._snapshots.write()
    async with asyncio.timeout(WAIT_S):
        await until(lambda: replica.replica.revision > at)
    assert (await fetched(await lab.connect(replica))).high_watermark == 2
    assert replica.replica.state.hash == source.replica.state.hash_at(replica.replica.state.revision)


async def test_a_chunk_that_is_not_there_yet_is_a_retriable_error(lab: Lab) -> None:
    source = await lab.start("source", **SOURCE)
    await topic(source)
    wire = await lab.connect(source)
    await written(source, wire)
    (key,) = await lab.keys(CHUNKS)
    content = await lab.take(key)
    replica = await lab.follow()
    reading = await lab.connect(replica)
    answer = await fetched(reading)
    assert (answer.error_code, bytes(answer.records or b"")) == (Code.KAFKA_STORAGE_ERROR, b"")
    assert replica.damages.ranges(replica.replica.state) == []
    await lab.store.put(key, [content])
    assert b"x" in bytes((await fetched(reading)).records)


async def test_a_copy_that_floe_copy_keeps_is_followed_and_a_bucket_of_another_cluster_is_refused(
    lab: Lab,
) -> None:
    source = await lab.start("source", **SOURCE)
    await topic(source)
    await written(source, await lab.connect(source))
    await source.stop()
    found = decode(await lab.store.get("cluster.json"))
    mark = CopyMark("s3://else/where", found.cluster, found.cluster_id, found.log_identity)
    await lab.store.put("cluster.json", [mark.fingerprint.encode()])
    replica = await lab.follow()
    assert b"x" in bytes((await fetched(await lab.connect(replica))).records)
    with pytest.raises(ForeignBucket, match=r"correct cluster\.name"):
        await lab.follow(cluster={"name": "other"})


async def test_it_waits_for_a_cluster_and_ends_when_the_bucket_is_given_to_another_log(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.following.app.LOOK_S", 0.05)
    following = asyncio.create_task(lab.follow())
    async with asyncio.timeout(WAIT_S):
        await until(lambda: bool(lab.replicas) and bool(lab.replicas[0].health.waits_for))
    assert (await readiness(lab.replicas[0]))[0] == 503
    await lab.start("source", **SOURCE)
    replica = await following
    found = decode(await lab.store.get("cluster.json"))
    await lab.store.put("cluster.json", [Fingerprint(found.cluster, found.cluster_id, "new").encode()])
    with pytest.raises(ForeignBucket, match="start this replica again"):
        async with asyncio.timeout(WAIT_S):
            await replica.replica.failed
