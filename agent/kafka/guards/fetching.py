"""Fetch: topics to read, asked for when the request comes and again when a long poll answers."""

from __future__ import annotations

from agent.kafka.authority import needs
from agent.kafka.context import Context
from agent.kafka.guards.named import resolved
from agent.kafka.guards.rows import Guard, Handle
from agent.kafka.handlers.k01_fetch import TOPIC_IDS_SINCE
from agent.net.wire.generated.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from coordination.kafka_codes import Code


async def _fetch(ctx: Context, request: FetchRequest, version: int, handle: Handle) -> FetchResponse:
    by_id = version >= TOPIC_IDS_SINCE
    names = await resolved(ctx, (each.topic_id for each in request.topics)) if by_id else {}
    kept: list[FetchTopic] = []
    refused: list[FetchableTopicResponse] = []
    for each in request.topics:
        name = names.get(each.topic_id) if by_id else each.topic
        if by_id and each.topic_id not in names:
            refused.append(_refused(each, Code.UNKNOWN_TOPIC_ID))
        elif name is None or ctx.may(needs.FETCH, name):
            kept.append(each)
        else:
            refused.append(_refused(each, Code.TOPIC_AUTHORIZATION_FAILED))
    if refused and not kept:
        return FetchResponse(responses=refused)
    request.topics = kept
    asked_at = ctx.state.acls.revision
    response: FetchResponse = await handle(ctx, request, version)
    if ctx.state.acls.revision != asked_at:
        _ask_again(ctx, response, by_id)
    response.responses.extend(refused)
    return response


def _refused(asked: FetchTopic, code: Code) -> FetchableTopicResponse:
    rows = [_empty(each.partition, code) for each in asked.partitions]
    return FetchableTopicResponse(asked.topic, asked.topic_id, rows)


def _empty(index: int, code: Code) -> PartitionData:
    return PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=[])


def _ask_again(ctx: Context, response: FetchResponse, by_id: bool) -> None:
    """Take out what the client may not any more: ACLs changed while it waited."""
    for row in response.responses:
        topic = ctx.state.topics_by_id.get(row.topic_id) if by_id else None
        name = topic.name if topic is not None else row.topic
        if not ctx.may(needs.FETCH, name):
            code = Code.TOPIC_AUTHORIZATION_FAILED
            row.partitions = [_empty(each.partition_index, code) for each in row.partitions]


GUARDS: dict[int, Guard] = {1: _fetch}
