"""AlterReplicaLogDirs: replicas asked to move between disks, of which there is one.

Versions 1 to 2.
Behaviour: a partition asked to be where it is (the directory that DescribeLogDirs names) is there; any other
directory is LOG_DIR_NOT_FOUND.
Deviations: none known.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.handlers.k35_describe_log_dirs import LOG_DIR
from agent.net.wire.generated.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from coordination.kafka_codes import Code

KEY = 34
VERSIONS = (1, 2)


async def handle(
    ctx: Context, request: AlterReplicaLogDirsRequest, version: int
) -> AlterReplicaLogDirsResponse:
    """One answer per partition, by topic; one that is named for two directories gets the last one's."""
    found: dict[str, dict[int, Code]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for partition in topic.partitions:
                code = _move(ctx, directory.path, topic.name, partition)
                found.setdefault(topic.name, {})[partition] = code
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index, code in codes.items()
                ],
            )
            for name, codes in found.items()
        ]
    )


def _move(ctx: Context, path: str, name: str, partition: int) -> Code:
    """The directory is looked at first, as in Kafka."""
    if path != LOG_DIR:
        return Code.LOG_DIR_NOT_FOUND
    topic = ctx.state.topics.get(name)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    return Code.NONE
