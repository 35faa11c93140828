"""Administrative requests, shortened for tests."""

from __future__ import annotations

from typing import Any

from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import describe_configs as dc
from agent.net.wire.generated import incremental_alter_configs as ia
from agent.net.wire.generated import metadata as md
from tests.unit.agent.rig import Agent

TOPIC, BROKER = 2, 4


async def create(
    agent: Agent, *topics: ct.CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[Any]:
    request = ct.CreateTopicsRequest(topics=list(topics), timeout_ms=5000, validate_only=validate_only)
    answer = await agent.call("CreateTopics", request, version)
    assert [each.name for each in answer.topics] == [each.name for each in topics]
    return list(answer.topics)


def topic(name: str, partitions: int = 1, replicas: int = -1, **configs: str | None) -> ct.CreatableTopic:
    entries = [ct.CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    return ct.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, configs=entries
    )


async def metadata(agent: Agent, *names: str, version: int = 13, create: bool = False, **more: Any) -> Any:
    topics = [md.MetadataRequestTopic(name=name) for name in names] if names else None
    request = md.MetadataRequest(topics=topics, allow_auto_topic_creation=create, **more)
    return await agent.call("Metadata", request, version)


async def configs(agent: Agent, kind: int, name: str, version: int = 4, **more: Any) -> Any:
    resource = dc.DescribeConfigsResource(kind, name, more.pop("keys", None))
    request = dc.DescribeConfigsRequest(resources=[resource], **more)
    return (await agent.call("DescribeConfigs", request, version)).results[0]


async def alter(
    agent: Agent, kind: int, name: str, *changes: tuple[str, int, str | None], **more: Any
) -> Any:
    entries = [ia.AlterableConfig(config, operation, value) for config, operation, value in changes]
    resource = ia.AlterConfigsResource(kind, name, entries)
    request = ia.IncrementalAlterConfigsRequest(resources=[resource], **more)
    return (await agent.call("IncrementalAlterConfigs", request, 1)).responses[0]
