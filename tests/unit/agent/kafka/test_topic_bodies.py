"""Topics encoded once for Metadata: the same bytes as encoding all at once, dropped when they are wrong."""

from __future__ import annotations

import pytest

from agent.kafka.topic_bodies import ENTRY_BYTES, Flavour, TopicBodies, assembled, encoded_topic
from agent.net.wire.generated import create_partitions as cp
from agent.net.wire.generated.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    encode_response,
)
from coordination.state.types import Topic
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.admin_calls import create, metadata, topic
from tests.unit.agent.rig import Agent


def row(name: str, partitions: int) -> MetadataResponseTopic:
    parts = [MetadataResponsePartition(0, index, 1, 0, [1, 2], [1, 2], []) for index in range(partitions)]
    return MetadataResponseTopic(0, name, name.encode().ljust(16, b"."), False, parts)


@pytest.mark.parametrize("count", [0, 1, 127, 300])
@pytest.mark.parametrize("version", range(14))
def test_bodies_make_the_same_answer_as_the_codec(version: int, count: int) -> None:
    topics = [row(f"t{number}", number % 3) for number in range(count)]
    brokers = [MetadataResponseBroker(1, "h", 9092, "z"), MetadataResponseBroker(2, "i", 9093, None)]
    response = MetadataResponse(0, brokers, "floe", 1)
    bodies = [encoded_topic(each, version) for each in topics]
    ours = b"".join(assembled(response, bodies, version))
    response.topics = topics
    assert ours == b"".join(encode_response(response, version))


def test_what_does_not_fit_goes_by_flavour_the_least_used_first() -> None:
    kept = TopicBodies(2 * (ENTRY_BYTES + 10))
    brokers, one = object(), Topic("t", b"t" * 16, {}, 0)
    flavours = [Flavour(version, "", 0, 0) for version in (11, 12, 13)]
    for flavour in flavours:
        kept.put(flavour, kept.use(flavour, brokers), one, 0, b"x" * 10)
    assert kept.size <= 2 * (ENTRY_BYTES + 10)
    found = [kept.get(kept.use(flavour, brokers), one, 0) for flavour in flavours]
    assert found == [None, b"x" * 10, b"x" * 10]


def test_another_set_of_brokers_drops_everything() -> None:
    kept, one, flavour = TopicBodies(1 << 20), Topic("t", b"t" * 16, {}, 0), Flavour(13, "", 0, 0)
    kept.put(flavour, kept.use(flavour, "then"), one, 0, b"x")
    assert kept.get(kept.use(flavour, "now"), one, 0) is None
    assert kept.size == 0


async def test_a_topic_that_grew_is_encoded_anew(agent: Agent) -> None:
    await create(agent, topic("t", 2))
    assert len((await metadata(agent, "t")).topics[0].partitions) == 2
    agent_topic = agent.services.replica.state.topics["t"]
    body = agent.services.topic_bodies
    assert body.size > 0
    grow = cp.CreatePartitionsRequest([cp.CreatePartitionsTopic("t", 5, None)], 5000, False)
    await agent.call("CreatePartitions", grow, 3)
    assert len(agent_topic.partitions) == len((await metadata(agent, "t")).topics[0].partitions) == 5


async def test_leaders_follow_the_brokers_of_now(start: StartAgent) -> None:
    first = await start("a")
    await create(first, topic("t", 32))
    before = {part.leader_id for part in (await metadata(first, "t")).topics[0].partitions}
    await start("b", port=2)
    answer = await metadata(first, "none-such-so-that-a-barrier-is-passed", "t")
    after = {part.leader_id for part in answer.topics[1].partitions}
    assert (before, after) == ({1}, {1, 2})
    assert after <= {broker.node_id for broker in answer.brokers}
