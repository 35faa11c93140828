"""The Kafka requests that commands make, as functions over a Session. Refusals become failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.cli.failures import Failure, refused
from agent.cli.session import Session, check_code, refusal
from coordination.kafka_codes import Code

# A codec is imported by the function that uses it: each takes some ms, and a command needs few.
if TYPE_CHECKING:
    from agent.net.wire.generated.describe_configs import DescribeConfigsResourceResult
    from agent.net.wire.generated.metadata import MetadataResponseTopic

TOPIC_RESOURCE = 2
SET, DELETE = 0, 1
EARLIEST, LATEST = -2, -1
READ_COMMITTED = 1
TIMEOUT_MS = 20_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """A partition's readable offsets: from `start` to below `end`."""

    partition: int
    leader: int
    start: int
    end: int


async def create(session: Session, name: str, partitions: int, configs: Mapping[str, str]) -> int:
    """Create a topic; returns its number of partitions. -1 partitions: the cluster's default."""
    from agent.net.wire.generated.create_topics import (
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
    )

    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        configs=[CreatableTopicConfig(key, value) for key, value in configs.items()],
    )
    answer = await session.call("CreateTopics", CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
    result = answer.topics[0]
    check_code(result.error_code, result.error_message, f"topic {name!r} is not created")
    return int(result.num_partitions)


async def delete(session: Session, names: Sequence[str]) -> tuple[list[str], list[Failure]]:
    """Delete topics, all that can be: which are deleted, and why the others are not."""
    from agent.net.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState

    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names], topic_names=list(names), timeout_ms=TIMEOUT_MS
    )
    answer = await session.call("DeleteTopics", request)
    deleted, problems = [], list[Failure]()
    for result in answer.responses:
        what = f"topic {result.name!r} is not deleted"
        if problem := refusal(result.error_code, result.error_message, what):
            problems.append(problem)
        else:
            deleted.append(str(result.name))
    return deleted, problems


async def grow(session: Session, name: str, total: int) -> None:
    """Give a topic more partitions, `total` altogether."""
    from agent.net.wire.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=total, assignments=None)], timeout_ms=TIMEOUT_MS
    )
    answer = await session.call("CreatePartitions", request)
    result = answer.results[0]
    check_code(result.error_code, result.error_message, f"topic {name!r} keeps its partitions")


async def topics(
    session: Session, names: Sequence[str] | None = None, *, create: bool = False
) -> list[MetadataResponseTopic]:
    """Topics by name; all when `names` is None. With `create`, the agent makes them if it is set to."""
    from agent.net.wire.generated.metadata import MetadataRequest, MetadataRequestTopic

    wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
    answer = await session.call("Metadata", request)
    found: list[MetadataResponseTopic] = sorted(answer.topics, key=lambda topic: topic.name or "")
    return found


async def topic(session: Session, name: str, *, create: bool = False) -> MetadataResponseTopic:
    """One topic. A Failure tells when there is none; with `create` it is made where that is allowed."""
    found = (await topics(session, [name], create=create))[0]
    if found.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
        raise refused(f"topic {name!r} does not exist; `floe topic list` shows what does")
    check_code(found.error_code, None, f"topic {name!r}")
    return found


async def bounds(session: Session, found: MetadataResponseTopic) -> list[Bounds]:
    """The readable offsets of every partition of a topic, by partition."""
    name = found.name or ""
    numbers = sorted(partition.partition_index for partition in found.partitions)
    leaders = {partition.partition_index: partition.leader_id for partition in found.partitions}
    starts = await _offsets(session, name, numbers, EARLIEST)
    ends = await _offsets(session, name, numbers, LATEST)
    return [Bounds(number, leaders[number], starts[number], ends[number]) for number in numbers]


async def _offsets(session: Session, name: str, numbers: Sequence[int], which: int) -> dict[int, int]:
    from agent.net.wire.generated.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsTopic,
    )

    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=READ_COMMITTED,
        topics=[ListOffsetsTopic(name, [ListOffsetsPartition(number, -1, which) for number in numbers])],
    )
    answer = await session.call("ListOffsets", request)
    found = {}
    for row in answer.topics[0].partitions:
        check_code(row.error_code, None, f"offsets of {name}-{row.partition_index}")
        found[row.partition_index] = row.offset
    return found


async def configs(session: Session, name: str) -> list[DescribeConfigsResourceResult]:
    """All configs of a topic with their source and documentation."""
    from agent.net.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(TOPIC_RESOURCE, name, None)], include_documentation=True
    )
    answer = await session.call("DescribeConfigs", request)
    result = answer.results[0]
    check_code(result.error_code, result.error_message, f"configs of topic {name!r}")
    found: list[DescribeConfigsResourceResult] = sorted(result.configs, key=lambda config: config.name)
    return found


async def alter(
    session: Session,
    name: str,
    changes: Mapping[str, str],
    unset: Sequence[str],
    *,
    validate_only: bool = False,
) -> None:
    """Set and unset configs of a topic, all or none; or only see whether that can be."""
    from agent.net.wire.generated.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    rows = [AlterableConfig(key, SET, value) for key, value in changes.items()]
    rows += [AlterableConfig(key, DELETE, None) for key in unset]
    resources = [AlterConfigsResource(TOPIC_RESOURCE, name, rows)]
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    answer = await session.call("IncrementalAlterConfigs", request)
    result = answer.responses[0]
    check_code(result.error_code, result.error_message, f"configs of topic {name!r} are not changed")


async def delete_records(
    session: Session, name: str, below: Mapping[int, int]
) -> tuple[list[int], list[Failure]]:
    """Delete the records of a topic's partitions that are below these offsets, where that can be: of which
    partitions, and why not of the others."""
    from agent.net.wire.generated.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    partitions = [DeleteRecordsPartition(number, offset) for number, offset in below.items()]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name, partitions)], timeout_ms=TIMEOUT_MS)
    answer = await session.call("DeleteRecords", request)
    done, problems = [], list[Failure]()
    for row in answer.topics[0].partitions:
        what = f"records of {name}-{row.partition_index} are not deleted"
        if problem := refusal(row.error_code, None, what):
            problems.append(problem)
        else:
            done.append(row.partition_index)
    return done, problems
