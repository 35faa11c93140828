"""DescribeGroups: the state and the members of classic groups.

Versions 0 to 6.
Behaviour: answered by the coordinator. Members show their metadata only in a stable group. A
group that does not exist is Dead; from version 6 on also GROUP_ID_NOT_FOUND (KIP-1043).
Deviations: none known.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.groups.listing import listed, members_of
from agent.kafka.groups.members import GroupState, Member
from agent.kafka.handlers.lookup import GROUP_COST, GROUP_OPERATIONS, NOT_ASKED
from agent.net.wire.api import Encoded
from agent.net.wire.generated import describe_groups
from agent.net.wire.generated.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from agent.net.wire.steps import Pace, encoded
from coordination.config_types import shown
from coordination.kafka_codes import Code
from coordination.state.group_types import CLASSIC

KEY = 15
VERSIONS = (0, 6)
NOT_FOUND_SINCE = 6


async def handle(ctx: Context, request: DescribeGroupsRequest, version: int) -> Encoded:
    """One answer per group, in the request's order; each as it is when its rows are begun."""
    await ctx.barrier()
    pace = Pace()
    groups = [await _describe(ctx, group_id, version, pace) for group_id in request.groups]
    for group in groups:
        asked = request.include_authorized_operations and not group.error_code
        group.authorized_operations = GROUP_OPERATIONS if asked else NOT_ASKED
    response = DescribeGroupsResponse(groups=groups)
    return await encoded(describe_groups, response, version, "groups", "members")


async def _describe(ctx: Context, group_id: str, version: int, pace: Pace) -> DescribedGroup:
    await pace.row(GROUP_COST)
    refused = ctx.services.groups.refusal(group_id)
    if refused is not None:
        return DescribedGroup(error_code=refused, group_id=group_id)
    group = listed(ctx.state, ctx.services.groups, group_id)
    if group is None or group.kind != CLASSIC:
        answer = DescribedGroup(group_id=group_id, group_state="Dead")
        if version >= NOT_FOUND_SINCE:
            why = "not found" if group is None else "is not a classic group"
            answer.error_code = Code.GROUP_ID_NOT_FOUND
            answer.error_message = f"Group {shown(group_id)} {why}."
        return answer
    stable = group.state == GroupState.STABLE.value
    answer = DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol if stable else "",
    )
    found = members_of(ctx.state, ctx.services.groups, group_id)
    for member, assignment in [(each, each.assignment) for each in found]:  # of one generation
        answer.members.append(_member(member, assignment, group.protocol, stable))
        await pace.row()
    return answer


def _member(member: Member, assignment: bytes, protocol: str, stable: bool) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol) if stable else b"",
        member_assignment=assignment,
    )
