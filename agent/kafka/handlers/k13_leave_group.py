"""LeaveGroup: members go, or an administrator takes static members out.

Versions 0 to 5.
Behaviour: Kafka's (agent/kafka/groups/classic.py). From version 3 on several members at once, each by its
member id or by its instance id alone (KIP-345); before, the one member's error is the answer's.
Deviations: none known.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.net.wire.generated.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from coordination.kafka_codes import Code

KEY = 13
VERSIONS = (0, 5)
BATCHED_SINCE = 3


async def handle(ctx: Context, request: LeaveGroupRequest, version: int) -> LeaveGroupResponse:
    """One code per member."""
    if not request.group_id:
        return LeaveGroupResponse(error_code=Code.INVALID_GROUP_ID)
    if version < BATCHED_SINCE:
        leaving: list[tuple[str, str | None]] = [(request.member_id, None)]
    else:
        leaving = [(each.member_id, each.group_instance_id) for each in request.members]
    codes = await ctx.services.groups.leave(request.group_id, leaving)
    if isinstance(codes, Code):
        return LeaveGroupResponse(error_code=codes)
    if version < BATCHED_SINCE:
        return LeaveGroupResponse(error_code=codes[0])
    members = [
        MemberResponse(member_id, instance_id, code)
        for (member_id, instance_id), code in zip(leaving, codes, strict=True)
    ]
    return LeaveGroupResponse(members=members)
