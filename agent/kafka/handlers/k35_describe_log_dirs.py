"""DescribeLogDirs: how many bytes partitions hold.

Versions 1 to 5.
Behaviour: one "directory", the object store. A broker reports the partitions that it is named the leader
of, so that a tool which adds up the brokers' answers counts each partition once.
Deviations: total and usable bytes of the store are unknown (-1).
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.net.wire.api import Encoded
from agent.net.wire.generated import describe_log_dirs
from agent.net.wire.generated.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from agent.net.wire.steps import Pace, encoded
from coordination.state.types import Partition

KEY = 35
VERSIONS = (1, 5)
LOG_DIR = "object-store"


async def handle(ctx: Context, request: DescribeLogDirsRequest, version: int) -> Encoded:
    """The asked partitions, or all."""
    asked: dict[str, set[int] | None]
    if request.topics is None:
        asked = dict.fromkeys(sorted(ctx.state.topics))
    else:
        asked = {each.topic: set(each.partitions) for each in request.topics}
    me, leader = ctx.services.replica.incarnation, ctx.services.hints.view(ctx.zone).leader
    mine = next((broker.node_id for broker in ctx.brokers() if broker.incarnation == me), None)
    pace = Pace()
    result = DescribeLogDirsResult(log_dir=LOG_DIR)
    for name, indexes in asked.items():
        topic = ctx.state.topics.get(name)
        chosen = []
        for partition in list(topic.partitions) if topic else ():
            if (indexes is None or partition.index in indexes) and leader(partition.handle) == mine:
                chosen.append(_partition(partition))
            await pace.row()
        if chosen:
            result.topics.append(DescribeLogDirsTopic(name=name, partitions=chosen))
    response = DescribeLogDirsResponse(results=[result])
    return await encoded(describe_log_dirs, response, version, "results", "topics", "partitions")


def _partition(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.index, partition_size=partition.size_bytes, offset_lag=0
    )
