"""Groups: those that are named are refused one by one, those that are listed are not shown."""

from __future__ import annotations

from agent.kafka.authority import needs
from agent.kafka.context import Context
from agent.kafka.guards.rows import Guard, Handle, Split, closed, opened, sorted_out
from agent.net.wire.generated import consumer_group_describe as cgd
from agent.net.wire.generated import consumer_group_heartbeat as cgh
from agent.net.wire.generated import delete_groups as dg
from agent.net.wire.generated import describe_groups as de
from agent.net.wire.generated import find_coordinator as fc
from agent.net.wire.generated import list_groups as lg
from agent.net.wire.steps import ASKING_COST, Pace
from coordination.kafka_codes import Code
from coordination.state.acl_types import ResourceType

GROUP, TOPIC = Code.GROUP_AUTHORIZATION_FAILED, Code.TOPIC_AUTHORIZATION_FAILED
BATCHED_SINCE = 4  # of FindCoordinator
KEYS = {0: needs.FIND_GROUP, 1: needs.FIND_ID}  # by type of key
WORDS = {
    needs.FIND_GROUP: "Group authorization failed.",
    needs.FIND_ID: "Transactional Id authorization failed.",
}
"""Kafka's."""
MEMBERS_TOPICS = "The group has described topic(s) that the client is not authorized to describe."  # as well


async def _find(ctx: Context, request: fc.FindCoordinatorRequest, version: int, handle: Handle) -> object:
    need = KEYS.get(request.key_type)
    if need is None:
        return await handle(ctx, request, version)

    def refused(key: str) -> fc.Coordinator:
        return fc.Coordinator(key, -1, "", -1, need.code, WORDS[need])

    if version < BATCHED_SINCE:
        if ctx.may(need, request.key):
            return await handle(ctx, request, version)
        one = refused(request.key)
        return fc.FindCoordinatorResponse(0, one.error_code, one.error_message, -1, "", -1)
    split = Split(
        fc, "coordinator_keys", "coordinators", lambda key: need, str, refused, fc.FindCoordinatorResponse
    )
    return await split(ctx, request, version, handle)


async def _list(ctx: Context, request: lg.ListGroupsRequest, version: int, handle: Handle) -> object:
    response = await handle(ctx, request, version)
    if ctx.may(needs.LIST_GROUPS_CLUSTER):
        return response
    response = await opened(lg, response, version)
    shown, _ = await sorted_out(
        ctx, response.groups, lambda row: needs.LIST_GROUPS, lambda row: str(row.group_id)
    )
    response.groups = shown
    return await closed(lg, response, version, ("groups",))


async def _describe(ctx: Context, request: de.DescribeGroupsRequest, version: int, handle: Handle) -> object:
    kept, refused = await sorted_out(ctx, request.groups, lambda each: needs.DESCRIBE_GROUPS, str)
    request.groups = kept
    response = await handle(ctx, request, version)
    if not refused and not request.include_authorized_operations:
        return response
    response, pace = await opened(de, response, version), Pace()
    if request.include_authorized_operations:
        for group in response.groups:
            await pace.row(ASKING_COST)
            if not group.error_code:
                group.authorized_operations = ctx.operations(ResourceType.GROUP, group.group_id)
    response.groups.extend(de.DescribedGroup(error_code=GROUP, group_id=each) for each in refused)
    return await closed(de, response, version, ("groups", "members"))


async def _describe_consumers(
    ctx: Context, request: cgd.ConsumerGroupDescribeRequest, version: int, handle: Handle
) -> object:
    kept, refused = await sorted_out(ctx, request.group_ids, lambda each: needs.CONSUMER_DESCRIBE, str)
    request.group_ids = kept
    response = await opened(cgd, await handle(ctx, request, version), version)
    pace = Pace()
    for number, group in enumerate(response.groups):
        topics = _topics_of(group)
        await pace.row(1 + ASKING_COST * len(topics))
        if not all(ctx.may(needs.CONSUMER_DESCRIBE_TOPIC, name) for name in topics):
            response.groups[number] = cgd.DescribedGroup(TOPIC, MEMBERS_TOPICS, group.group_id)
        elif request.include_authorized_operations and not group.error_code:
            group.authorized_operations = ctx.operations(ResourceType.GROUP, group.group_id)
    response.groups.extend(cgd.DescribedGroup(error_code=GROUP, group_id=each) for each in refused)
    return await closed(cgd, response, version, ("groups", "members"))


def _topics_of(group: cgd.DescribedGroup) -> dict[str, None]:
    return {
        row.topic_name: None
        for member in group.members
        for given in (member.assignment, member.target_assignment)
        for row in given.topic_partitions
    } | {name: None for member in group.members for name in member.subscribed_topic_names}


async def _heartbeat(
    ctx: Context, request: cgh.ConsumerGroupHeartbeatRequest, version: int, handle: Handle
) -> object:
    if not ctx.may(needs.CONSUMER_HEARTBEAT, request.group_id):
        return cgh.ConsumerGroupHeartbeatResponse(error_code=GROUP)
    names = request.subscribed_topic_names or ()
    _, refused = await sorted_out(ctx, names, lambda each: needs.CONSUMER_HEARTBEAT_TOPIC, str)
    if refused:
        return cgh.ConsumerGroupHeartbeatResponse(error_code=TOPIC)
    return await handle(ctx, request, version)


GUARDS: dict[int, Guard] = {
    10: _find,
    15: _describe,
    16: _list,
    42: Split(
        dg,
        "groups_names",
        "results",
        lambda each: needs.DELETE_GROUPS,
        str,
        lambda each: dg.DeletableGroupResult(each, GROUP),
        dg.DeleteGroupsResponse,
    ),
    68: _heartbeat,
    69: _describe_consumers,
}
