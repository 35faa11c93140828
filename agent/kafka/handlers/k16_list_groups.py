"""ListGroups: the groups that this agent coordinates.

Versions 0 to 5.
Behaviour: as in Kafka each broker names its own groups, and clients ask all of them. Filters by state (from
4 on) and by type (from 5 on) do not mind upper and lower case; unknown names match nothing.
Deviations: none known.
"""

from __future__ import annotations

import asyncio

from agent.kafka.context import Context
from agent.kafka.groups.listing import Listed, all_listed
from agent.net.wire.api import Encoded
from agent.net.wire.generated.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    encode_response,
)
from coordination.kafka_codes import Code

KEY = 16
VERSIONS = (0, 5)
OFFLOAD_FROM = 1_000  # groups from which an answer is encoded in a thread


async def handle(ctx: Context, request: ListGroupsRequest, version: int) -> ListGroupsResponse | Encoded:
    """The groups that match the filters."""
    if not await ctx.barrier():
        return ListGroupsResponse(error_code=Code.COORDINATOR_NOT_AVAILABLE)
    states = {state.lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}
    answer = ListGroupsResponse(
        groups=[
            ListedGroup(group.group_id, group.protocol_type, group.state, group.kind)
            async for group in all_listed(lambda: ctx.state, ctx.services.groups)
            if _matches(group, states, kinds)
        ]
    )
    if len(answer.groups) < OFFLOAD_FROM:
        return answer
    return Encoded(await asyncio.to_thread(encode_response, answer, version))


def _matches(group: Listed, states: set[str], kinds: set[str]) -> bool:
    return (not states or group.state.lower() in states) and (not kinds or group.kind.lower() in kinds)
