"""OffsetDelete: forget a group's positions of some partitions.

Versions 0.
Behaviour: decided at apply. GROUP_SUBSCRIBED_TO_TOPIC while the group's members consume the topic,
NON_EMPTY_GROUP for members of another protocol than consumers', GROUP_ID_NOT_FOUND where there is no group.
Positions that wait for a transaction go too.
Deviations: none known.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.groups.codes import told
from agent.kafka.handlers.lookup import find_partition
from agent.kafka.propose import propose_one
from agent.net.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from coordination.commands import DeleteOffsets
from coordination.kafka_codes import Code
from coordination.state.types import Done, Refused

KEY = 47
VERSIONS = (0, 0)


async def handle(ctx: Context, request: OffsetDeleteRequest, version: int) -> OffsetDeleteResponse:
    """A code per partition, in the request's order, or one for the group."""
    if not request.group_id:
        return OffsetDeleteResponse(error_code=Code.INVALID_GROUP_ID)
    await ctx.barrier()
    answer = OffsetDeleteResponse()
    rows: list[OffsetDeleteResponsePartition] = []
    command = DeleteOffsets(group=request.group_id)
    for each in request.topics:
        topic = ctx.state.topics.get(each.name)
        part = OffsetDeleteResponseTopic(name=each.name)
        answer.topics.append(part)
        for asked in each.partitions:
            row = OffsetDeleteResponsePartition(partition_index=asked.partition_index)
            part.partitions.append(row)
            partition = find_partition(topic, asked.partition_index)
            if partition is not None:
                rows.append(row)
                command.partition.append(partition.handle)
            else:
                row.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
    refused = ctx.services.groups.refusal(request.group_id)
    if refused is not None:
        return OffsetDeleteResponse(error_code=refused)
    result = await propose_one(ctx, command)
    if isinstance(result, Refused):
        return OffsetDeleteResponse(error_code=told(result.code))
    assert isinstance(result, Done), f"DeleteOffsets: {result!r}"
    codes = result.value if isinstance(result.value, tuple) else ()
    for row, code in zip(rows, codes, strict=True):
        row.error_code = code
    return answer
