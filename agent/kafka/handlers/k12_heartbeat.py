"""Heartbeat: a member of a classic group is alive, and learns whether the group rebalances.

Versions 0 to 4.
Behaviour: Kafka's (agent/kafka/groups/classic.py). Answered from memory: a heartbeat decides nothing.
Deviations: none known.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.net.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from coordination.kafka_codes import Code

KEY = 12
VERSIONS = (0, 4)


async def handle(ctx: Context, request: HeartbeatRequest, version: int) -> HeartbeatResponse:
    """The member's session begins anew."""
    if not request.group_id:
        return HeartbeatResponse(error_code=Code.INVALID_GROUP_ID)
    code = ctx.services.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=code)
