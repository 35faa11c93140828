"""Agents on one log and one bucket are one cluster: same state, same topics, same members."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator

import pytest

from agent.net.wire.generated import create_partitions as cp
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_topics as dt
from agent.net.wire.generated import describe_cluster as dcl
from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import metadata as m
from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from objectstore.batch import NewRecord, build
from tests.bench.load import create_topic
from tests.compat.cluster import Cluster, status
from tests.compat.raw import call, fetch_batches, produce

pytestmark = pytest.mark.services

AGENTS = 3
WAIT_S_MAX = 30
LEASE_TTL_S = 600
NOW = int(time.time() * 1000)  # retention lets it be
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def three(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three agents; a test may stop one and must start it again. No lease runs out while they are tested."""
    directory = tmp_path_factory.mktemp("three")
    with Cluster(etcd, minio, AGENTS, directory, lease_ttl_s=LEASE_TTL_S) as cluster:
        yield cluster


async def members(agent: FloeAgent) -> set[int]:
    """The ports of the agents that serve, as this agent knows them."""
    answer = await call(agent.bootstrap, "DescribeCluster", dcl.DescribeClusterRequest(), 0)
    assert answer.controller_id in {broker.broker_id for broker in answer.brokers}
    return {broker.port for broker in answer.brokers}


async def until_members(agents: list[FloeAgent], ports: set[int]) -> None:
    """Wait until every one of these agents lists exactly these ports."""
    async with asyncio.timeout(WAIT_S_MAX):
        for agent in agents:
            while True:
                if await members(agent) == ports:
                    break
                await asyncio.sleep(0.05)


async def hashes_since(agents: list[FloeAgent], revision: int) -> list[dict[int, str]]:
    """Each agent's state hash by revision, once all of them are at `revision` or later."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            seen = [await asyncio.to_thread(status, agent) for agent in agents]
            if all(each["revision"] >= revision for each in seen):
                return [{row["revision"]: row["state_hash"] for row in each["recent"]} for each in seen]
            await asyncio.sleep(0.02)


async def test_all_agents_hold_the_same_state(three: Cluster) -> None:
    """Topics, records and a refusal through each; then hashes are equal wherever revisions are (rule 1)."""
    topic = f"agree-{next(_numbers)}"
    await create_topic(three.agents[0].bootstrap, topic, AGENTS)
    for index, agent in enumerate(three.agents):
        raw = build([NewRecord(NOW, b"k", b"%d" % index)])
        assert (await produce(agent.bootstrap, topic, raw, index)).error_code == 0
        await create_topic(agent.bootstrap, f"{topic}-{index}", 1)
        again = ct.CreateTopicsRequest([ct.CreatableTopic(topic, 1, -1)], 10_000)
        assert (await call(agent.bootstrap, "CreateTopics", again, 7)).topics[0].error_code != 0
    newest = max(status(agent)["revision"] for agent in three.agents)
    first, *others = await hashes_since(three.agents, newest)
    for other in others:
        shared = first.keys() & other.keys()
        assert len(shared) > AGENTS
        assert {revision: other[revision] for revision in shared} == {
            revision: first[revision] for revision in shared
        }
    assert len(set(first.values())) > AGENTS, "a hash that changes with the state"


async def test_what_changed_of_a_topic_is_visible_everywhere_as_soon_as_it_is_answered(
    three: Cluster,
) -> None:
    """As for new topics: partitions that were added, and a topic that was deleted and made again."""
    for turn in range(20):
        topic = f"agree-{next(_numbers)}"
        changed, *others = three.agents[turn % AGENTS :] + three.agents[: turn % AGENTS]
        await create_topic(changed.bootstrap, topic, 1)
        first = [await told(agent, topic) for agent in others]
        more = cp.CreatePartitionsRequest([cp.CreatePartitionsTopic(topic, 3, None)], 10_000)
        assert (await call(changed.bootstrap, "CreatePartitions", more, 3)).results[0].error_code == 0
        assert [(await told(agent, topic))[1] for agent in others] == [3] * len(others)
        gone = dt.DeleteTopicsRequest([dt.DeleteTopicState(topic)], timeout_ms=10_000)
        assert (await call(changed.bootstrap, "DeleteTopics", gone, 6)).responses[0].error_code == 0
        await create_topic(changed.bootstrap, topic, 2)
        second = [await told(agent, topic) for agent in others]
        assert [partitions for _, partitions in second] == [2] * len(others)
        assert not {topic_id for topic_id, _ in first} & {topic_id for topic_id, _ in second}


async def told(agent: FloeAgent, topic: str) -> tuple[object, int]:
    """The topic's id and number of partitions, as the agent's Metadata has them."""
    asked = m.MetadataRequest([m.MetadataRequestTopic(name=topic)])
    (found,) = (await call(agent.bootstrap, "Metadata", asked, 12)).topics
    return found.topic_id, len(found.partitions)


async def test_a_topic_is_visible_everywhere_as_soon_as_its_creation_is_answered(three: Cluster) -> None:
    """Rule 5: the next request, through any other agent, sees it; no retry, no pause."""
    for _ in range(10):
        topic = f"agree-{next(_numbers)}"
        wanted = ct.CreatableTopic(name=topic, num_partitions=2, replication_factor=-1)
        request = ct.CreateTopicsRequest([wanted], 10_000)
        made = await call(three.agents[0].bootstrap, "CreateTopics", request, 7)
        assert made.topics[0].error_code == 0
        for agent in three.agents[1:]:
            asked = m.MetadataRequest([m.MetadataRequestTopic(name=topic)], False)
            (found,) = (await call(agent.bootstrap, "Metadata", asked, 12)).topics
            assert (found.error_code, found.topic_id) == (0, made.topics[0].topic_id)
            everything = await call(agent.bootstrap, "Metadata", m.MetadataRequest(None, False), 12)
            assert topic in {each.name for each in everything.topics}


async def test_an_acknowledged_record_is_counted_and_read_everywhere(three: Cluster) -> None:
    """Rule 5: ListOffsets through any agent includes what another one acknowledged before."""
    topic = f"agree-{next(_numbers)}"
    await create_topic(three.agents[0].bootstrap, topic, 1)
    for count in range(1, 11):
        writer = three.agents[count % AGENTS]
        assert (await produce(writer.bootstrap, topic, build([NewRecord(NOW, None, b"v")]))).error_code == 0
        for agent in three.agents:
            part = lo.ListOffsetsPartition(partition_index=0, timestamp=-1)
            request = lo.ListOffsetsRequest(-1, 0, [lo.ListOffsetsTopic(topic, [part])])
            answer = await call(agent.bootstrap, "ListOffsets", request, 9)
            assert answer.topics[0].partitions[0].offset == count
    batches = [await fetch_batches(agent.bootstrap, topic, 0) for agent in three.agents]
    assert batches[0] == batches[1] == batches[2]
    assert len(batches[0]) == 10


async def test_metadata_lists_every_live_agent_and_forgets_one_that_stops(three: Cluster) -> None:
    """A graceful stop takes everything an agent leads from it, without waiting for its lease."""
    ports = {agent.kafka_port for agent in three.agents}
    await until_members(three.agents, ports)
    topic = f"agree-{next(_numbers)}"
    await create_topic(three.agents[0].bootstrap, topic, 12)
    *others, leaver = three.agents
    await asyncio.to_thread(leaver.stop)
    await until_members(others, ports - {leaver.kafka_port})
    for agent in others:
        request = m.MetadataRequest([m.MetadataRequestTopic(name=topic)], False)
        answer = await call(agent.bootstrap, "Metadata", request, 12)
        leaders = {part.leader_id for part in answer.topics[0].partitions}
        served_at = {broker.port for broker in answer.brokers if broker.node_id in leaders}
        assert served_at == ports - {leaver.kafka_port}
        assert {broker.port for broker in answer.brokers} <= ports, (
            "it is listed a moment longer than it leads"
        )
        cluster = await call(agent.bootstrap, "DescribeCluster", dcl.DescribeClusterRequest(), 0)
        assert {broker.port for broker in cluster.brokers} == ports - {leaver.kafka_port}
    await asyncio.to_thread(leaver.start)
    await until_members(three.agents, ports)
