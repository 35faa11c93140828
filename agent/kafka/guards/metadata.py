"""Metadata: topics that the client may not describe are refused by name, and not shown among all."""

from __future__ import annotations

from typing import Any

from agent.kafka.authority import needs
from agent.kafka.context import Context
from agent.kafka.guards.describing import cluster_operations
from agent.kafka.guards.named import resolved
from agent.kafka.guards.rows import Guard, Handle, closed, opened, sorted_out
from agent.kafka.handlers.k03_metadata import TOPIC_IDS_SINCE
from agent.kafka.handlers.lookup import NIL_ID
from agent.net.wire.generated import metadata as md
from agent.net.wire.steps import ASKING_COST, Pace
from coordination.kafka_codes import Code
from coordination.state.acl_types import ResourceType

TOPIC = Code.TOPIC_AUTHORIZATION_FAILED


async def _metadata(ctx: Context, request: md.MetadataRequest, version: int, handle: Handle) -> Any:
    asked = request.topics
    if version < TOPIC_IDS_SINCE and any(
        each.topic_id != NIL_ID or each.name is None for each in asked or ()
    ):
        return await handle(ctx, request, version)  # which refuses it
    refused: list[md.MetadataResponseTopic] = []
    if asked is None or (version == 0 and not asked):
        request.topics = await _all(ctx)
        request.allow_auto_topic_creation = False  # of one that goes meanwhile
    else:
        request.topics, refused = await _allowed(ctx, asked)
    operations = request.include_topic_authorized_operations or request.include_cluster_authorized_operations
    # In version 0 none named are all: then it is answered as in the next one.
    answered_in = 1 if version == 0 and not request.topics else version
    response = await handle(ctx, request, answered_in)
    if not refused and not operations and answered_in == version:
        return response
    response = await opened(md, response, answered_in)
    _fill_in(ctx, request, response)
    response.topics.extend(refused)
    return await closed(md, response, version, ("topics", "partitions"))


async def _all(ctx: Context) -> list[md.MetadataRequestTopic]:
    await ctx.barrier()
    names = sorted(ctx.state.topics)
    shown, _ = await sorted_out(ctx, names, lambda each: needs.METADATA_ALL, str)
    return [md.MetadataRequestTopic(name=name) for name in shown]


async def _allowed(
    ctx: Context, asked: list[md.MetadataRequestTopic]
) -> tuple[list[md.MetadataRequestTopic], list[md.MetadataResponseTopic]]:
    """Those that the client may know of, and the answers for the others.

    Whether it may create one that is missing the handler asks, when it is about to.
    """
    names = await resolved(ctx, (each.topic_id for each in asked if each.topic_id != NIL_ID))
    kept, refused = [], []
    pace = Pace()
    for each in {(each.name, each.topic_id): each for each in asked}.values():
        await pace.row(ASKING_COST)
        by_id = each.topic_id != NIL_ID
        name = names.get(each.topic_id) if by_id else each.name or ""
        if name is None:
            refused.append(md.MetadataResponseTopic(Code.UNKNOWN_TOPIC_ID, None, each.topic_id))
        elif not ctx.may(needs.METADATA, name):
            refused.append(md.MetadataResponseTopic(TOPIC, None if by_id else name, each.topic_id))
        else:
            kept.append(each)
    return kept, refused


def _fill_in(ctx: Context, request: md.MetadataRequest, response: md.MetadataResponse) -> None:
    """The operations that were asked for."""
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(ctx, needs.METADATA_CLUSTER)
    if request.include_topic_authorized_operations:
        for row in response.topics:
            if not row.error_code:
                row.topic_authorized_operations = ctx.operations(ResourceType.TOPIC, row.name or "")


GUARDS: dict[int, Guard] = {3: _metadata}
