"""Questions to the administrative requests: versions, topics, partitions, configs."""

from __future__ import annotations

from collections.abc import Sequence

from agent.net.wire.api import APIS
from agent.net.wire.generated import alter_configs as ac
from agent.net.wire.generated import api_versions as av
from agent.net.wire.generated import create_partitions as cp
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_topics as dt
from agent.net.wire.generated import describe_configs as dc
from agent.net.wire.generated import describe_topic_partitions as dtp
from agent.net.wire.generated import incremental_alter_configs as iac
from agent.net.wire.generated import metadata as m
from tests.compat.against.side import Answers, Question, Side, code, told

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
NOBODY = bytes(15) + b"\x07"  # a topic id that no topic has
CONFIG_TYPES = {1: "boolean", 2: "string", 3: "int", 5: "long", 6: "double", 7: "list"}


async def api_versions(side: Side) -> Answers:
    """Every API with its range."""
    answer = await side.ask("ApiVersions", av.ApiVersionsRequest("floe-tests", "1"), 4)
    keys = {row.api_key: f"{row.min_version} to {row.max_version}" for row in answer.api_keys}
    found = {APIS[key].name if key in APIS else f"key {key}": span for key, span in keys.items()}
    features = {f"feature {row.name}": str(row.max_version_level) for row in answer.finalized_features}
    return {"error": code(answer.error_code), **found, **features}


async def metadata(side: Side) -> Answers:
    """Topics that are there, are not, or cannot be."""
    known = await side.topic("known", 3)
    cases = {
        "known": m.MetadataRequestTopic(name=known),
        "unknown": m.MetadataRequestTopic(name="not-there"),
        "invalid name": m.MetadataRequestTopic(name="a/b"),
        "empty name": m.MetadataRequestTopic(name=""),
        "unknown id": m.MetadataRequestTopic(topic_id=NOBODY, name=None),
    }
    found: Answers = {}
    for name, topic in cases.items():
        answer = await side.ask("Metadata", m.MetadataRequest([topic], False), 12)
        if answer is None:
            found[name] = "no answer"
            continue
        (row,) = answer.topics
        epochs = sorted({part.leader_epoch for part in row.partitions})
        found[name] = f"{code(row.error_code)}, {len(row.partitions)} partitions, epochs {epochs}"
        found[f"{name}: id given"] = str(row.topic_id != bytes(16))
        found[f"{name}: name"] = str(row.name).removeprefix(side.prefix)
        listed = {broker.node_id for broker in answer.brokers}
        found[f"{name}: leaders and controller listed"] = str(
            {part.leader_id for part in row.partitions} | {answer.controller_id} <= listed
        )
    both = m.MetadataRequestTopic(topic_id=NOBODY, name=known)
    answer = await side.ask("Metadata", m.MetadataRequest([both], False), 12)
    found["id and name"] = "no answer" if answer is None else code(answer.topics[0].error_code)
    return found


def _topic(
    name: str, partitions: int = 1, factor: int = 1, assigned: Sequence[int] = (), **configs: str | None
) -> ct.CreatableTopic:
    entries = [ct.CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    rows = [ct.CreatableReplicaAssignment(index, [1]) for index in assigned]
    return ct.CreatableTopic(name, partitions, factor, rows, entries)


def _creations(own: str, known: str) -> dict[str, list[ct.CreatableTopic]]:
    return {
        "exists": [_topic(known)],
        "empty name": [_topic("")],
        "dot": [_topic(".")],
        "two dots": [_topic("..")],
        "slash": [_topic("a/b")],
        "blank": [_topic("a b")],
        "not ascii": [_topic("ä")],
        "250 characters": [_topic("x" * 250)],
        "differs by dot": [_topic(known.replace("-", "_")), _topic(known.replace("-", "."))],
        "0 partitions": [_topic(f"{own}a", 0)],
        "-2 partitions": [_topic(f"{own}b", -2)],
        "default partitions": [_topic(f"{own}c", -1)],
        "factor 0": [_topic(f"{own}d", 1, 0)],
        "factor -2": [_topic(f"{own}e", 1, -2)],
        "default factor": [_topic(f"{own}f", 1, -1)],
        "factor 3": [_topic(f"{own}g", 1, 3)],
        "unknown config": [_topic(f"{own}h", no_such="1")],
        "config of another type": [_topic(f"{own}i", retention_ms="soon")],
        "config out of range": [_topic(f"{own}j", retention_ms="-7")],
        "config not of the list": [_topic(f"{own}k", cleanup_policy="burn")],
        "null config": [_topic(f"{own}l", retention_ms=None)],
        "named twice": [_topic(f"{own}m"), _topic(f"{own}m")],
        "assignment": [_topic(f"{own}n", -1, -1, (0, 1))],
        "assignment and count": [_topic(f"{own}o", 2, -1, (0, 1))],
        "assignment with a gap": [_topic(f"{own}p", -1, -1, (0, 2))],
        "good configs": [_topic(f"{own}q", 2, 1, retention_ms="5", cleanup_policy="compact,delete")],
    }


async def create_topics(side: Side) -> Answers:
    """Each in a request of its own, tried and for real."""
    known = await side.topic("known")
    found: Answers = {}
    for name, topics in _creations(side.prefix, known).items():
        for how, validate_only in (("tried", True), ("made", False)):
            answer = await side.ask("CreateTopics", ct.CreateTopicsRequest(topics, 10_000, validate_only), 7)
            if answer is None:
                found[f"{name} ({how})"] = "no answer"
                continue
            found[f"{name} ({how})"] = "; ".join(
                f"{told(row.error_code, row.error_message)} {row.num_partitions} {row.replication_factor}"
                for row in answer.topics
            )
    return found


async def created_configs(side: Side) -> Answers:
    """The configs that the answer of a creation shows."""
    topics = [_topic(f"{side.prefix}x", retention_ms="5")]
    answer = await side.ask("CreateTopics", ct.CreateTopicsRequest(topics, 10_000), 7)
    return {row.name: f"{row.value} from {row.config_source}" for row in answer.topics[0].configs}


async def create_partitions(side: Side) -> Answers:
    """Growing by nothing, to less, and what is not there."""
    known = await side.topic("known", 3)
    cases = {
        "fewer": [cp.CreatePartitionsTopic(known, 2, None)],
        "as many": [cp.CreatePartitionsTopic(known, 3, None)],
        "0": [cp.CreatePartitionsTopic(known, 0, None)],
        "-1": [cp.CreatePartitionsTopic(known, -1, None)],
        "unknown": [cp.CreatePartitionsTopic("not-there", 3, None)],
        "named twice": [cp.CreatePartitionsTopic(known, 4, None)] * 2,
        "short assignment": [cp.CreatePartitionsTopic(known, 5, [cp.CreatePartitionsAssignment([1])])],
        "more": [cp.CreatePartitionsTopic(known, 4, None)],
    }
    found: Answers = {}
    for name, topics in cases.items():
        for how, validate_only in (("tried", True), ("made", False)):
            request = cp.CreatePartitionsRequest(topics, 10_000, validate_only)
            answer = await side.ask("CreatePartitions", request, 3)
            codes = (
                [told(row.error_code, row.error_message) for row in answer.results]
                if answer
                else ["no answer"]
            )
            found[f"{name} ({how})"] = "; ".join(codes)
    return found


async def topic_configs(side: Side) -> Answers:
    """Every config of a topic: value, type, source, synonyms."""
    topic = await side.topic("known", retention_ms="5", cleanup_policy="compact")
    request = dc.DescribeConfigsRequest([dc.DescribeConfigsResource(TOPIC, topic, None)], True, False)
    (result,) = (await side.ask("DescribeConfigs", request, 4)).results
    return {
        row.name: f"{row.value}, {CONFIG_TYPES.get(row.config_type)}, source {row.config_source}, "
        + ("read-only, " if row.read_only else "")
        + " < ".join(f"{each.name}={each.value} ({each.source})" for each in row.synonyms)
        for row in result.configs
    }


async def describe_configs(side: Side) -> Answers:
    """Which configs, of what."""
    topic = await side.topic("known")
    cases = {
        "some": dc.DescribeConfigsResource(TOPIC, topic, ["retention.ms", "no.such"]),
        "no keys": dc.DescribeConfigsResource(TOPIC, topic, []),
        "unknown topic": dc.DescribeConfigsResource(TOPIC, "not-there", None),
        "invalid topic": dc.DescribeConfigsResource(TOPIC, "a/b", None),
        "empty topic": dc.DescribeConfigsResource(TOPIC, "", None),
        "unknown broker": dc.DescribeConfigsResource(BROKER, "99", ["message.max.bytes"]),
        "broker by word": dc.DescribeConfigsResource(BROKER, "one", ["message.max.bytes"]),
        "all brokers": dc.DescribeConfigsResource(BROKER, "", ["message.max.bytes"]),
        "unknown type": dc.DescribeConfigsResource(3, "x", None),
    }
    found: Answers = {}
    for name, resource in cases.items():
        answer = await side.ask("DescribeConfigs", dc.DescribeConfigsRequest([resource]), 4)
        if answer is None:
            found[name] = "no answer"
            continue
        (row,) = answer.results
        count = "all" if len(row.configs) > 2 else str(len(row.configs))
        found[name] = f"{told(row.error_code, row.error_message)}, {count}"
    return found


def _changes(topic: str) -> dict[str, list[iac.AlterConfigsResource]]:
    def one(
        *changes: tuple[str, int, str | None], kind: int = TOPIC, name: str = topic
    ) -> list[iac.AlterConfigsResource]:
        rows = [iac.AlterableConfig(*change) for change in changes]
        return [iac.AlterConfigsResource(kind, name, rows)]

    return {
        "set": one(("retention.ms", SET, "7")),
        "unknown config": one(("no.such", SET, "7")),
        "delete an unknown config": one(("no.such", DELETE, None)),
        "value of another type": one(("retention.ms", SET, "soon")),
        "value out of range": one(("retention.ms", SET, "-7")),
        "null value": one(("retention.ms", SET, None)),
        "append to no list": one(("retention.ms", APPEND, "7")),
        "subtract from no list": one(("retention.ms", SUBTRACT, "7")),
        "append": one(("cleanup.policy", APPEND, "compact")),
        "append what is there": one(("cleanup.policy", APPEND, "compact")),
        "append what is not allowed": one(("cleanup.policy", APPEND, "burn")),
        "subtract what is not there": one(("cleanup.policy", SUBTRACT, "burn")),
        "subtract": one(("cleanup.policy", SUBTRACT, "delete")),
        "subtract the last": one(("cleanup.policy", SUBTRACT, "compact")),
        "delete": one(("retention.ms", DELETE, None)),
        "delete again": one(("retention.ms", DELETE, None)),
        "unknown operation": one(("retention.ms", 9, "7")),
        "a config twice": one(("retention.ms", SET, "7"), ("retention.ms", SET, "8")),
        "one good, one bad": one(("retention.ms", SET, "9"), ("no.such", SET, "8")),
        "a resource twice": one(("retention.ms", SET, "7")) * 2,
        "nothing": one(),
        "unknown topic": one(("retention.ms", SET, "7"), name="not-there"),
        "unknown type": one(("retention.ms", SET, "7"), kind=3),
        "unknown broker": one(("log.retention.ms", SET, "7"), kind=BROKER, name="99"),
    }


async def incremental_alter_configs(side: Side) -> Answers:
    """Each change by itself, in this order, tried and made; then what is left."""
    topic = await side.topic("known")
    found: Answers = {}
    for name, resources in _changes(topic).items():
        for how, validate_only in (("tried", True), ("made", False)):
            request = iac.IncrementalAlterConfigsRequest(resources, validate_only)
            answer = await side.ask("IncrementalAlterConfigs", request, 1)
            codes = (
                [told(row.error_code, row.error_message) for row in answer.responses]
                if answer
                else ["no answer"]
            )
            found[f"{name} ({how})"] = "; ".join(codes)
    return found | await _own_configs(side, topic)


async def alter_configs(side: Side) -> Answers:
    """The older request, which replaces everything."""
    topic = await side.topic("known", retention_ms="5", segment_ms="7")
    cases = {
        "unknown config": [ac.AlterableConfig("no.such", "1")],
        "bad value": [ac.AlterableConfig("retention.ms", "soon")],
        "null value": [ac.AlterableConfig("retention.ms", None)],
        "a config twice": [ac.AlterableConfig("retention.ms", "1")] * 2,
        "replaced": [ac.AlterableConfig("flush.ms", "9")],
    }
    found: Answers = {}
    for name, configs in cases.items():
        request = ac.AlterConfigsRequest([ac.AlterConfigsResource(TOPIC, topic, configs)], False)
        answer = await side.ask("AlterConfigs", request, 2)
        row = answer.responses[0] if answer else None
        found[name] = told(row.error_code, row.error_message) if row else "no answer"
    return found | await _own_configs(side, topic)


async def _own_configs(side: Side, topic: str) -> Answers:
    request = dc.DescribeConfigsRequest([dc.DescribeConfigsResource(TOPIC, topic, None)])
    (result,) = (await side.ask("DescribeConfigs", request, 4)).results
    return {f"left: {row.name}": str(row.value) for row in result.configs if row.config_source == 1}


async def delete_topics(side: Side) -> Answers:
    """By name, by id, twice, and what is not there."""
    known = await side.topic("known")
    cases = {
        "unknown name": [dt.DeleteTopicState(name="not-there")],
        "invalid name": [dt.DeleteTopicState(name="a/b")],
        "unknown id": [dt.DeleteTopicState(topic_id=NOBODY)],
        "neither": [dt.DeleteTopicState()],
        "both": [dt.DeleteTopicState(known, NOBODY)],
        "named twice": [dt.DeleteTopicState(known)] * 2,
        "known": [dt.DeleteTopicState(known)],
        "known again": [dt.DeleteTopicState(known)],
    }
    found: Answers = {}
    for name, topics in cases.items():
        answer = await side.ask("DeleteTopics", dt.DeleteTopicsRequest(topics, timeout_ms=10_000), 6)
        rows = (
            [told(row.error_code, row.error_message) for row in answer.responses] if answer else ["no answer"]
        )
        found[name] = "; ".join(rows)
    return found


async def describe_topic_partitions(side: Side) -> Answers:
    """A page of partitions, and names that are not there."""
    known = await side.topic("known", 3)
    wanted = [dtp.TopicRequest(known), dtp.TopicRequest("not-there"), dtp.TopicRequest("a/b")]
    answer = await side.ask(
        "DescribeTopicPartitions", dtp.DescribeTopicPartitionsRequest(wanted[:2], 2, None), 0
    )
    found = {
        f"page: {str(row.name).removeprefix(side.prefix)}": f"{code(row.error_code)} {len(row.partitions)}"
        for row in answer.topics
    }
    cursor = answer.next_cursor
    found["cursor"] = f"{cursor.topic_name.removeprefix(side.prefix)} {cursor.partition_index}"
    answer = await side.ask("DescribeTopicPartitions", dtp.DescribeTopicPartitionsRequest(wanted[1:]), 0)
    rows = [f"{row.name} {code(row.error_code)}" for row in answer.topics] if answer else ["no answer"]
    return {**found, "unknown": "; ".join(rows)}


QUESTIONS: dict[str, Question] = {
    "ApiVersions": api_versions,
    "Metadata": metadata,
    "CreateTopics": create_topics,
    "CreateTopics.configs": created_configs,
    "CreatePartitions": create_partitions,
    "DescribeConfigs.topic": topic_configs,
    "DescribeConfigs": describe_configs,
    "IncrementalAlterConfigs": incremental_alter_configs,
    "AlterConfigs": alter_configs,
    "DeleteTopics": delete_topics,
    "DescribeTopicPartitions": describe_topic_partitions,
}
