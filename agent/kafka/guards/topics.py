"""APIs that name topics, or groups, of which each is refused alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from agent.kafka.authority import needs
from agent.kafka.context import Context
from agent.kafka.guards.rows import Guard, Handle, Split, closed, opened
from agent.kafka.handlers.k20_delete_topics import STATES_SINCE, disabled, states
from agent.kafka.handlers.lookup import NIL_ID
from agent.net.wire.generated import create_partitions as cp
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_records as dr
from agent.net.wire.generated import delete_topics as dt
from agent.net.wire.generated import describe_producers as dp
from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import offset_for_leader_epoch as ole
from agent.net.wire.steps import ASKING_COST, Pace
from coordination.kafka_codes import Code
from coordination.state.topics import NO_SUCH_ID, NO_SUCH_NAME
from coordination.state.types import Refused

TOPIC = Code.TOPIC_AUTHORIZATION_FAILED
CONFIGS_SINCE = 5  # of CreateTopics
NOT_AUTHORIZED = "Authorization failed."  # Kafka's words
TOPIC_NOT_AUTHORIZED = "Topic authorization failed."  # as well
_NO_DELETE = Refused(TOPIC, TOPIC_NOT_AUTHORIZED)
_DELETE_QUIETLY = needs.DELETE_TOPICS._replace(quiet=True)
"""Of a topic that is not there: whoever may not delete it is told that, and not refused."""


def _offsets(row: lo.ListOffsetsTopic) -> Any:
    return lo.ListOffsetsTopicResponse(
        row.name, [lo.ListOffsetsPartitionResponse(each.partition_index, TOPIC) for each in row.partitions]
    )


def _epochs(row: ole.OffsetForLeaderTopic) -> Any:
    return ole.OffsetForLeaderTopicResult(
        row.topic, [ole.EpochEndOffset(error_code=TOPIC, partition=each.partition) for each in row.partitions]
    )


def _deleted_records(row: dr.DeleteRecordsTopic) -> Any:
    return dr.DeleteRecordsTopicResult(
        row.name,
        [dr.DeleteRecordsPartitionResult(each.partition_index, -1, TOPIC) for each in row.partitions],
    )


def _producers(row: dp.TopicRequest) -> Any:
    return dp.TopicResponse(
        row.name,
        [dp.PartitionResponse(index, TOPIC, TOPIC_NOT_AUTHORIZED) for index in row.partition_indexes],
    )


def _once(rows: list[Any], name: Callable[[Any], str]) -> Callable[[Any], str | None]:
    """The name of a row that is there once; None of others: their handler refuses them as duplicates."""
    times = Counter(name(row) for row in rows)
    return lambda row: name(row) if times[name(row)] == 1 else None


async def _create_partitions(
    ctx: Context, request: cp.CreatePartitionsRequest, version: int, handle: Handle
) -> Any:
    split = Split(
        cp,
        "topics",
        "results",
        lambda row: needs.CREATE_PARTITIONS,
        _once(request.topics, lambda row: str(row.name)),
        lambda row: cp.CreatePartitionsTopicResult(row.name, TOPIC, None),
        cp.CreatePartitionsResponse,
    )
    return await split(ctx, request, version, handle)


async def _create_topics(ctx: Context, request: ct.CreateTopicsRequest, version: int, handle: Handle) -> Any:
    split = Split(
        ct,
        "topics",
        "topics",
        lambda row: needs.CREATE_TOPICS,
        _once(request.topics, lambda row: str(row.name)),
        lambda row: ct.CreatableTopicResult(row.name, NIL_ID, TOPIC, NOT_AUTHORIZED),
        ct.CreateTopicsResponse,
        ("configs",),
        free=lambda ctx: ctx.allows(needs.CREATE_TOPICS_CLUSTER),
    )
    response = await split(ctx, request, version, handle)
    names = (row.name for row in request.topics)
    if version < CONFIGS_SINCE or all(ctx.may(needs.CREATE_TOPICS_CONFIGS, name) for name in names):
        return response
    response = await opened(ct, response, version)
    for row in response.topics:
        if not row.error_code and not ctx.may(needs.CREATE_TOPICS_CONFIGS, row.name):
            row.topic_config_error_code = TOPIC
            row.num_partitions = row.replication_factor = -1
            row.configs = []
    return await closed(ct, response, version, ("topics", "configs"))


async def _delete_topics(ctx: Context, request: dt.DeleteTopicsRequest, version: int, handle: Handle) -> Any:
    """A topic that one may not know of is refused without saying whether it is there.

    Rows go to the handler unasked only where it refuses them whatever is there: what is named twice, by both
    name and id, or by neither. A topic that is not there may be made, or brought back, before the command is
    applied: whoever may not delete it is answered here.
    """
    fresh = await ctx.barrier()  # which names the ids have, and what is not there
    if ctx.allows(needs.DELETE_TOPICS_CLUSTER):
        return await handle(ctx, request, version)
    rows = states(request, version)
    times = Counter((row.name, row.topic_id) for row in rows)
    gone = disabled(ctx, version)
    kept, told = [], []
    pace = Pace()
    for row in rows:
        await pace.row(ASKING_COST)
        sound = (row.name is None) != (row.topic_id == NIL_ID) and times[row.name, row.topic_id] == 1
        answer = _not_deleted(ctx, row, fresh, gone) if sound else None
        if answer is None:
            kept.append(row)
        else:
            told.append(answer)
    if not told:
        return await handle(ctx, request, version)
    if version < STATES_SINCE:
        request.topic_names = [row.name for row in kept if row.name is not None]
    else:
        request.topics = kept
    response = await handle(ctx, request, version) if kept else dt.DeleteTopicsResponse()
    response.responses.extend(told)
    return response


def _not_deleted(
    ctx: Context, row: dt.DeleteTopicState, fresh: bool, off: Refused | None
) -> dt.DeletableTopicResult | None:
    """The answer for a topic that this client may not delete, or that is not there; None: it may.

    `fresh`: whether a topic that is not in the state is not there. `off`: what is said while nobody deletes.
    """
    if row.topic_id != NIL_ID:
        topic = ctx.state.topics_by_id.get(row.topic_id)
        if topic is None:
            return _answer(row.name, row, off or NO_SUCH_ID)
        name, there = topic.name, True
    else:
        name, there = row.name or "", row.name in ctx.state.topics or not fresh
    if ctx.may(needs.DELETE_TOPICS if there else _DELETE_QUIETLY, name):
        return None
    if not ctx.may(needs.DELETE_TOPICS_NAMED, name):
        return _answer(row.name, row, _NO_DELETE)
    return _answer(name, row, _NO_DELETE if there else off or NO_SUCH_NAME)


def _answer(name: str | None, row: dt.DeleteTopicState, refused: Refused) -> dt.DeletableTopicResult:
    return dt.DeletableTopicResult(name, row.topic_id, refused.code, refused.message)


GUARDS: dict[int, Guard] = {
    2: Split(
        lo,
        "topics",
        "topics",
        lambda row: needs.LIST_OFFSETS,
        lambda row: str(row.name),
        _offsets,
        lo.ListOffsetsResponse,
        ("partitions",),
    ),
    19: _create_topics,
    20: _delete_topics,
    21: Split(
        dr,
        "topics",
        "topics",
        lambda row: needs.DELETE_RECORDS,
        lambda row: str(row.name),
        _deleted_records,
        dr.DeleteRecordsResponse,
        ("partitions",),
    ),
    23: Split(
        ole,
        "topics",
        "topics",
        lambda row: needs.LEADER_EPOCH,
        lambda row: str(row.topic),
        _epochs,
        ole.OffsetForLeaderEpochResponse,
        ("partitions",),
        free=lambda ctx: ctx.allows(needs.LEADER_EPOCH_CLUSTER),
    ),
    37: _create_partitions,
    61: Split(
        dp,
        "topics",
        "topics",
        lambda row: needs.DESCRIBE_PRODUCERS,
        lambda row: str(row.name),
        _producers,
        dp.DescribeProducersResponse,
        ("partitions", "active_producers"),
    ),
}
