"""Groups of KIP-848 when their coordinator dies: members keep epochs and partitions, commits go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coordination.kafka_codes import Code
from deploy.services import Etcd, Minio
from tests.bench.load import create_topic
from tests.compat.cluster import Cluster
from tests.compat.raw import set_broker_config
from tests.equipment.consumer_members import ConsumerCrowd
from tests.equipment.group_members import coordinator_of

PARTITIONS, MEMBERS = 12, 4
TTL_S = 6


@pytest.mark.services
@pytest.mark.timeout(180)
async def test_the_coordinator_is_killed_and_nobody_notices(etcd: Etcd, minio: Minio, tmp_path: Path) -> None:
    with Cluster(etcd, minio, 2, tmp_path, lease_ttl_s=TTL_S) as cluster:
        for name in ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"):
            assert await set_broker_config(cluster.agents[0].bootstrap, name, "500") == 0
        await create_topic(cluster.agents[0].bootstrap, "moved", PARTITIONS)
        crowd = ConsumerCrowd(cluster.bootstrap, "movers", {"moved": PARTITIONS})
        members = [crowd.add() for _ in range(MEMBERS)]
        await crowd.settled()
        before = [(member.generation, sorted(member.assignment), member.joins) for member in members]
        assert await members[0].commit(dict.fromkeys(members[0].assignment, 7)) is Code.NONE

        address = await coordinator_of(crowd.bootstrap, crowd.group)
        dead = next(agent for agent in cluster.agents if agent.bootstrap == address)
        await asyncio.to_thread(dead.kill)
        while True:
            try:
                code = await members[1].commit(dict.fromkeys(members[1].assignment, 7))
            except (OSError, asyncio.IncompleteReadError):
                await members[1].reconnect()
                code = Code.NOT_COORDINATOR
            if code is Code.NONE:
                break
            assert code in (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE, Code.REQUEST_TIMED_OUT)
            await asyncio.sleep(0.1)
        after = [(member.generation, sorted(member.assignment), member.joins) for member in members]
        assert after == before, "no rebalance"
        assert not any(member.refused for member in members)

        crowd.add()
        await crowd.settled()
        for member in list(crowd.members):
            await crowd.remove(member)
