"""OffsetForLeaderEpoch: where a leader epoch ends, by which consumers notice truncation (KIP-320).

Versions 2 to 4.
Behaviour: leader epochs grow, but records are all of epoch 0 and none is truncated: whichever epoch is asked
for, its records end at the high watermark. Answered after a barrier; while the log does not answer,
LEADER_NOT_AVAILABLE: an end from before would be taken for a truncation.
Deviations: a client's epoch that is older than the agent's is not fenced: the agent serves it all the same.
Epochs later than the agent's are undefined (-1, -1), as in Kafka.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.fetch.planner import RECORDS_EPOCH
from agent.kafka.handlers.lookup import find_partition
from agent.net.wire.api import Encoded
from agent.net.wire.generated import offset_for_leader_epoch
from agent.net.wire.generated.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from agent.net.wire.steps import Pace, encoded
from coordination.kafka_codes import Code

KEY = 23
VERSIONS = (2, 4)


async def handle(ctx: Context, request: OffsetForLeaderEpochRequest, version: int) -> Encoded:
    """One answer per partition, in the request's order."""
    fresh = await ctx.barrier()
    response, pace = OffsetForLeaderEpochResponse(), Pace()
    for topic in request.topics:
        rows = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(rows)
        for each in topic.partitions:
            rows.partitions.append(_end(ctx, topic.topic, each, fresh))
            await pace.row()
    return await encoded(offset_for_leader_epoch, response, version, "topics", "partitions")


def _end(ctx: Context, name: str, each: OffsetForLeaderPartition, fresh: bool) -> EpochEndOffset:
    answer = EpochEndOffset(partition=each.partition)
    partition = find_partition(ctx.state.topics.get(name), each.partition)
    if not fresh:
        answer.error_code = Code.LEADER_NOT_AVAILABLE
    elif partition is None:
        answer.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
    elif each.current_leader_epoch > ctx.state.leader_epoch:
        answer.error_code = Code.UNKNOWN_LEADER_EPOCH
    elif RECORDS_EPOCH <= each.leader_epoch <= ctx.state.leader_epoch:
        answer.leader_epoch = RECORDS_EPOCH  # the latest that has records, and is not later than asked for
        answer.end_offset = partition.high_watermark
    return answer
