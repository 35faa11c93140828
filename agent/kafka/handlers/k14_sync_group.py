"""SyncGroup: the leader gives the assignments, every member gets its own.

Versions 0 to 5.
Behaviour: Kafka's (agent/kafka/groups/classic.py). Answered once the log has the assignments. From version 5
on the protocol's type and name must be there and be the group's (KIP-559).
Deviations: none known.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.groups.members import Synced
from agent.net.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse
from coordination.kafka_codes import Code

KEY = 14
VERSIONS = (0, 5)
PROTOCOL_NEEDED_SINCE = 5


async def handle(ctx: Context, request: SyncGroupRequest, version: int) -> SyncGroupResponse:
    """Wait for the member's assignment."""
    protocols = (request.protocol_type, request.protocol_name)
    if version >= PROTOCOL_NEEDED_SINCE and None in protocols:
        synced = Synced(Code.INCONSISTENT_GROUP_PROTOCOL)
    elif not request.group_id:
        synced = Synced(Code.INVALID_GROUP_ID)
    else:
        synced = await ctx.services.groups.sync(
            request.group_id,
            (request.member_id, request.group_instance_id),
            request.generation_id,
            protocols,
            [(each.member_id, bytes(each.assignment)) for each in request.assignments],
        )
    return SyncGroupResponse(
        error_code=synced.code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )
