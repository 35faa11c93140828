"""Real agents of two versions in one cluster, under load: forth, back, forth again; then the level is final.

The older version is the code of level 1 (README.md), run from its own archive. Producers, readers and a
consumer group never stop; afterwards every acknowledged record is there once, in order, and all agents of
both versions had the same hash wherever they were at one revision.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from agent.net.wire.generated import init_producer_id as ip
from agent.net.wire.generated import update_features as uf
from coordination.kafka_codes import Code
from coordination.state.features import LEVEL
from deploy.services import Etcd, Minio
from deploy.services.service import ServiceError
from tests.compat import raw
from tests.compat.cluster import Cluster, status
from tests.compat.test_feature_upgrade import levels
from tests.torture.run import create_topic, unexplained
from tests.torture.verdict import judge
from tests.torture.workload import BASE, Reader, Writer, read_all
from tests.versions.kept import VersionedAgent, unpacked

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

OLD, NEW = 1, 2
AGENTS = 3 if os.environ.get("TORTURE") == "full" else 2
TOPIC, PARTITIONS, RATE = "upgraded", range(4), 100
GROUP_SECONDS_MAX = 120
UPGRADE, SAFE_DOWNGRADE = 1, 2
BUSY: dict[str, dict[str, object]] = {
    "merging": {"interval_ms": 500, "min_slices": 8, "keep_slices": 2},
    "tables": {"interval_ms": 500},
    "snapshots": {"interval_s": 1, "entries_max": 50},
}
"""Both versions merge, commit to tables, write snapshots and start from them."""


class Members(threading.Thread):
    """One member of a consumer group; what it was given, and the positions it was told are committed."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        settings = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer({**BASE, **settings, "bootstrap.servers": bootstrap})
        self._consumer.subscribe([TOPIC])
        self._halt = threading.Event()
        self.values: set[bytes] = set()

    def run(self) -> None:
        while not self._halt.is_set():
            found = [m for m in self._consumer.consume(500, 0.2) if m.error() is None]
            self.values.update(m.value() for m in found)
            if found:
                self._consumer.commit(asynchronous=True)
        self._consumer.close()

    def stop(self) -> None:
        """Leave the group."""
        self._halt.set()
        self.join(60)
        assert not self.is_alive(), "the group's member is stuck"


class Hashes:
    """Every hash that an agent told, by revision, with the level of the code that told it."""

    def __init__(self) -> None:
        self._told: dict[int, dict[str, str]] = {}
        self.shared = 0  # revisions that both versions told

    def look(self, cluster: Cluster) -> None:
        """Ask every agent. The same revision has the same hash, whoever tells it and whenever."""
        for agent in cluster.agents:
            assert isinstance(agent, VersionedAgent)
            version = "old" if agent.tree is not None else "new"
            for row in status(agent)["recent"]:
                told = self._told.setdefault(row["revision"], {})
                told[version] = row["state_hash"]
                assert len(set(told.values())) == 1, f"revision {row['revision']}: {told}"
        self.shared = sum(len(told) == 2 for told in self._told.values())


async def finalize(bootstrap: str, level: int, kind: int) -> tuple[Code, str]:
    """What UpdateFeatures answers."""
    wanted = uf.FeatureUpdateKey(LEVEL, level, upgrade_type=kind)
    answer = await raw.call(bootstrap, "UpdateFeatures", uf.UpdateFeaturesRequest(30_000, [wanted]), 1)
    return Code(answer.error_code), answer.error_message or ""


async def transactional(bootstrap: str) -> Code:
    """What a transactional producer is told when it begins."""
    request = ip.InitProducerIdRequest("x", 60_000, -1, -1)
    return Code((await raw.call(bootstrap, "InitProducerId", request, 4)).error_code)


def roll(cluster: Cluster, tree: Path | None, hashes: Hashes) -> None:
    """Restart one agent after the other as that version; they are compared while both run."""
    for agent in cluster.agents:
        assert isinstance(agent, VersionedAgent)
        hashes.look(cluster)
        agent.stop()
        agent.tree = tree
        agent.start()
        hashes.look(cluster)


@contextmanager
def load(cluster: Cluster) -> Iterator[None]:
    """Writers, a reader and a group that see nothing of what goes on; judged at the end."""
    create_topic(cluster.bootstrap, TOPIC, len(PARTITIONS), {"retention.ms": "-1"})
    writers = [Writer(f"w{n}", cluster.bootstrap, TOPIC, PARTITIONS, rate=RATE) for n in range(2)]
    reader, member = Reader("r", cluster.bootstrap, TOPIC, PARTITIONS), Members(cluster.bootstrap)
    for thread in (*writers, reader, member):
        thread.start()
    yield
    for writer in writers:
        writer.stop()
    final = read_all(cluster.bootstrap, TOPIC, PARTITIONS)
    sent = [send for writer in writers for send in writer.sent]
    until(lambda: len(reader.seen) >= len(sent) and len(member.values) >= len(sent))
    reader.stop()
    member.stop()
    verdict = judge(sent, final, reader.seen)
    verdict.findings += unexplained(writers)
    assert verdict.findings == [], verdict.report()
    assert verdict.acknowledged == len(sent) > 0, verdict.report()
    assert member.values == {send.value for send in sent}


def until(condition: Callable[[], bool]) -> None:
    """Wait for what must come."""
    deadline = time.monotonic() + GROUP_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not within {GROUP_SECONDS_MAX} s"
        time.sleep(0.1)


async def test_forth_and_back_and_forth_and_then_for_good(etcd: Etcd, minio: Minio, tmp_path: Path) -> None:
    old = unpacked(OLD, tmp_path / "code")
    cluster = Cluster(etcd, minio, AGENTS, tmp_path, VersionedAgent, more=BUSY)
    hashes = Hashes()
    for agent in cluster.agents:
        assert isinstance(agent, VersionedAgent)
        agent.tree = old
    first, *_, last = (agent.bootstrap for agent in cluster.agents)
    with cluster:
        assert await levels(first) == (OLD, OLD)
        with load(cluster):
            await asyncio.to_thread(roll, cluster, None, hashes)
            assert await levels(last) == (OLD, NEW)
            assert await transactional(first) == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            await asyncio.to_thread(roll, cluster, old, hashes)
            assert await levels(last) == (OLD, OLD)
            assert await transactional(first) == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            await asyncio.to_thread(roll, cluster, None, hashes)
            assert await finalize(first, NEW, UPGRADE) == (Code.NONE, "")
            await raw.high_watermark(last, TOPIC)  # with a read barrier: it has caught up
            assert await levels(last) == (NEW, NEW)
            assert await transactional(last) == Code.NONE
        hashes.look(cluster)
        assert hashes.shared > 20, "both versions told hashes of the same revisions"
        for kind in (UPGRADE, SAFE_DOWNGRADE):
            code, message = await finalize(first, OLD, kind)
            assert code == Code.INVALID_UPDATE_VERSION
        assert f"run versions that know level {NEW}" in message
        leaver = cluster.agents[-1]
        assert isinstance(leaver, VersionedAgent)
        await asyncio.to_thread(leaver.stop)
        leaver.tree = old
        with pytest.raises(ServiceError, match=r"run a (newer version|version that knows it)"):
            await asyncio.to_thread(leaver.start)
