"""ConsumerGroupHeartbeat: join, stay in, move on and leave a group of KIP-848.

Versions 0 to 1.
Behaviour: Kafka's (agent/kafka/groups/consumer). A heartbeat that changes nothing is answered from memory;
all that are ready and change a group share one log entry. Members of version 1 make their own member id.
Deviations: a member that waits for a target, or for partitions which others are giving back, is told to come
again after 500 ms, or its heartbeat interval if that is less. Patterns are resolved before the first answer,
and each member is given of them what its own principal may describe, by the ACLs of now.
"""

from __future__ import annotations

from functools import partial

from agent.kafka.authority.needs import CONSUMER_HEARTBEAT_PATTERN
from agent.kafka.context import Context
from agent.kafka.groups.consumer.errors import GroupError
from agent.kafka.groups.consumer.heartbeat import Heartbeat, check
from agent.kafka.groups.consumer.sights import Viewer
from agent.net.wire.generated.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from coordination.kafka_codes import Code
from coordination.state.consumer_types import Owned

KEY = 68
VERSIONS = (0, 1)


async def handle(
    ctx: Context, request: ConsumerGroupHeartbeatRequest, version: int
) -> ConsumerGroupHeartbeatResponse:
    """The member's epoch, and its assignment when it changed or was asked for."""
    groups = ctx.services.consumer_groups
    beat = _heartbeat(ctx, request)
    try:
        if not ctx.state.features.get("group.version"):
            raise GroupError(Code.UNSUPPORTED_VERSION, "The consumer group protocol is not enabled.")
        check(beat, version, groups.assignors())
        answer = await groups.heartbeat(beat)
    except GroupError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    return ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=0 if beat.leaves else groups.interval_ms(answer, beat.group_id),
        assignment=None if answer.assignment is None else _assignment(answer.assignment),
    )


def _heartbeat(ctx: Context, request: ConsumerGroupHeartbeatRequest) -> Heartbeat:
    owned = request.topic_partitions
    names = request.subscribed_topic_names
    return Heartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if names is None else tuple(names),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None if owned is None else {row.topic_id: row.partitions for row in owned},
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.client.host}",
        viewer=_viewer(ctx),
    )


def _viewer(ctx: Context) -> Viewer | None:
    """Who decides what a pattern shows; None where nobody does. Nothing of the request is kept by it."""
    authority = ctx.services.authority
    if not authority.enforces:
        return None
    who, need = (ctx.client.principal, ctx.client.host), CONSUMER_HEARTBEAT_PATTERN
    return Viewer(*who, partial(authority.allows, *who, need.operation, need.resource))


def _assignment(owned: Owned) -> Assignment:
    rows = [TopicPartitions(topic_id=key, partitions=sorted(row)) for key, row in owned.items()]
    return Assignment(topic_partitions=rows)
