"""Requests about the cluster as a whole: groups' configs, features, and replicas that there are none of."""

from __future__ import annotations

from typing import Any

import pytest

from agent.kafka.handlers.rehearse import rehearse
from agent.net.wire.generated import alter_configs as ac
from agent.net.wire.generated import alter_partition_reassignments as apr
from agent.net.wire.generated import api_versions as av
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_topics as dt
from agent.net.wire.generated import describe_client_quotas as dcq
from agent.net.wire.generated import describe_quorum as dq
from agent.net.wire.generated import describe_topic_partitions as dtp
from agent.net.wire.generated import elect_leaders as el
from agent.net.wire.generated import list_config_resources as lcr
from agent.net.wire.generated import list_partition_reassignments as lpr
from agent.net.wire.generated import update_features as uf
from coordination.commands import (
    AlterClusterConfigs,
    AlterTopicConfigs,
    BindSchema,
    CommitTable,
    PutNamespace,
    UpdateFeatures,
)
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest
from coordination.state import Done
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.admin_calls import BROKER, TOPIC, alter, configs, create, metadata, topic
from tests.unit.agent.rig import Agent
from tests.unit.coordination.kit import Script

LOGGER, METRICS, GROUP = 8, 16, 32
SET, DELETE = 0, 1
SESSION = "consumer.session.timeout.ms"


async def test_a_groups_configs_name_the_clusters_as_synonyms(agent: Agent) -> None:
    assert (await alter(agent, GROUP, "g", (SESSION, SET, "50000"))).error_code == 0
    changed = await alter(agent, BROKER, "", ("group.consumer.session.timeout.ms", SET, "46000"))
    assert changed.error_code == 0
    (entry,) = (await configs(agent, GROUP, "g", keys=[SESSION], include_synonyms=True)).configs
    assert (entry.value, entry.config_source) == ("50000", 8)
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
        (SESSION, "50000", 8),
        ("group.consumer.session.timeout.ms", "46000", 3),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    (other,) = (await configs(agent, GROUP, "h", keys=[SESSION])).configs
    assert (other.value, other.config_source) == ("46000", 3)


async def test_trying_a_change_of_a_group_changes_nothing(agent: Agent) -> None:
    tried = await alter(agent, GROUP, "g", (SESSION, SET, "50000"), validate_only=True)
    assert tried.error_code == 0
    bad = await alter(agent, GROUP, "g", (SESSION, SET, "1"), validate_only=True)
    assert (bad.error_code, "min.session" in bad.error_message) == (Code.INVALID_CONFIG, True)
    assert agent.services.replica.state.group_configs == {}


async def test_the_older_request_replaces_a_groups_configs(agent: Agent) -> None:
    await alter(agent, GROUP, "g", (SESSION, SET, "50000"))
    wanted = ac.AlterConfigsResource(
        GROUP, "g", [ac.AlterableConfig("consumer.heartbeat.interval.ms", "6000")]
    )
    answer = await agent.call("AlterConfigs", ac.AlterConfigsRequest([wanted], False), 2)
    assert answer.responses[0].error_code == 0
    own = agent.services.replica.state.group_configs["g"]
    assert own == {"consumer.heartbeat.interval.ms": "6000"}


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        (TOPIC, "", "Default topic resources"),
        (GROUP, "", "Default group resources"),
        (BROKER, "one", "must be an integer"),
        (BROKER, "99", "expected that of a live broker"),
        (LOGGER, "1", "logging.level"),
        (LOGGER, "", "must be an integer"),
        (METRICS, "m", "telemetry"),
        (3, "x", "Unknown resource type 3"),
    ],
)
async def test_what_cannot_be_altered_says_why(agent: Agent, kind: int, name: str, says: str) -> None:
    answer = await alter(agent, kind, name, ("x", SET, "1"))
    assert answer.error_code == Code.INVALID_REQUEST
    assert says in answer.error_message


async def test_what_is_set_for_one_broker_counts_for_the_cluster(agent: Agent) -> None:
    """librdkafka and kafka-python refuse the empty name that stands for all brokers."""
    cluster = agent.services.replica.state
    assert (await alter(agent, BROKER, "1", ("num.partitions", SET, "7"))).error_code == 0
    assert cluster.cluster_configs["num.partitions"] == "7"
    (shown,) = [c for c in (await configs(agent, BROKER, "1")).configs if c.name == "num.partitions"]
    assert shown.value == "7"
    assert (await alter(agent, BROKER, "1", ("no.such", SET, "7"))).error_code == Code.INVALID_CONFIG
    deleted = await alter(agent, BROKER, "1", ("num.partitions", DELETE, None), ("no.such", DELETE, None))
    assert (deleted.error_code, "num.partitions" in cluster.cluster_configs) == (0, False)


async def test_replacing_one_brokers_configs_takes_nothing_from_the_cluster(agent: Agent) -> None:
    await alter(agent, BROKER, "", ("num.partitions", SET, "7"))
    replaced = ac.AlterConfigsResource(BROKER, "1", [ac.AlterableConfig("group.max.size", "9")])
    answer = await agent.call("AlterConfigs", ac.AlterConfigsRequest([replaced]), 2)
    assert answer.responses[0].error_code == 0
    own = agent.services.replica.state.cluster_configs
    assert (own["num.partitions"], own["group.max.size"]) == ("7", "9")


async def test_defaults_of_topics_that_contradict_each_other_are_refused(agent: Agent) -> None:
    """No topic could be made with them. What contradicts itself already holds up nothing else."""
    least, most = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    state = agent.services.replica.state
    assert (await alter(agent, BROKER, "", (least, SET, "9"))).error_code == 0
    for validate_only in (True, False):
        for name in ("", "1"):
            bad = (most, SET, "8"), ("num.partitions", SET, "7")
            answer = await alter(agent, BROKER, name, *bad, validate_only=validate_only)
            assert answer.error_code == Code.INVALID_REQUEST
            assert "no topic could have these defaults: conflict" in answer.error_message
    legacy = ac.AlterConfigsResource(BROKER, "", [ac.AlterableConfig(each, "7") for each in (most, least)])
    legacy.configs[1].value = "8"
    replaced = await agent.call("AlterConfigs", ac.AlterConfigsRequest([legacy]), 2)
    assert replaced.responses[0].error_code == Code.INVALID_REQUEST
    assert state.cluster_configs == {least: "9"}
    change = AlterTopicConfigs.Change(name=most, value="8")
    assert await agent.services.replica.propose(AlterClusterConfigs(changes=[change])) == Done()
    assert (await alter(agent, BROKER, "", ("num.partitions", SET, "7"))).error_code == 0
    assert (await alter(agent, BROKER, "", (most, SET, "6"))).error_code == Code.INVALID_REQUEST
    assert (await alter(agent, BROKER, "", (most, DELETE, None))).error_code == 0


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        (BROKER, "", ("floe.value.rules", SET, "reject")),
        (TOPIC, "t.quarantine", ("confluent.key.schema.validation", SET, "true")),
    ],
)
async def test_trying_a_change_judges_no_records_anew(
    agent: Agent, kind: int, name: str, change: tuple[str, int, str]
) -> None:
    """What an agent's state says of topics that are bound, or set records aside, stays what the log says."""
    await create(agent, topic("t", floe_value_rules="quarantine"), topic("other"))
    replica = agent.services.replica
    bind = BindSchema(topic="other", descriptor_set=b"d", message="m")
    assert isinstance(await replica.propose(bind), Done)
    before = canonical_digest(replica.state)
    assert (await alter(agent, kind, name, change, validate_only=True)).error_code == 0
    assert canonical_digest(replica.state) == before


def test_trying_a_level_ties_no_tables_and_begins_no_spans() -> None:
    script = Script()
    script.register(11, level=1)
    script.topic(11, "t")
    script.one(11, BindSchema(topic="t", descriptor_set=b"d", message="m"))
    script.commit(11, (0, 3))
    table = CommitTable(namespace="floe", name="t", metadata_location="m", topic="t", next_offsets=[0])
    assert isinstance(script.apply(11, PutNamespace(name="floe"), table).results[1], Done)
    script.state.incarnations[11].feature_max = 2  # it runs a version that knows the next one
    before = canonical_digest(script.state)
    update = UpdateFeatures.Update(name="floe.level", level=2, kind=UpdateFeatures.Update.UPGRADE)
    assert isinstance(rehearse(script.state, UpdateFeatures(updates=[update])), Done)
    assert canonical_digest(script.state) == before


async def test_loggers_and_subscriptions_are_described_as_they_are(agent: Agent) -> None:
    (level,) = (await configs(agent, LOGGER, "1")).configs
    assert (level.name, level.value, level.read_only) == ("root", "INFO", True)
    assert [each.name for each in (await configs(agent, METRICS, "m")).configs] == [
        "interval.ms", "match", "metrics",
    ]  # fmt: skip
    for kind in (LOGGER, METRICS, GROUP):
        assert (await configs(agent, kind, "")).error_code == Code.INVALID_REQUEST


async def test_what_has_configs_is_listed(agent: Agent) -> None:
    await create(agent, topic("t"))
    await alter(agent, GROUP, "g", (SESSION, SET, "50000"))

    async def listed(types: list[int], version: int = 1) -> Any:
        return await agent.call("ListConfigResources", lcr.ListConfigResourcesRequest(types), version)

    everything = [(row.resource_type, row.resource_name) for row in (await listed([])).config_resources]
    assert everything == [(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1"), (GROUP, "g")]
    assert [row.resource_name for row in (await listed([GROUP])).config_resources] == ["g"]
    assert (await listed([7])).error_code == Code.UNSUPPORTED_VERSION
    assert (await listed([], version=0)).config_resources == []


async def features(
    agent: Agent, *updates: tuple[str, int, int], version: int = 2, tried: bool = False
) -> Any:
    rows = [uf.FeatureUpdateKey(name, level, False, kind) for name, level, kind in updates]
    return await agent.call("UpdateFeatures", uf.UpdateFeaturesRequest(5_000, rows, tried), version)


async def finalized(agent: Agent) -> tuple[int, dict[str, int]]:
    answer = await agent.call("ApiVersions", av.ApiVersionsRequest("t", "1"), 4)
    rows = {row.name: row.max_version_level for row in answer.finalized_features}
    return answer.finalized_features_epoch, rows


async def test_every_agent_tells_the_same_features_and_epoch(start: StartAgent) -> None:
    first, second = await start("a"), await start("b")
    off = ("group.version", 0, 2)
    assert (await features(first, off, tried=True)).error_code == 0
    assert await finalized(first) == (0, {"floe.level": 2, "group.version": 1, "transaction.version": 2})
    assert (await features(first, off)).error_code == 0
    await metadata(second, "a-barrier")
    left = {"floe.level": 2, "transaction.version": 2}
    assert await finalized(first) == await finalized(second) == (1, left)
    refused = await features(first, off, ("no.such", 1, 1))
    assert refused.error_code == Code.INVALID_UPDATE_VERSION
    assert refused.error_message.startswith("The update failed for all features since")


@pytest.mark.parametrize("version", [0, 1])
async def test_older_versions_answer_feature_by_feature(agent: Agent, version: int) -> None:
    answer = await features(agent, ("group.version", 1, 1), version=version)
    assert [(row.feature, row.error_code) for row in answer.results] == [("group.version", 0)]
    negative = await features(agent, ("group.version", -1, 2), version=version)
    assert negative.error_code == Code.INVALID_UPDATE_VERSION


async def test_no_election_is_needed_for_what_is_there(agent: Agent) -> None:
    await create(agent, topic("t", 2))
    wanted = [el.TopicPartitions("t", [0, 7]), el.TopicPartitions("nope", [0])]
    answer = await agent.call("ElectLeaders", el.ElectLeadersRequest(0, wanted), 2)
    codes = [[row.error_code for row in t.partition_result] for t in answer.replica_election_results]
    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[Code.ELECTION_NOT_NEEDED, unknown], [unknown]]
    everything = await agent.call("ElectLeaders", el.ElectLeadersRequest(1, None), 2)
    assert [(t.topic, t.partition_result) for t in everything.replica_election_results] == [("t", [])]
    unknown_kind = await agent.call("ElectLeaders", el.ElectLeadersRequest(9, wanted), 2)
    assert unknown_kind.error_code == Code.INVALID_REQUEST


@pytest.mark.parametrize(
    ("partition", "replicas", "expected"),
    [
        (0, [1], 0),
        (0, None, Code.NO_REASSIGNMENT_IN_PROGRESS),
        (0, [], Code.INVALID_REPLICA_ASSIGNMENT),
        (0, [1, 1], Code.INVALID_REPLICA_ASSIGNMENT),
        (0, [7], Code.INVALID_REPLICA_ASSIGNMENT),
        (9, [1], Code.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_a_reassignment_is_checked_and_then_over(
    agent: Agent, partition: int, replicas: list[int] | None, expected: int
) -> None:
    await create(agent, topic("t"))
    wanted = apr.ReassignableTopic("t", [apr.ReassignablePartition(partition, replicas)])
    request = apr.AlterPartitionReassignmentsRequest(5_000, True, [wanted])
    answer = await agent.call("AlterPartitionReassignments", request, 1)
    assert [row.error_code for row in answer.responses[0].partitions] == [expected]
    none = lpr.ListPartitionReassignmentsRequest(5_000, None)
    assert (await agent.call("ListPartitionReassignments", none, 0)).topics == []


async def test_an_assignment_names_brokers_that_exist_equally_many_everywhere(agent: Agent) -> None:
    async def made(*partitions: list[int]) -> int:
        rows = [ct.CreatableReplicaAssignment(index, brokers) for index, brokers in enumerate(partitions)]
        (answer,) = await create(agent, ct.CreatableTopic("t", -1, -1, rows), validate_only=True)
        code: int = answer.error_code
        return code

    assert await made([1], [1]) == 0
    for bad in ([[1], [2]], [[1], []], [[1, 1]]):
        assert await made(*bad) == Code.INVALID_REPLICA_ASSIGNMENT


async def test_the_quorum_is_the_log_and_its_agents(start: StartAgent) -> None:
    first = await start("a")
    await start("b", port=2)
    await metadata(first, "a-barrier")
    wanted = dq.TopicData("__cluster_metadata", [dq.PartitionData(0), dq.PartitionData(1)])
    answer = await first.call("DescribeQuorum", dq.DescribeQuorumRequest([wanted]), 2)
    log, other = answer.topics[0].partitions
    assert log.high_watermark == first.services.replica.state.revision
    assert [each.replica_id for each in log.current_voters] == [log.leader_id] == [1]
    assert [each.replica_id for each in log.observers] == [2]
    assert sorted(node.node_id for node in answer.nodes) == [1, 2]
    assert other.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


async def test_there_are_no_quotas(agent: Agent) -> None:
    def asked(*kinds: str) -> dcq.DescribeClientQuotasRequest:
        return dcq.DescribeClientQuotasRequest([dcq.ComponentData(kind, 2, None) for kind in kinds], False)

    assert (await agent.call("DescribeClientQuotas", asked("user"), 1)).entries == []
    unknown = await agent.call("DescribeClientQuotas", asked("x"), 1)
    assert (unknown.error_code, unknown.entries) == (Code.UNSUPPORTED_VERSION, None)
    twice = await agent.call("DescribeClientQuotas", asked("user", "user"), 1)
    assert twice.error_code == Code.INVALID_REQUEST


@pytest.mark.parametrize(("version", "code"), [(2, Code.INVALID_REQUEST), (6, Code.TOPIC_DELETION_DISABLED)])
async def test_deletion_can_be_disabled_for_the_cluster(agent: Agent, version: int, code: Code) -> None:
    await create(agent, topic("t"))
    assert (await alter(agent, BROKER, "", ("delete.topic.enable", SET, "false"))).error_code == 0
    request = dt.DeleteTopicsRequest([dt.DeleteTopicState("t")], ["t"], 5_000)
    answer = await agent.call("DeleteTopics", request, version)
    assert [row.error_code for row in answer.responses] == [code]
    assert (await metadata(agent, "t")).topics[0].error_code == 0


async def test_pages_are_as_long_as_the_cluster_says(agent: Agent) -> None:
    await create(agent, topic("t", 5))
    await alter(agent, BROKER, "", ("max.request.partition.size.limit", SET, "2"))
    request = dtp.DescribeTopicPartitionsRequest([dtp.TopicRequest("t")], 2000, None)
    answer = await agent.call("DescribeTopicPartitions", request, 0)
    assert len(answer.topics[0].partitions) == 2
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("t", 2)


async def test_thousands_of_topics_are_one_entry_of_the_log(agent: Agent) -> None:
    """Rule 12: all together, however many."""
    before = agent.services.replica.state.revision
    answers = await create(agent, *[topic(f"t{number}", 10) for number in range(1000)])
    assert {answer.error_code for answer in answers} == {0}
    state = agent.services.replica.state
    assert state.partition_count == 10_000
    assert state.revision - before <= 2, "one entry, and at most a heartbeat between"
