"""DeleteGroups: delete groups without members, and their positions.

Versions 0 to 2.
Behaviour: decided at apply. NON_EMPTY_GROUP while there are members, GROUP_ID_NOT_FOUND where there is no
group. A change that a group is just going through, as a member that leaves, is waited for. Positions
that wait for a transaction go too. A group named twice has one answer.
Deviations: none known.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.groups.codes import told
from agent.kafka.propose import propose_one, settled
from agent.net.wire.generated.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from coordination.commands import DeleteGroups
from coordination.kafka_codes import Code
from coordination.state.types import Done, Refused

KEY = 42
VERSIONS = (0, 2)


async def handle(ctx: Context, request: DeleteGroupsRequest, version: int) -> DeleteGroupsResponse:
    """One answer per group, in the request's order; one that is named twice has one."""
    groups = ctx.services.groups
    await settled(ctx, dict.fromkeys(request.groups_names))
    answers = [
        DeletableGroupResult(group_id, refusal(ctx, group_id))
        for group_id in dict.fromkeys(request.groups_names)
    ]
    sound = [answer for answer in answers if not answer.error_code]
    if sound:
        result = await propose_one(ctx, DeleteGroups(group=[answer.group_id for answer in sound]))
        if isinstance(result, Refused):
            codes = [told(result.code)] * len(sound)
        else:
            assert isinstance(result, Done), f"DeleteGroups: {result!r}"
            codes = list(result.value) if isinstance(result.value, tuple) else []
        for answer, code in zip(sound, codes, strict=True):
            answer.error_code = code
            if not code:
                groups.forget(answer.group_id)
    return DeleteGroupsResponse(results=answers)


def refusal(ctx: Context, group_id: str) -> Code:
    """What is known without the log: not coordinated here, or members are coming right now."""
    refused = ctx.services.groups.refusal(group_id)
    if refused is not None:
        return refused
    running = ctx.services.groups.group(group_id)
    return Code.NON_EMPTY_GROUP if running is not None and running.members else Code.NONE
