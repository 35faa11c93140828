"""Positions of groups: the group is asked for first, then each topic."""

from __future__ import annotations

from typing import Any

from agent.kafka.authority import needs
from agent.kafka.context import Context
from agent.kafka.guards.named import resolved
from agent.kafka.guards.rows import Guard, Handle, closed, opened, sorted_out
from agent.kafka.handlers.k09_offset_fetch import BATCHED_SINCE, GROUP_ERROR_SINCE, IDS_SINCE
from agent.net.wire.generated import offset_delete as od
from agent.net.wire.generated import offset_fetch as of
from agent.net.wire.generated import txn_offset_commit as toc
from agent.net.wire.steps import ASKING_COST, Pace
from coordination.kafka_codes import Code

GROUP, TOPIC = Code.GROUP_AUTHORIZATION_FAILED, Code.TOPIC_AUTHORIZATION_FAILED
PATH = ("groups", "topics", "partitions")


async def _fetch(ctx: Context, request: of.OffsetFetchRequest, version: int, handle: Handle) -> Any:
    if version < BATCHED_SINCE:
        return await _fetch_one(ctx, request, version, handle)
    groups, refused = await sorted_out(
        ctx, request.groups, lambda row: needs.OFFSET_FETCH_GROUP, lambda row: str(row.group_id)
    )
    taken: dict[int, list[of.OffsetFetchResponseTopics]] = {}
    for number, group in enumerate(groups):
        if group.topics is not None:
            group.topics, taken[number] = await _topics(ctx, group.topics, version)
    request.groups = groups
    if not groups:
        return of.OffsetFetchResponse(groups=[_no_group(each) for each in refused])
    everything = {group.group_id for group in groups if group.topics is None}
    if not refused and not everything and not any(taken.values()):
        return await handle(ctx, request, version)
    response: of.OffsetFetchResponse = await opened(of, await handle(ctx, request, version), version)
    for told in response.groups:
        if told.group_id in everything:
            told.topics = await _shown(ctx, told.topics)
    by_name = {
        group.group_id: rows for group, rows in zip(groups, map(taken.get, range(len(groups))), strict=True)
    }
    for told in response.groups:
        told.topics.extend(by_name.pop(told.group_id, None) or ())
    response.groups.extend(map(_no_group, refused))
    return await closed(of, response, version, PATH)


async def _fetch_one(ctx: Context, request: of.OffsetFetchRequest, version: int, handle: Handle) -> Any:
    """One group, as before version 8."""
    if not ctx.may(needs.OFFSET_FETCH_GROUP, request.group_id):
        rows = [
            of.OffsetFetchResponseTopic(
                each.name,
                [of.OffsetFetchResponsePartition(i, -1, -1, "", GROUP) for i in each.partition_indexes],
            )
            for each in request.topics or ()
        ]
        return of.OffsetFetchResponse(topics=[] if version >= GROUP_ERROR_SINCE else rows, error_code=GROUP)
    if request.topics is None:
        response = await opened(of, await handle(ctx, request, version), version)
        response.topics = await _shown(ctx, response.topics)
        return await closed(of, response, version, PATH[1:])
    kept, refused = await sorted_out(
        ctx, request.topics, lambda row: needs.OFFSET_FETCH, lambda row: str(row.name)
    )
    if not refused:
        return await handle(ctx, request, version)
    request.topics = kept
    response = await opened(of, await handle(ctx, request, version), version)
    response.topics.extend(
        of.OffsetFetchResponseTopic(
            each.name, [of.OffsetFetchResponsePartition(i, -1, -1, "", TOPIC) for i in each.partition_indexes]
        )
        for each in refused
    )
    return await closed(of, response, version, PATH[1:])


async def _topics(
    ctx: Context, rows: list[of.OffsetFetchRequestTopics], version: int
) -> tuple[list[of.OffsetFetchRequestTopics], list[of.OffsetFetchResponseTopics]]:
    """The topics whose positions may be told, and the answers for the others."""
    by_id = version >= IDS_SINCE
    names = await resolved(ctx, (row.topic_id for row in rows)) if by_id else {}
    kept, taken = [], []
    pace = Pace()
    for row in rows:
        await pace.row(ASKING_COST)
        name = names.get(row.topic_id) if by_id else row.name
        if name is None:
            taken.append(_no_topic(row, Code.UNKNOWN_TOPIC_ID))
        elif ctx.may(needs.OFFSET_FETCH, name):
            kept.append(row)
        else:
            taken.append(_no_topic(row, TOPIC))
    return kept, taken


def _no_topic(row: of.OffsetFetchRequestTopics, code: Code) -> of.OffsetFetchResponseTopics:
    rows = [of.OffsetFetchResponsePartitions(index, -1, -1, "", code) for index in row.partition_indexes]
    return of.OffsetFetchResponseTopics(row.name, row.topic_id, rows)


def _no_group(row: of.OffsetFetchRequestGroup) -> of.OffsetFetchResponseGroup:
    return of.OffsetFetchResponseGroup(row.group_id, error_code=GROUP)


async def _shown(ctx: Context, rows: list[Any]) -> list[Any]:
    """Of all topics those that the client may describe."""

    def name(row: Any) -> str:
        topic = None if row.name else ctx.state.topics_by_id.get(row.topic_id)
        return row.name if topic is None else topic.name

    shown, _ = await sorted_out(ctx, rows, lambda row: needs.OFFSET_FETCH_ALL, name)
    return shown


async def _delete(ctx: Context, request: od.OffsetDeleteRequest, version: int, handle: Handle) -> Any:
    if not ctx.may(needs.OFFSET_DELETE_GROUP, request.group_id):
        return od.OffsetDeleteResponse(error_code=GROUP)
    kept, refused = await sorted_out(
        ctx, request.topics, lambda row: needs.OFFSET_DELETE, lambda row: str(row.name)
    )
    if not refused:
        return await handle(ctx, request, version)
    request.topics = kept
    response: od.OffsetDeleteResponse = await handle(ctx, request, version)  # of no topic: what of the group
    if not response.error_code:
        for row in refused:
            rows = [od.OffsetDeleteResponsePartition(each.partition_index, TOPIC) for each in row.partitions]
            response.topics.append(od.OffsetDeleteResponseTopic(row.name, rows))
    return response


async def _commit_in_transaction(
    ctx: Context, request: toc.TxnOffsetCommitRequest, version: int, handle: Handle
) -> Any:
    code: Code | None = None
    if not ctx.may(needs.TXN_OFFSETS_ID, request.transactional_id):
        code = needs.TXN_OFFSETS_ID.code
    elif not ctx.may(needs.TXN_OFFSETS_GROUP, request.group_id):
        code = needs.TXN_OFFSETS_GROUP.code
    if code is not None:
        return toc.TxnOffsetCommitResponse(topics=[_no_commit(row, code) for row in request.topics])
    kept, refused = await sorted_out(
        ctx, request.topics, lambda row: needs.TXN_OFFSETS, lambda row: str(row.name)
    )
    if not refused:
        return await handle(ctx, request, version)
    request.topics = kept
    response: toc.TxnOffsetCommitResponse
    response = await handle(ctx, request, version) if kept else toc.TxnOffsetCommitResponse()
    response.topics.extend(_no_commit(row, TOPIC) for row in refused)
    return response


def _no_commit(row: toc.TxnOffsetCommitRequestTopic, code: Code) -> toc.TxnOffsetCommitResponseTopic:
    rows = [toc.TxnOffsetCommitResponsePartition(each.partition_index, code) for each in row.partitions]
    return toc.TxnOffsetCommitResponseTopic(row.name, rows)


GUARDS: dict[int, Guard] = {9: _fetch, 28: _commit_in_transaction, 47: _delete}
