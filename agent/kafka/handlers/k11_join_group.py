"""JoinGroup: become a member of a classic group, or come again because the group rebalances.

Versions 0 to 9.
Behaviour: Kafka's (agent/kafka/groups/classic.py). Answered when the join phase is over and the log has
decided the next generation; only the leader is told who else is in it. From version 4 on a new member
without an instance id gets MEMBER_ID_REQUIRED with its id first (KIP-394); from 9 on a static member that
comes back and leads is told to skip the assignment (KIP-814).
Deviations: none known.
"""

from __future__ import annotations

from itertools import islice

from agent.kafka.context import Context
from agent.kafka.groups.members import Join, Joined
from agent.net.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from coordination import broker_configs
from coordination.kafka_codes import Code

KEY = 11
VERSIONS = (0, 9)
REBALANCE_TIMEOUT_SINCE, ID_REQUIRED_SINCE, NULL_PROTOCOL_SINCE, SKIPS_ASSIGNMENT_SINCE = 1, 4, 7, 9
UUID_PARTS = (8, 4, 4, 4, 12)  # hexadecimal digits


async def handle(ctx: Context, request: JoinGroupRequest, version: int) -> JoinGroupResponse:
    """Wait for the generation that this member is in."""
    configs = ctx.state.cluster_configs
    shortest = broker_configs.integer(configs, "group.min.session.timeout.ms")
    longest = broker_configs.integer(configs, "group.max.session.timeout.ms")
    if not request.group_id:
        joined = Joined(Code.INVALID_GROUP_ID, request.member_id)
    elif not shortest <= request.session_timeout_ms <= longest:
        joined = Joined(Code.INVALID_SESSION_TIMEOUT, request.member_id)
    else:
        joined = await ctx.services.groups.join(request.group_id, _join(ctx, request, version))
    protocol = joined.protocol
    return JoinGroupResponse(
        error_code=joined.code,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=(protocol or "") if version < NULL_PROTOCOL_SINCE else protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(each.member_id, each.instance_id, each.metadata)
            for each in joined.members
        ],
    )


def _join(ctx: Context, request: JoinGroupRequest, version: int) -> Join:
    rebalance_ms = request.rebalance_timeout_ms
    if version < REBALANCE_TIMEOUT_SINCE or rebalance_ms < 0:
        rebalance_ms = request.session_timeout_ms
    return Join(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.client.host}",
        session_s=request.session_timeout_ms / 1000,
        rebalance_s=rebalance_ms / 1000,
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
        new_id=""
        if request.member_id
        else f"{request.group_instance_id or ctx.client_id or ''}-{_fresh(ctx)}",
        id_required=version >= ID_REQUIRED_SINCE,
        skips_assignment=version >= SKIPS_ASSIGNMENT_SINCE,
    )


def _fresh(ctx: Context) -> str:
    """Random digits in the form of a UUID, as in Kafka's member ids."""
    digits = iter(ctx.services.clock.random_bytes(sum(UUID_PARTS) // 2).hex())
    return "-".join("".join(islice(digits, length)) for length in UUID_PARTS)
