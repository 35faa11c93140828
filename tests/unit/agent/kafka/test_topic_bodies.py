"""Topics encoded once for Metadata: the same bytes as encoding all at once, dropped when they are wrong."""

from __future__ import annotations

import random

import pytest

from agent.cluster.hints import ANYWHERE
from agent.kafka.topic_bodies import (
    ENTRY_BYTES,
    FLAVOUR_BYTES,
    Flavour,
    TopicBodies,
    assembled,
    encoded_topic,
)
from agent.net.wire.generated import create_partitions as cp
from agent.net.wire.generated.metadata import (
    MetadataRequest,
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
    most = 2 * (FLAVOUR_BYTES + ENTRY_BYTES + 10)
    kept = TopicBodies(most)
    brokers, one = object(), Topic("t", b"t" * 16, {}, 0)
    flavours = [Flavour(version, "", 0, 0) for version in (11, 12, 13)]
    for flavour in flavours:
        kept.put(flavour, kept.use(flavour, brokers), one, 0, b"x" * 10)
    assert kept.size <= most
    found = [kept.get(kept.use(flavour, brokers), one, 0) for flavour in reversed(flavours)]
    assert found == [b"x" * 10, b"x" * 10, None]


def test_another_set_of_brokers_drops_everything() -> None:
    kept, one, flavour = TopicBodies(1 << 20), Topic("t", b"t" * 16, {}, 0), Flavour(13, "", 0, 0)
    kept.put(flavour, kept.use(flavour, "then"), one, 0, b"x")
    assert kept.get(kept.use(flavour, "now"), one, 0) is None
    assert kept.size == FLAVOUR_BYTES


def test_flavours_without_a_body_are_bounded_too() -> None:
    kept, brokers = TopicBodies(10 * FLAVOUR_BYTES), object()
    for number in range(1_000):
        kept.use(Flavour(12, "", 0, number), brokers)
    assert kept.size == 10 * FLAVOUR_BYTES
    assert len(kept._kept) == len(kept._sizes) == 10


def test_the_size_is_that_of_what_is_kept() -> None:
    rng, kept, brokers = random.Random(1), TopicBodies(20_000), object()
    topics = [Topic(f"t{number}", number.to_bytes(16, "big"), {}, 0) for number in range(9)]
    for _ in range(2_000):
        brokers = object() if rng.random() < 0.01 else brokers
        flavour = Flavour(12, "", 0, rng.randrange(8))
        bodies = kept.use(flavour, brokers)
        for _ in range(rng.randrange(4)):  # one that is there is replaced: its topic has grown
            kept.put(flavour, bodies, rng.choice(topics), 1, bytes(rng.randrange(3_000)))
        held = [ENTRY_BYTES + len(body) for each in kept._kept.values() for _, body in each.values()]
        assert kept.size == len(kept._kept) * FLAVOUR_BYTES + sum(held) <= 20_000


async def test_clients_that_make_up_zones_share_the_bodies_of_no_zone(start: StartAgent) -> None:
    agent = await start(agent={"zone": "a"})
    await create(agent, topic("t", 2))
    request = MetadataRequest(topics=None)
    for zone in ("a", *map(str, range(20))):
        await agent.call("Metadata", request, 13, client_id=f"app,floe_zone={zone}")
    assert {flavour.zone for flavour in agent.services.topic_bodies._kept} == {"a", ANYWHERE}


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
