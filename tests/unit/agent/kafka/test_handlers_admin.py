"""Metadata, topics, configs and the descriptions that tools ask for, through the dispatcher."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agent.kafka.handlers import HANDLERS
from agent.net.wire.api import APIS
from agent.net.wire.errors import WireError
from agent.net.wire.frame import RequestHeader
from agent.net.wire.generated import alter_configs as ac
from agent.net.wire.generated import api_versions as av
from agent.net.wire.generated import create_partitions as cp
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_topics as dt
from agent.net.wire.generated import describe_cluster as dcl
from agent.net.wire.generated import describe_log_dirs as ld
from agent.net.wire.generated import describe_producers as dp
from agent.net.wire.generated import describe_topic_partitions as dtp
from agent.net.wire.generated import find_coordinator as fc
from agent.net.wire.generated import init_producer_id as ip
from agent.net.wire.generated import metadata as md
from agent.net.wire.generated import offset_for_leader_epoch as oe
from agent.net.wire.generated import produce as p
from coordination.kafka_codes import Code
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.admin_calls import BROKER, TOPIC, alter, configs, create, metadata, topic
from tests.unit.agent.rig import Agent, batch

NIL = bytes(16)
FEATURES = {"floe.level": 2, "group.version": 1, "transaction.version": 2}


async def value_of(agent: Agent, name: str, config: str) -> tuple[str, int]:
    entry = (await configs(agent, TOPIC, name, keys=[config])).configs[0]
    return entry.value, entry.config_source


# ApiVersions and the table of handlers


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_lists_the_handlers(agent: Agent, version: int) -> None:
    request = av.ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    answer = await agent.call("ApiVersions", request, version)
    listed = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert listed == {key: handler.VERSIONS for key, handler in HANDLERS.items()}
    assert listed[0][0] == 0, "older librdkafka stops compressing otherwise"
    if version >= 3:
        finalized = {each.name: each.max_version_level for each in answer.finalized_features}
        assert (answer.finalized_features_epoch, finalized) == (0, FEATURES)
        supported = [each.name for each in answer.supported_features]
        expected = list(FEATURES) if version >= 4 else ["floe.level"]
        assert supported == expected, "older clients fail on a feature whose least level is 0"


async def test_a_client_without_a_proper_name_is_refused(agent: Agent) -> None:
    request = av.ApiVersionsRequest(client_software_name="-", client_software_version="")
    assert (await agent.call("ApiVersions", request, 3)).error_code == Code.INVALID_REQUEST


@pytest.mark.parametrize("key", sorted(HANDLERS))
def test_every_handler_is_known_to_the_wire_and_says_what_it_does(key: int) -> None:
    handler, api = HANDLERS[key], APIS[key]
    assert api.min <= handler.VERSIONS[0] <= handler.VERSIONS[1] == api.max
    doc = handler.__doc__ or ""
    assert doc.startswith(f"{api.name}: ")
    for part in ("Versions", "Behaviour:", "Deviations:"):
        assert part in doc


async def test_an_api_without_a_handler_closes_the_connection(agent: Agent) -> None:
    with pytest.raises(WireError):
        await agent.dispatcher.answer(agent.client, RequestHeader(11, 5, 1, None, 0), memoryview(b""))


# Topics


@pytest.mark.parametrize("version", range(2, 8))
async def test_topics_are_created_described_and_deleted(agent: Agent, version: int) -> None:
    (created,) = await create(agent, topic("t", 3), version=version)
    assert created.error_code == 0
    described = (await metadata(agent, "t")).topics[0]
    assert [part.partition_index for part in described.partitions] == [0, 1, 2]
    if version >= 5:
        assert (created.num_partitions, created.replication_factor) == (3, 1)
        assert {entry.name for entry in created.configs} >= {"cleanup.policy", "max.message.bytes"}
    if version >= 7:
        assert created.topic_id == described.topic_id != NIL
    request = dt.DeleteTopicsRequest(
        topics=[dt.DeleteTopicState(name="t")], topic_names=["t"], timeout_ms=5000
    )
    deleted = (await agent.call("DeleteTopics", request, min(version, 6))).responses[0]
    assert (deleted.name, deleted.error_code) == ("t", 0)
    assert (await metadata(agent, "t")).topics[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("validate_only", [False, True])
async def test_each_topic_that_cannot_be_is_refused_for_its_reason(agent: Agent, validate_only: bool) -> None:
    await create(agent, topic("there.is"))
    cases = {
        "there.is": (topic("there.is"), Code.TOPIC_ALREADY_EXISTS),
        "there_is": (topic("there_is"), Code.INVALID_TOPIC_EXCEPTION),
        "a b": (topic("a b"), Code.INVALID_TOPIC_EXCEPTION),
        "": (topic(""), Code.INVALID_TOPIC_EXCEPTION),
        "x" * 250: (topic("x" * 250), Code.INVALID_TOPIC_EXCEPTION),
        "zero": (topic("zero", 0), Code.INVALID_PARTITIONS),
        "many": (topic("many", 10_000_000), Code.INVALID_PARTITIONS),
        "replicas": (topic("replicas", 1, 0), Code.INVALID_REPLICATION_FACTOR),
        "config": (topic("config", no_such="1"), Code.INVALID_CONFIG),
        "value": (topic("value", retention_ms="soon"), Code.INVALID_CONFIG),
        "null": (topic("null", retention_ms=None), Code.INVALID_CONFIG),
    }
    answers = await create(agent, *[case for case, _ in cases.values()], validate_only=validate_only)
    assert {a.name: a.error_code for a in answers} == {name: code for name, (_, code) in cases.items()}
    assert all(answer.error_message for answer in answers)


async def test_a_topic_named_twice_is_refused_and_others_are_made(agent: Agent) -> None:
    answers = await create(agent, topic("a"), topic("b"))
    assert [a.error_code for a in answers] == [0, 0]
    request = ct.CreateTopicsRequest(topics=[topic("c"), topic("c"), topic("d")], timeout_ms=5000)
    answer = await agent.call("CreateTopics", request, 7)
    assert {(a.name, a.error_code) for a in answer.topics} == {("c", Code.INVALID_REQUEST), ("d", 0)}


async def test_names_of_one_request_may_differ_by_dots_only(agent: Agent) -> None:
    asked = [topic("a.b.c"), topic("a_b.c"), topic("d")]
    for validate_only in (True, False):
        answers = await create(agent, *asked, validate_only=validate_only)
        assert [each.error_code for each in answers] == [0, 0, 0]
    (later,) = await create(agent, topic("a.b_c"))
    assert later.error_code == Code.INVALID_TOPIC_EXCEPTION


async def test_validate_only_changes_nothing(agent: Agent) -> None:
    (answer,) = await create(agent, topic("t", 2), validate_only=True)
    assert answer.error_code == 0
    assert (await metadata(agent)).topics == []


async def test_an_assignment_counts_partitions(agent: Agent) -> None:
    assignments = [ct.CreatableReplicaAssignment(n, [1]) for n in range(3)]
    wanted = ct.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=assignments)
    (answer,) = await create(agent, wanted)
    assert (answer.error_code, answer.num_partitions) == (0, 3)
    gap = dataclasses.replace(wanted, name="u", assignments=assignments[1:])
    assert (await create(agent, gap))[0].error_code == Code.INVALID_REPLICA_ASSIGNMENT
    both = dataclasses.replace(wanted, name="v", num_partitions=3)
    assert (await create(agent, both))[0].error_code == Code.INVALID_REQUEST


async def test_topics_are_deleted_by_id(agent: Agent) -> None:
    (created,) = await create(agent, topic("t"))
    states = [
        dt.DeleteTopicState(topic_id=created.topic_id),
        dt.DeleteTopicState(topic_id=b"?" * 16),
        dt.DeleteTopicState(name="nope"),
        dt.DeleteTopicState(),
    ]
    answer = await agent.call("DeleteTopics", dt.DeleteTopicsRequest(topics=states, timeout_ms=5000), 6)
    assert [(each.name, each.error_code) for each in answer.responses] == [
        ("t", 0),
        (None, Code.UNKNOWN_TOPIC_ID),
        ("nope", Code.UNKNOWN_TOPIC_OR_PARTITION),
        (None, Code.INVALID_REQUEST),
    ]


async def test_a_topic_named_by_name_and_id_is_refused_not_deleted(agent: Agent) -> None:
    (created,) = await create(agent, topic("t"))
    states = [dt.DeleteTopicState(topic_id=created.topic_id), dt.DeleteTopicState(name="t")]
    answer = await agent.call("DeleteTopics", dt.DeleteTopicsRequest(topics=states, timeout_ms=5000), 6)
    assert [(each.name, each.error_code) for each in answer.responses] == [("t", Code.INVALID_REQUEST)]
    assert (await metadata(agent, "t")).topics[0].error_code == 0


async def test_partitions_grow_and_never_shrink(agent: Agent) -> None:
    await create(agent, topic("t", 2))

    async def grow(name: str, count: int, **more: Any) -> int:
        assignments = more.pop("assignments", None)
        wanted = cp.CreatePartitionsTopic(name, count, assignments)
        request = cp.CreatePartitionsRequest(topics=[wanted], timeout_ms=5000, **more)
        code: int = (await agent.call("CreatePartitions", request, 3)).results[0].error_code
        return code

    assert await grow("t", 4, validate_only=True) == 0
    assert len((await metadata(agent, "t")).topics[0].partitions) == 2
    assert await grow("t", 4) == 0
    assert len((await metadata(agent, "t")).topics[0].partitions) == 4
    assert [await grow("t", n) for n in (4, 3, 0)] == [Code.INVALID_PARTITIONS] * 3
    assert await grow("nope", 4) == Code.UNKNOWN_TOPIC_OR_PARTITION
    one_named = [cp.CreatePartitionsAssignment([1])]
    assert await grow("t", 6, assignments=one_named) == Code.INVALID_REPLICA_ASSIGNMENT
    assert await grow("t", 5, assignments=one_named) == 0


# Metadata


@pytest.mark.parametrize("version", range(14))
async def test_metadata_names_listed_brokers_only(agent: Agent, version: int) -> None:
    await create(agent, topic("t", 2))
    answer = await metadata(agent, "t", version=version)
    nodes = {broker.node_id for broker in answer.brokers}
    partitions = answer.topics[0].partitions
    assert {part.leader_id for part in partitions} <= nodes
    assert all(part.replica_nodes == part.isr_nodes == [part.leader_id] for part in partitions)
    if version >= 1:
        assert answer.controller_id in nodes
    if version >= 2:
        assert answer.cluster_id == "floe"
    if version >= 7:
        assert {part.leader_epoch for part in partitions} == {agent.services.replica.state.leader_epoch}


async def test_two_agents_name_the_same_leaders_and_share_the_work(start: StartAgent) -> None:
    first, second = await start("a", port=1), await start("b", port=2)
    await create(first, topic("t", 64))
    one, two = await metadata(first, "t"), await metadata(second, "t")
    assert one.brokers == two.brokers
    leaders = [part.leader_id for part in one.topics[0].partitions]
    assert leaders == [part.leader_id for part in two.topics[0].partitions]
    assert 16 < leaders.count(1) < 48


async def test_a_topic_made_by_another_agent_is_known_at_once(start: StartAgent) -> None:
    maker, behind = await start("a"), await start("b")
    behind.log.faults.delivery_delay_s = 0.1
    await create(maker, topic("t"))
    assert (await metadata(behind, "t")).topics[0].error_code == 0
    await create(maker, topic("u"))
    assert [each.name for each in (await metadata(behind)).topics] == ["t", "u"]


async def test_all_topics_none_and_by_id(agent: Agent) -> None:
    (created,) = await create(agent, topic("t"))
    assert [t.name for t in (await metadata(agent)).topics] == ["t"]
    none = await agent.call("Metadata", md.MetadataRequest(topics=[]), 13)
    assert none.topics == []
    old = await agent.call("Metadata", md.MetadataRequest(topics=[]), 0)
    assert [t.name for t in old.topics] == ["t"], "version 0: an empty list means all"
    by_id = md.MetadataRequestTopic(topic_id=created.topic_id, name=None)
    unknown = md.MetadataRequestTopic(topic_id=b"?" * 16, name=None)
    answer = await agent.call("Metadata", md.MetadataRequest(topics=[by_id, unknown]), 13)
    assert [(t.name, t.error_code) for t in answer.topics] == [("t", 0), (None, Code.UNKNOWN_TOPIC_ID)]


async def test_topics_are_created_on_the_way_where_that_is_wanted(start: StartAgent) -> None:
    willing = await start("a")
    assert (await alter(willing, BROKER, "", ("num.partitions", 0, "3"))).error_code == 0
    refused = (await metadata(willing, "t", create=False)).topics[0]
    assert refused.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert len((await metadata(willing, "t", create=True)).topics[0].partitions) == 3
    assert (await metadata(willing, "a/b", create=True)).topics[0].error_code == Code.INVALID_TOPIC_EXCEPTION
    assert (await alter(willing, BROKER, "", ("auto.create.topics.enable", 0, "false"))).error_code == 0
    other = await start("b")
    assert (await metadata(other, "u", create=True)).topics[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


async def test_operations_are_told_when_asked(agent: Agent) -> None:
    await create(agent, topic("t"))
    told = await metadata(agent, "t", version=9, include_topic_authorized_operations=True,
                          include_cluster_authorized_operations=True)  # fmt: skip
    assert (told.topics[0].topic_authorized_operations, told.cluster_authorized_operations) == (3576, 8096)
    silent = await metadata(agent, "t", version=9)
    assert silent.topics[0].topic_authorized_operations == -(1 << 31)


# Configs


async def test_configs_say_where_they_come_from(agent: Agent) -> None:
    await create(agent, topic("t", retention_ms="5"))
    assert await value_of(agent, "t", "retention.ms") == ("5", 1)
    assert await value_of(agent, "t", "cleanup.policy") == ("delete", 5)
    assert (await alter(agent, BROKER, "", ("log.cleanup.policy", 0, "compact"))).error_code == 0
    assert await value_of(agent, "t", "cleanup.policy") == ("compact", 3)
    entry = (
        await configs(
            agent, TOPIC, "t", keys=["retention.ms"], include_synonyms=True, include_documentation=True
        )
    ).configs[0]
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == [
        ("retention.ms", "5", 1),
    ], "Kafka spells the default in hours and does not list it"
    assert entry.documentation


async def test_a_brokers_configs(agent: Agent) -> None:
    node = str(agent.services.replica.node_id)
    found = {entry.name: entry for entry in (await configs(agent, BROKER, node)).configs}
    assert found["message.max.bytes"].value == "1048588"
    assert (found["num.partitions"].value, found["num.partitions"].read_only) == ("1", False)
    assert (found["node.id"].value, found["node.id"].config_source) == (node, 4)
    assert found["log.retention.ms"].value is None, "as in Kafka, which has it in hours"
    assert (await configs(agent, BROKER, "")).configs == []
    await alter(agent, BROKER, "", ("message.max.bytes", 0, "2000"))
    assert [(e.name, e.value) for e in (await configs(agent, BROKER, "")).configs] == [
        ("message.max.bytes", "2000")
    ]
    assert (await configs(agent, BROKER, "99")).error_code == Code.INVALID_REQUEST
    assert (await alter(agent, BROKER, node, ("message.max.bytes", 0, "3000"))).error_code == Code.NONE
    assert (await configs(agent, BROKER, "")).configs[0].value == "3000", "it counts for the cluster"


async def test_what_has_no_configs_says_so(agent: Agent) -> None:
    assert (await configs(agent, TOPIC, "nope")).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert (await configs(agent, TOPIC, "a b")).error_code == Code.INVALID_TOPIC_EXCEPTION
    assert (await configs(agent, 3, "x")).error_code == Code.INVALID_REQUEST
    assert (await alter(agent, TOPIC, "nope", ("retention.ms", 0, "1"))).error_code == (
        Code.UNKNOWN_TOPIC_OR_PARTITION
    )


async def test_single_configs_are_set_appended_subtracted_and_deleted(agent: Agent) -> None:
    await create(agent, topic("t", retention_ms="5"))
    assert (await alter(agent, TOPIC, "t", ("cleanup.policy", 2, "compact"))).error_code == 0
    assert (await value_of(agent, "t", "cleanup.policy"))[0] == "delete,compact"
    assert (await alter(agent, TOPIC, "t", ("cleanup.policy", 3, "delete"))).error_code == 0
    assert (await value_of(agent, "t", "cleanup.policy"))[0] == "compact"
    assert (await alter(agent, TOPIC, "t", ("retention.ms", 1, None))).error_code == 0
    assert await value_of(agent, "t", "retention.ms") == ("604800000", 5)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("no.such", 0, "1"), Code.INVALID_CONFIG),
        (("retention.ms", 0, "x"), Code.INVALID_CONFIG),
        (("retention.ms", 2, "1"), Code.INVALID_CONFIG),
        (("retention.ms", 0, None), Code.INVALID_REQUEST),
        (("retention.ms", 9, "1"), Code.INVALID_REQUEST),
    ],
)
async def test_bad_changes_are_refused_whole(
    agent: Agent, change: tuple[str, int, str | None], code: Code
) -> None:
    await create(agent, topic("t"))
    answer = await alter(agent, TOPIC, "t", ("max.message.bytes", 0, "77"), change)
    assert answer.error_code == code
    assert answer.error_message
    assert (await value_of(agent, "t", "max.message.bytes"))[0] == "1048588"


async def test_validate_only_alters_nothing(agent: Agent) -> None:
    await create(agent, topic("t"))
    assert (await alter(agent, TOPIC, "t", ("retention.ms", 0, "1"), validate_only=True)).error_code == 0
    bad = await alter(agent, TOPIC, "t", ("retention.ms", 0, "x"), validate_only=True)
    assert bad.error_code == Code.INVALID_CONFIG
    assert (await value_of(agent, "t", "retention.ms"))[1] == 5


async def test_validate_only_binds_nothing(agent: Agent) -> None:
    """Configs that bind the topic are rehearsed on copies: its partitions expect no span of them."""
    await create(agent, topic("t"))
    validation = ("confluent.value.schema.validation", 0, "true")
    assert (await alter(agent, TOPIC, "t", validation, validate_only=True)).error_code == 0
    state = agent.services.replica.state
    assert (state.schemas, state.followers, state.next_schema_id) == ({}, {}, 1)
    assert [one.begins_span for one in state.topics["t"].partitions] == [False]
    assert (await alter(agent, TOPIC, "t", validation)).error_code == 0
    off = (validation[0], 0, "false")
    assert (await alter(agent, TOPIC, "t", off, validate_only=True)).error_code == 0
    assert state.topics["t"].value_schema_id == 1
    assert [one.begins_span for one in state.topics["t"].partitions] == [True]


async def test_the_legacy_request_replaces_everything(agent: Agent) -> None:
    await create(agent, topic("t", retention_ms="5"))
    resource = ac.AlterConfigsResource(TOPIC, "t", [ac.AlterableConfig("max.message.bytes", "99")])
    answer = await agent.call("AlterConfigs", ac.AlterConfigsRequest(resources=[resource]), 2)
    assert answer.responses[0].error_code == 0
    assert (await value_of(agent, "t", "retention.ms"))[1] == 5
    assert await value_of(agent, "t", "max.message.bytes") == ("99", 1)


# What tools ask for


async def test_the_cluster_is_described(agent: Agent) -> None:
    answer = await agent.call("DescribeCluster", dcl.DescribeClusterRequest(), 2)
    assert (answer.cluster_id, answer.controller_id, [b.broker_id for b in answer.brokers]) == (
        "floe",
        1,
        [1],
    )
    controllers = await agent.call("DescribeCluster", dcl.DescribeClusterRequest(endpoint_type=2), 2)
    assert controllers.error_code == Code.MISMATCHED_ENDPOINT_TYPE


async def test_partitions_are_described_page_by_page(agent: Agent) -> None:
    await create(agent, topic("a", 3), topic("b", 2))
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        request = dtp.DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor)
        page = await agent.call("DescribeTopicPartitions", request, 0)
        seen += [(t.name, part.partition_index) for t in page.topics for part in t.partitions]
        if page.next_cursor is None:
            break
        cursor = dtp.Cursor(page.next_cursor.topic_name, page.next_cursor.partition_index)
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
    request = dtp.DescribeTopicPartitionsRequest(topics=[dtp.TopicRequest("nope"), dtp.TopicRequest("b")])
    named = await agent.call("DescribeTopicPartitions", request, 0)
    assert [(t.name, t.error_code) for t in named.topics] == [
        ("b", 0),
        ("nope", Code.UNKNOWN_TOPIC_OR_PARTITION),
    ]


async def put(agent: Agent, raw: bytes) -> None:
    data = p.TopicProduceData(name="t", partition_data=[p.PartitionProduceData(0, memoryview(raw))])
    answer = await agent.call("Produce", p.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


async def test_sizes_are_reported_once_by_the_leader(start: StartAgent) -> None:
    agents = [await start("a"), await start("b")]
    await create(agents[0], topic("t"))
    raw = batch(b"x" * 100)
    await put(agents[0], raw)
    sizes = []
    for each in agents:
        await metadata(each)
        answer = await each.call("DescribeLogDirs", ld.DescribeLogDirsRequest(topics=None), 4)
        sizes += [part.partition_size for t in answer.results[0].topics for part in t.partitions]
    assert sizes == [len(raw)]


async def test_producers_are_described(agent: Agent) -> None:
    await create(agent, topic("t"))
    await put(agent, batch(b"a", b"b", producer_id=5, producer_epoch=2, base_sequence=0))
    request = dp.DescribeProducersRequest(topics=[dp.TopicRequest("t", [0, 9])])
    answer = (await agent.call("DescribeProducers", request, 0)).topics[0].partitions
    (producer,) = answer[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (5, 2, 1)
    assert answer[1].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(6))
async def test_producer_ids_are_never_given_twice(start: StartAgent, version: int) -> None:
    agents = [await start("a"), await start("b")]
    given = []
    for _ in range(3):
        for each in agents:
            answer = await each.call(
                "InitProducerId", ip.InitProducerIdRequest(transactional_id=None), version
            )
            assert (answer.error_code, answer.producer_epoch) == (0, 0)
            given.append(answer.producer_id)
    assert len(set(given)) == 6


@pytest.mark.parametrize("version", range(7))
async def test_every_agent_names_the_same_broker_for_a_group(start: StartAgent, version: int) -> None:
    agents = [await start("a"), await start("b")]
    for each in agents:
        await metadata(each)
    nodes = set()
    for each in agents:
        request = fc.FindCoordinatorRequest(key="g", coordinator_keys=["g"])
        answer = await each.call("FindCoordinator", request, version)
        nodes.add(answer.coordinators[0].node_id if version >= 4 else answer.node_id)
    assert len(nodes) == 1
    assert nodes <= {1, 2}


async def test_leader_epochs_end_at_the_high_watermark(agent: Agent) -> None:
    await create(agent, topic("t"))
    await put(agent, batch(b"a", b"b"))

    async def end(epoch: int, current: int = -1) -> tuple[int, int, int]:
        part = oe.OffsetForLeaderPartition(0, current, epoch)
        request = oe.OffsetForLeaderEpochRequest(topics=[oe.OffsetForLeaderTopic("t", [part])])
        answer = (await agent.call("OffsetForLeaderEpoch", request, 4)).topics[0].partitions[0]
        return answer.error_code, answer.leader_epoch, answer.end_offset

    known = agent.services.replica.state.leader_epoch = 7
    assert await end(0) == await end(known) == await end(0, current=known - 1) == (0, 0, 2)
    assert await end(known + 1) == (0, -1, -1)
    assert await end(0, current=known + 1) == (Code.UNKNOWN_LEADER_EPOCH, -1, -1)


async def test_without_the_log_administration_is_retriable(agent: Agent) -> None:
    agent.log.faults.refused = True
    (answer,) = await create(agent, topic("t"))
    assert answer.error_code in (Code.NOT_CONTROLLER, Code.REQUEST_TIMED_OUT)
    agent.log.faults.refused = False
    assert (await create(agent, topic("t")))[0].error_code in (0, Code.TOPIC_ALREADY_EXISTS)
