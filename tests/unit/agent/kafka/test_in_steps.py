"""Whatever a client asks for, others have their turn before it is all answered: heartbeats, the lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agent.kafka.handlers import k32_describe_configs
from agent.net.wire import steps
from agent.net.wire.generated import consumer_group_describe as cgd
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import describe_client_quotas as dcq
from agent.net.wire.generated import describe_configs as dc
from agent.net.wire.generated import describe_groups as dg
from agent.net.wire.generated import describe_log_dirs as dl
from agent.net.wire.generated import describe_producers as dp
from agent.net.wire.generated import describe_topic_partitions as dtp
from agent.net.wire.generated import describe_user_scram_credentials as dus
from agent.net.wire.generated import elect_leaders as el
from agent.net.wire.generated import find_coordinator as fc
from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import offset_commit as oc
from agent.net.wire.generated import offset_fetch as of
from agent.net.wire.generated import offset_for_leader_epoch as ofle
from coordination.state import State
from coordination.state.consumer_types import ConsumerGroupData, ConsumerMember
from coordination.state.group_types import CONSUMER, ClassicGeneration, ClassicMember, Group
from coordination.state.quota_types import QuotaEntity
from coordination.state.scram_types import ScramCredential
from coordination.state.types import ProducerEntry
from tests.unit.agent.kafka.admin_calls import TOPIC, configs, create, topic
from tests.unit.agent.kafka.turns import turns
from tests.unit.agent.rig import Agent

WIDE, MANY, AT_ONCE = 3_000, 75, 10
"""Partitions of one topic; topics of one partition, which have as many configs together; rows of a step."""

ALL = list(range(WIDE))
NAMES = [f"t{number:03}" for number in range(MANY)]

QUESTIONS: dict[str, tuple[Any, int, int]] = {
    "DescribeConfigs": (
        dc.DescribeConfigsRequest([dc.DescribeConfigsResource(TOPIC, name, None) for name in NAMES], True),
        4,
        2 * MANY,
    ),
    "CreateTopics": (
        ct.CreateTopicsRequest([topic(f"new{number}") for number in range(MANY)], 5_000, True),
        7,
        2 * MANY,
    ),
    "DescribeLogDirs": (dl.DescribeLogDirsRequest(None), 4, 2 * WIDE // AT_ONCE),
    "ListOffsets": (
        lo.ListOffsetsRequest(
            -1, 0, [lo.ListOffsetsTopic("wide", [lo.ListOffsetsPartition(n, -1, -1) for n in ALL])]
        ),
        7,
        3 * WIDE // AT_ONCE,
    ),
    "OffsetFetch": (
        of.OffsetFetchRequest(
            groups=[of.OffsetFetchRequestGroup("g", topics=[of.OffsetFetchRequestTopics("wide", b"", ALL)])]
        ),
        8,
        2 * WIDE // AT_ONCE,
    ),
    "OffsetFetch of all": (
        of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup("g", topics=None)]),
        8,
        2 * WIDE // AT_ONCE,
    ),
    "OffsetFetch as it was": (
        of.OffsetFetchRequest("g", [of.OffsetFetchRequestTopic("wide", ALL)]),
        7,
        3 * WIDE // AT_ONCE,
    ),
    "DescribeProducers": (
        dp.DescribeProducersRequest([dp.TopicRequest("wide", ALL)]),
        0,
        2 * WIDE // AT_ONCE,
    ),
    "OffsetForLeaderEpoch": (
        ofle.OffsetForLeaderEpochRequest(
            -1, [ofle.OffsetForLeaderTopic("wide", [ofle.OffsetForLeaderPartition(n, -1, 0) for n in ALL])]
        ),
        4,
        2 * WIDE // AT_ONCE,
    ),
    "ElectLeaders": (
        el.ElectLeadersRequest(0, [el.TopicPartitions("wide", ALL)]),
        2,
        2 * WIDE // AT_ONCE,
    ),
    "FindCoordinator": (
        fc.FindCoordinatorRequest(coordinator_keys=[f"g{n}" for n in ALL]),
        4,
        2 * WIDE // AT_ONCE,
    ),
    "DescribeTopicPartitions": (
        dtp.DescribeTopicPartitionsRequest([dtp.TopicRequest("wide")], 2_000),
        0,
        2_000 // AT_ONCE,
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
async def test_a_large_answer_is_made_in_steps(
    agent: Agent, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(agent, topic("wide", WIDE), *map(topic, NAMES))
    rows = [oc.OffsetCommitRequestPartition(n, n, -1, "") for n in ALL]
    committed = oc.OffsetCommitRequest("g", topics=[oc.OffsetCommitRequestTopic("wide", partitions=rows)])
    await agent.call("OffsetCommit", committed, 8)
    request, version, wanted = QUESTIONS[question]
    whole = await agent.call(question.split()[0], request, version)
    monkeypatch.setattr(steps, "ROWS_PER_STEP", AT_ONCE)
    async with turns() as counted:
        answer = await agent.call(question.split()[0], request, version)
    assert counted.count >= wanted
    if question != "CreateTopics":  # whose ids are random
        assert answer == whole


CROWD = 300
"""Members, quotas, users and producers of whom more are told than a step has rows."""


def crowd(state: State) -> None:
    """One classic group and one of KIP-848 of so many members, and as many of all else that is listed."""
    ids = [f"m{number:03}" for number in range(CROWD)]
    members = {each: ClassicMember(each, None, "c", "/h", 9, 9, (("range", b"r"),), b"a") for each in ids}
    classic = ClassicGeneration(3, "consumer", "range", ids[0], True, members)
    data = ConsumerGroupData(1, 1, members={each: ConsumerMember(each, epoch=1) for each in ids})
    state.groups["classic"] = Group("classic", classic=classic)
    state.groups["modern"] = Group("modern", CONSUMER, consumer=data)
    for each in ids:
        state.quotas.entities[QuotaEntity(each, None, None)] = {"producer_byte_rate": 1.0}
        state.scram.credentials[each, 1] = ScramCredential(4096, b"s", b"k", b"k")
    for number in reversed(range(CROWD)):
        state.topics["wide"].partitions[0].producers[number] = ProducerEntry(0, 0)


CROWDED: dict[str, tuple[Any, int, Callable[[Any], list[Any]]]] = {
    "DescribeGroups": (dg.DescribeGroupsRequest(["classic"]), 5, lambda told: told.groups[0].members),
    "ConsumerGroupDescribe": (
        cgd.ConsumerGroupDescribeRequest(["modern"]),
        1,
        lambda told: told.groups[0].members,
    ),
    "DescribeClientQuotas": (dcq.DescribeClientQuotasRequest([], False), 1, lambda told: told.entries),
    "DescribeUserScramCredentials": (
        dus.DescribeUserScramCredentialsRequest(None),
        0,
        lambda told: told.results,
    ),
    "DescribeProducers": (
        dp.DescribeProducersRequest([dp.TopicRequest("wide", [0])]),
        0,
        lambda told: told.topics[0].partitions[0].active_producers,
    ),
}


@pytest.mark.parametrize("question", CROWDED)
async def test_many_members_and_producers_are_told_in_steps(
    agent: Agent, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(agent, topic("wide", 1))
    crowd(agent.services.replica.state)
    request, version, rows = CROWDED[question]
    whole = await agent.call(question, request, version)
    assert len(rows(whole)) == CROWD
    monkeypatch.setattr(steps, "ROWS_PER_STEP", AT_ONCE)
    async with turns() as counted:
        answer = await agent.call(question, request, version)
    assert counted.count >= 2 * CROWD // AT_ONCE
    assert answer == whole
    if question == "DescribeProducers":
        told = answer.topics[0].partitions[0].active_producers
        assert [each.producer_id for each in told] == list(range(CROWD))


async def test_what_is_named_again_is_answered_once(agent: Agent) -> None:
    """A request of some kilobytes must not become an answer of hundreds of megabytes."""
    await create(agent, topic("wide", 5), topic("t"))
    resources = [dc.DescribeConfigsResource(TOPIC, name, None) for name in ("wide", "t", "wide") * 50]
    resources += [dc.DescribeConfigsResource(TOPIC, "t", ["retention.ms"])] * 2
    described = await agent.call("DescribeConfigs", dc.DescribeConfigsRequest(resources), 4)
    assert [row.resource_name for row in described.results] == ["wide", "t", "t"]
    assert [len(row.configs) > 1 for row in described.results] == [True, True, False]

    groups = [
        of.OffsetFetchRequestGroup("g", topics=[of.OffsetFetchRequestTopics("wide", b"", [0, 1, 1, 0])] * 3),
        of.OffsetFetchRequestGroup("g", topics=None),
        of.OffsetFetchRequestGroup("g", topics=None),
        of.OffsetFetchRequestGroup("h", topics=[of.OffsetFetchRequestTopics("t", b"", [])] * 3),
    ]
    fetched = await agent.call("OffsetFetch", of.OffsetFetchRequest(groups=groups), 8)
    assert [
        (row.group_id, [(t.name, [r.partition_index for r in t.partitions]) for t in row.topics])
        for row in fetched.groups
    ] == [("g", [("wide", [0, 1])]), ("g", []), ("h", [("t", [])])]

    asked = [dp.TopicRequest("wide", [0, 1, 0]), dp.TopicRequest("t", [0]), dp.TopicRequest("wide", [1, 2])]
    told = await agent.call("DescribeProducers", dp.DescribeProducersRequest(asked), 0)
    assert [(row.name, [each.partition_index for each in row.partitions]) for row in told.topics] == [
        ("wide", [0, 1, 2]),
        ("t", [0]),
    ]


async def test_configs_that_change_between_two_steps_are_told_of_one_moment(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(agent, *map(topic, NAMES))
    monkeypatch.setattr(steps, "ROWS_PER_STEP", AT_ONCE)
    begun = asyncio.Event()
    describe = k32_describe_configs._describe

    def noted(*given: Any) -> dc.DescribeConfigsResult:
        begun.set()
        return describe(*given)

    monkeypatch.setattr(k32_describe_configs, "_describe", noted)
    request = dc.DescribeConfigsRequest(
        [dc.DescribeConfigsResource(TOPIC, name, ["retention.ms"]) for name in NAMES]
    )
    asked = asyncio.ensure_future(agent.call("DescribeConfigs", request, 4))
    await begun.wait()
    for each in agent.services.replica.state.topics.values():  # as one End does it
        each.configs = {"retention.ms": "7"}
    answer = await asked
    assert len({row.configs[0].value for row in answer.results}) == 1
    assert (await configs(agent, TOPIC, NAMES[-1], keys=["retention.ms"])).configs[0].value == "7"


async def test_positions_that_change_between_two_steps_are_told_of_one_moment(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(agent, topic("wide", 300))
    rows = [oc.OffsetCommitRequestPartition(n, 1, -1, "") for n in range(300)]
    committed = oc.OffsetCommitRequest("g", topics=[oc.OffsetCommitRequestTopic("wide", partitions=rows)])
    await agent.call("OffsetCommit", committed, 8)
    monkeypatch.setattr(steps, "ROWS_PER_STEP", AT_ONCE)
    offsets = agent.services.replica.state.groups["g"].offsets.offsets
    seen: set[int] = set()

    async def others() -> None:
        while True:
            for at in range(300):
                offsets[at] += 1
            seen.add(offsets[0])
            await asyncio.sleep(0)

    task = asyncio.ensure_future(others())
    request = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup("g", topics=None)])
    answer = await agent.call("OffsetFetch", request, 8)
    task.cancel()
    assert len(seen) > 300 // AT_ONCE
    assert len({row.committed_offset for row in answer.groups[0].topics[0].partitions}) == 1
