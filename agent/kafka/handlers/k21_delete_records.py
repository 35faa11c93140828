"""DeleteRecords: move the log start of partitions forward.

Versions 0 to 2.
Behaviour: -1 stands for the high watermark; an offset below the log start leaves it there, one beyond the
high watermark is OFFSET_OUT_OF_RANGE; a topic that is compacted only is POLICY_VIOLATION. Answered with the
low watermark (the log start) once applied: no agent that has caught up shows the records any more. Which
rows of the topic's table go with them is `floe.table.retention`'s to say, and for how long they can come back
`floe.records.grace.ms`'s.
Deviations: none known.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.kafka.context import Context
from agent.kafka.handlers.lookup import find_partition
from agent.kafka.propose import propose_one
from agent.net.wire.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from coordination.commands import MoveLogStart
from coordination.kafka_codes import Code
from coordination.state.topics import MOVES_MAX
from coordination.state.types import Done, Refused, Result, Topic
from coordination.topic_configs import compacts, deletes

KEY = 21
VERSIONS = (0, 2)
NO_WATERMARK = -1
HIGH_WATERMARK = -1  # as an offset asked for


@dataclass(frozen=True, slots=True)
class Sound:
    """A partition whose log start may be moved, and where its answer goes."""

    handle: int
    offset: int
    answer: DeleteRecordsPartitionResult


async def handle(ctx: Context, request: DeleteRecordsRequest, version: int) -> DeleteRecordsResponse:
    """One answer per partition, in the request's order; a command for every MOVES_MAX of them."""
    response, sound = await checked(ctx, request)
    for start in range(0, len(sound), MOVES_MAX):
        some = sound[start : start + MOVES_MAX]
        message = MoveLogStart(
            partition=[each.handle for each in some], offset=[each.offset for each in some]
        )
        _fill(some, await propose_one(ctx, message, request.timeout_ms))
    return response


async def checked(ctx: Context, request: DeleteRecordsRequest) -> tuple[DeleteRecordsResponse, list[Sound]]:
    """The answers with what is known before the log is asked, and the partitions to ask it for."""
    fresh = await ctx.barrier()
    response = DeleteRecordsResponse()
    sound: list[Sound] = []
    for asked in request.topics:
        topic = ctx.state.topics.get(asked.name)
        results = [_checked(ctx, topic, each, sound, fresh) for each in asked.partitions]
        response.topics.append(DeleteRecordsTopicResult(asked.name, results))
    return response, sound


def _checked(
    ctx: Context, topic: Topic | None, asked: DeleteRecordsPartition, sound: list[Sound], fresh: bool
) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(asked.partition_index, NO_WATERMARK)
    partition = find_partition(topic, asked.partition_index)
    if not fresh:
        answer.error_code = Code.LEADER_NOT_AVAILABLE
    elif topic is None or partition is None:
        answer.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
    elif _compacted_only(ctx, topic):
        answer.error_code = Code.POLICY_VIOLATION
    elif asked.offset < HIGH_WATERMARK or asked.offset > partition.high_watermark:
        answer.error_code = Code.OFFSET_OUT_OF_RANGE
    else:
        sound.append(Sound(partition.handle, asked.offset, answer))
    return answer


def _compacted_only(ctx: Context, topic: Topic) -> bool:
    cluster = ctx.state.cluster_configs
    return compacts(topic.configs, cluster) and not deletes(topic.configs, cluster)


def _fill(sound: list[Sound], result: Result) -> None:
    """What apply decided; a partition that it refused went with its topic meanwhile."""
    if isinstance(result, Refused):
        for each in sound:
            each.answer.error_code = result.code
        return
    assert isinstance(result, Done)
    starts = result.value
    assert isinstance(starts, tuple)
    for each, start in zip(sound, starts, strict=True):
        if start < 0:
            each.answer.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
        else:
            each.answer.low_watermark = start
