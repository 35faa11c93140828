"""ConsumerGroupDescribe: the members, epochs and assignments of groups of KIP-848.

Versions 0 to 1.
Behaviour: answered by the coordinator after a read barrier. From version 1 on members that still speak the
classic protocol say so.
Deviations: none known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.kafka.context import Context
from agent.kafka.groups.consumer.draft import preferred_assignor
from agent.kafka.groups.listing import consumer_state
from agent.kafka.handlers.lookup import GROUP_COST, GROUP_OPERATIONS, NOT_ASKED
from agent.net.wire.api import Encoded
from agent.net.wire.generated import consumer_group_describe
from agent.net.wire.generated.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from agent.net.wire.steps import Pace, encoded
from coordination.config_types import shown
from coordination.kafka_codes import Code
from coordination.state.consumer_types import ConsumerGroupData, ConsumerMember

KEY = 69
VERSIONS = (0, 1)
SPEAKS_CLASSIC, SPEAKS_CONSUMER = 0, 1


async def handle(ctx: Context, request: ConsumerGroupDescribeRequest, version: int) -> Encoded:
    """One answer per group, in the request's order; each as it is when its rows are begun."""
    await ctx.barrier()
    pace = Pace()
    groups = [await _describe(ctx, group_id, pace) for group_id in request.group_ids]
    for group in groups:
        asked = request.include_authorized_operations and not group.error_code
        group.authorized_operations = GROUP_OPERATIONS if asked else NOT_ASKED
    response = ConsumerGroupDescribeResponse(groups=groups)
    return await encoded(consumer_group_describe, response, version, "groups", "members")


async def _describe(ctx: Context, group_id: str, pace: Pace) -> DescribedGroup:
    await pace.row(GROUP_COST)
    if not group_id:
        return DescribedGroup(error_code=Code.INVALID_GROUP_ID, group_id=group_id)
    refused = ctx.services.groups.refusal(group_id)
    if refused is not None:
        return DescribedGroup(error_code=refused, group_id=group_id)
    group = ctx.state.groups.get(group_id)
    data = ctx.services.consumer_groups.data(group_id)
    if group is None or data is None:
        why = "not found" if group is None else "is not a consumer group"
        return DescribedGroup(
            error_code=Code.GROUP_ID_NOT_FOUND,
            error_message=f"Group {shown(group_id)} {why}.",
            group_id=group_id,
        )
    answer = DescribedGroup(
        group_id=group_id,
        group_state=consumer_state(group),
        group_epoch=data.group_epoch,
        assignment_epoch=data.assignment_epoch,
        assignor_name=preferred_assignor(data, ctx.services.consumer_groups.assignors()),
    )
    moment = data.note()
    for member in moment.members.values():
        one = _member(ctx, moment, member)
        answer.members.append(one)
        await pace.row(1 + len(one.assignment.topic_partitions) + len(one.target_assignment.topic_partitions))
    return answer


def _member(ctx: Context, data: ConsumerGroupData, member: ConsumerMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(ctx, member.assigned),
        target_assignment=_assignment(ctx, data.targets.get(member.member_id, {})),
        member_type=SPEAKS_CONSUMER if member.classic is None else SPEAKS_CLASSIC,
    )


def _assignment(ctx: Context, partitions: Mapping[bytes, Iterable[int]]) -> Assignment:
    rows = []
    for topic_id, numbers in partitions.items():
        topic = ctx.state.topics_by_id.get(topic_id)
        if topic is not None:
            rows.append(TopicPartitions(topic_id, topic.name, sorted(numbers)))
    return Assignment(topic_partitions=rows)
