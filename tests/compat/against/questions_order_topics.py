"""What a change of topics is to the request right behind it; Kafka's brokers hear of it a moment later."""

from __future__ import annotations

from agent.net.wire.generated import alter_configs as ac
from agent.net.wire.generated import create_partitions as cp
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_topics as dt
from agent.net.wire.generated import describe_configs as dc
from agent.net.wire.generated import incremental_alter_configs as ia
from agent.net.wire.generated import metadata as m
from tests.compat.against.questions_order import (
    Asker,
    Call,
    Pair,
    Tell,
    asked,
    fetched,
    offset,
    produced,
)
from tests.compat.against.side import code

RESOURCE_TOPIC = 2


def config(topic: str, name: str) -> tuple[Call, Tell]:
    """DescribeConfigs of one config."""
    request = dc.DescribeConfigsRequest([dc.DescribeConfigsResource(RESOURCE_TOPIC, topic, [name])])
    return ("DescribeConfigs", request, 4), lambda got: str(got.results[0].configs[0].value)


def described(topic: str) -> tuple[Call, Tell]:
    """Metadata of one topic: its error and its partitions."""
    request = m.MetadataRequest([m.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return (
        "Metadata",
        request,
        12,
    ), lambda got: f"{code(got.topics[0].error_code)} {len(got.topics[0].partitions)}"


async def topic_created(a: Asker) -> Pair:
    """A new topic can be written to, and is told of."""
    write = ("CreateTopics", ct.CreateTopicsRequest([ct.CreatableTopic(a.name, 1, 1)], 10_000), 7)
    reads = {"Metadata": described(a.name), "ListOffsets": offset(a.name), "Fetch": fetched(a.name)}
    sent = produced(a.name), lambda got: code(got.responses[0].partition_responses[0].error_code)
    return Pair(write, {**reads, "Produce": sent})


async def topic_deleted(a: Asker) -> Pair:
    """A topic that is gone is gone."""
    await a.side.topic(a.name.removeprefix(a.side.prefix))
    write = ("DeleteTopics", dt.DeleteTopicsRequest(topic_names=[a.name], timeout_ms=10_000), 4)
    return Pair(write, {"Metadata": described(a.name), "ListOffsets": offset(a.name)})


async def partitions_created(a: Asker) -> Pair:
    """A topic has its new partitions."""
    await a.side.topic(a.name.removeprefix(a.side.prefix))
    request = cp.CreatePartitionsRequest([cp.CreatePartitionsTopic(a.name, 3, None)], 10_000)
    return Pair(("CreatePartitions", request, 3), {"Metadata": described(a.name)})


async def configs_altered(a: Asker) -> Pair:
    """A config has its new value."""
    await a.side.topic(a.name.removeprefix(a.side.prefix))
    entry = ac.AlterableConfig("flush.ms", "77")
    request = ac.AlterConfigsRequest([ac.AlterConfigsResource(RESOURCE_TOPIC, a.name, [entry])])
    return Pair(("AlterConfigs", request, 2), {"DescribeConfigs": config(a.name, "flush.ms")})


async def configs_changed(a: Asker) -> Pair:
    """The same by the other API."""
    await a.side.topic(a.name.removeprefix(a.side.prefix))
    entry = ia.AlterableConfig("flush.ms", 0, "77")
    request = ia.IncrementalAlterConfigsRequest([ia.AlterConfigsResource(RESOURCE_TOPIC, a.name, [entry])])
    return Pair(("IncrementalAlterConfigs", request, 1), {"DescribeConfigs": config(a.name, "flush.ms")})


CLUSTER = asked(
    {
        "CreateTopics": topic_created,
        "DeleteTopics": topic_deleted,
        "CreatePartitions": partitions_created,
        "AlterConfigs": configs_altered,
        "IncrementalAlterConfigs": configs_changed,
    }
)
"""What Kafka's brokers hear from their controller a moment after its answer: they tell now this, now that."""

IN_ORDER = {
    "CreateTopics: Metadata": "NONE 1",
    "CreateTopics: ListOffsets": "NONE 0",
    "CreateTopics: Fetch": "NONE nothing",
    "CreateTopics: Produce": "NONE",
    "DeleteTopics: Metadata": "UNKNOWN_TOPIC_OR_PARTITION 0",
    "DeleteTopics: ListOffsets": "UNKNOWN_TOPIC_OR_PARTITION -1",
    "CreatePartitions: Metadata": "NONE 3",
    "AlterConfigs: DescribeConfigs": "77",
    "IncrementalAlterConfigs: DescribeConfigs": "77",
}
"""What Floe answers to it: the agent that made the change knows of it."""
