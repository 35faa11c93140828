"""ElectLeaders: elect leaders anew, which is never needed here.

Versions 0 to 2.
Behaviour: leadership is a hint over the live agents and no partition is ever without a leader while one
lives, so every partition that exists is ELECTION_NOT_NEEDED, for preferred and unclean elections alike. All
partitions: each topic with an empty list, as Kafka when none needed it.
Deviations: none known.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.handlers.lookup import find_partition
from agent.net.wire.api import Encoded
from agent.net.wire.generated import elect_leaders
from agent.net.wire.generated.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from agent.net.wire.steps import Pace, encoded
from coordination.config_types import shown
from coordination.kafka_codes import Code

KEY = 43
VERSIONS = (0, 2)
TYPES_SINCE = 1
PREFERRED, UNCLEAN = 0, 1


async def handle(ctx: Context, request: ElectLeadersRequest, version: int) -> ElectLeadersResponse | Encoded:
    """One answer per partition, in the request's order."""
    await ctx.barrier()
    unknown_type = version >= TYPES_SINCE and request.election_type not in (PREFERRED, UNCLEAN)
    response = ElectLeadersResponse(error_code=Code.INVALID_REQUEST if unknown_type else Code.NONE)
    if request.topic_partitions is None:
        response.replica_election_results = [ReplicaElectionResult(name) for name in sorted(ctx.state.topics)]
        return response
    pace = Pace()
    for topic in request.topic_partitions:
        rows = ReplicaElectionResult(topic.topic)
        response.replica_election_results.append(rows)
        for index in topic.partitions:
            rows.partition_result.append(_result(ctx, request, topic, index, unknown_type))
            await pace.row()
    return await encoded(elect_leaders, response, version, "replica_election_results", "partition_result")


def _result(
    ctx: Context, request: ElectLeadersRequest, topic: TopicPartitions, index: int, unknown_type: bool
) -> PartitionResult:
    if unknown_type:
        return PartitionResult(index, Code.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    known = ctx.state.topics.get(topic.topic)
    if known is None:
        return PartitionResult(
            index, Code.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {shown(topic.topic)}"
        )
    if find_partition(known, index) is None:
        what = f"No such partition as {topic.topic}-{index}"
        return PartitionResult(index, Code.UNKNOWN_TOPIC_OR_PARTITION, what)
    return PartitionResult(index, Code.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
