"""DescribeLogDirs: how many bytes partitions hold.

Versions 1 to 5.
Behaviour: one "directory", the object store. A broker reports the partitions that it is named the leader
of, so that a tool which adds up the brokers' answers counts each partition once.
Deviations: total and usable bytes of the store are unknown (-1).
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.net.wire.generated.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from coordination.state.types import Partition

KEY = 35
VERSIONS = (1, 5)
LOG_DIR = "object-store"


async def handle(ctx: Context, request: DescribeLogDirsRequest, version: int) -> DescribeLogDirsResponse:
    """The asked partitions, or all."""
    state = ctx.state
    asked: dict[str, set[int] | None]
    if request.topics is None:
        asked = dict.fromkeys(sorted(state.topics))
    else:
        asked = {each.topic: set(each.partitions) for each in request.topics}
    mine = next((b.node_id for b in ctx.brokers() if b.incarnation == ctx.services.replica.incarnation), None)
    topics: list[DescribeLogDirsTopic] = []
    for name, indexes in asked.items():
        topic = state.topics.get(name)
        chosen = [
            _partition(partition)
            for partition in (topic.partitions if topic else ())
            if (indexes is None or partition.index in indexes) and ctx.leader(partition.handle) == mine
        ]
        if chosen:
            topics.append(DescribeLogDirsTopic(name=name, partitions=chosen))
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir=LOG_DIR, topics=topics)])


def _partition(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.index, partition_size=partition.size_bytes, offset_lag=0
    )
