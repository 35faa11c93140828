"""OffsetCommit: store a group's positions.

Versions 2 to 10.
Behaviour: who may commit is decided at apply (coordination/state/group_offsets.py); all commits that are
ready share one log entry. A commit that this agent took before another one stored positions of the group is
refused with NOT_COORDINATOR. Errors in Kafka's order: topics and partitions that do not exist, the group,
the length of the metadata. From version 10 on topics are named by id (KIP-848). Versions 2 to 4 may give a
retention of their own.
Deviations: where a classic group begins another rebalance before its generation has got its assignments, a
commit of that generation is REBALANCE_IN_PROGRESS until the next one has: Kafka stores it once the rebalance
has begun. Apply knows of a generation and whether it is assigned, not of a rebalance that begins.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.kafka.authority.needs import OFFSET_COMMIT, OFFSET_COMMIT_GROUP
from agent.kafka.context import Context
from agent.kafka.groups.codes import told
from agent.kafka.handlers.lookup import find_partition, find_topic, unknown_code
from agent.kafka.propose import propose_one
from agent.net.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from coordination import broker_configs
from coordination.commands import CommitOffsets
from coordination.kafka_codes import Code
from coordination.state.group_offsets import NO_EPOCH
from coordination.state.types import Refused, Result

KEY = 8
VERSIONS = (2, 10)
IDS_SINCE, MEMBER_EPOCHS_SINCE = 10, 9
AMBIGUOUS = Code.REQUEST_TIMED_OUT  # members find their coordinator again, and commit again


@dataclass(slots=True)
class _Rows:
    """The partitions of one request: what is proposed, and the answers to fill in."""

    proposed: list[tuple[int, OffsetCommitRequestPartition]] = field(default_factory=list)  # by handle
    waiting: list[OffsetCommitResponsePartition] = field(default_factory=list)
    unknown: bool = False


async def handle(ctx: Context, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
    """A code per partition, in the request's order."""
    if not ctx.may(OFFSET_COMMIT_GROUP, request.group_id):
        return _no_group(request)
    async with ctx.client.gate:  # the connection's next commit must not pass this one while it looks
        seen = ctx.state.revision
        answer, rows = _sort(ctx, request.topics, version)
        if rows.unknown and await ctx.barrier():  # a topic that was made a moment ago
            answer, rows = _sort(ctx, request.topics, version)
    if not rows.waiting:
        return answer
    refused = ctx.services.groups.refusal(request.group_id)
    if refused is None:
        await _commit(ctx, request, version, rows, seen)
    else:
        for row in rows.waiting:
            row.error_code = refused
    return answer


def _sort(
    ctx: Context, topics: list[OffsetCommitRequestTopic], version: int
) -> tuple[OffsetCommitResponse, _Rows]:
    """The answer's shape, with errors where a partition does not exist; the others' handles."""
    answer, rows = OffsetCommitResponse(), _Rows()
    by_id = version >= IDS_SINCE
    for each in topics:
        topic = find_topic(ctx.state, each.name, each.topic_id, by_id)
        part = OffsetCommitResponseTopic(name=each.name, topic_id=each.topic_id)
        answer.topics.append(part)
        name = topic.name if topic is not None else each.name
        if (topic is not None or not by_id) and not ctx.may(OFFSET_COMMIT, name):
            part.partitions = _refused(each, OFFSET_COMMIT.code)
            continue
        for asked in each.partitions:
            row = OffsetCommitResponsePartition(partition_index=asked.partition_index)
            part.partitions.append(row)
            partition = find_partition(topic, asked.partition_index)
            if partition is None:
                rows.unknown = True
                row.error_code = unknown_code(by_id and topic is None)
            else:
                rows.proposed.append((partition.handle, asked))
                rows.waiting.append(row)
    return answer, rows


def _no_group(request: OffsetCommitRequest) -> OffsetCommitResponse:
    answer = OffsetCommitResponse()
    for each in request.topics:
        rows = _refused(each, OFFSET_COMMIT_GROUP.code)
        answer.topics.append(OffsetCommitResponseTopic(each.name, each.topic_id, rows))
    return answer


def _refused(topic: OffsetCommitRequestTopic, code: Code) -> list[OffsetCommitResponsePartition]:
    return [OffsetCommitResponsePartition(each.partition_index, code) for each in topic.partitions]


async def _commit(ctx: Context, request: OffsetCommitRequest, version: int, rows: _Rows, seen: int) -> None:
    most = broker_configs.integer(ctx.state.cluster_configs, "offset.metadata.max.bytes")
    fitting: list[OffsetCommitResponsePartition] = []
    columns: list[tuple[int, int, int, str]] = []
    for (handle, asked), row in zip(rows.proposed, rows.waiting, strict=True):
        metadata = asked.committed_metadata or ""
        if len(metadata) > most:
            row.error_code = Code.OFFSET_METADATA_TOO_LARGE
        else:
            fitting.append(row)
            columns.append((handle, asked.committed_offset, asked.committed_leader_epoch, metadata))
    command = _command(request, version, columns, seen)
    result = await propose_one(ctx, command)
    _fill(rows.waiting, fitting, result)
    if not isinstance(result, Refused):
        ctx.services.metrics.offset_commits.inc(len(fitting))
        ctx.services.groups.heard(request.group_id, request.member_id)


def _command(
    request: OffsetCommitRequest, version: int, rows: list[tuple[int, int, int, str]], seen: int
) -> CommitOffsets:
    """The command for rows of handle, offset, leader epoch and metadata; columns of defaults are left out."""
    command = CommitOffsets(
        group=request.group_id,
        generation=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        member_epochs_known=version >= MEMBER_EPOCHS_SINCE,
        partition=[row[0] for row in rows],
        offset=[row[1] for row in rows],
        seen_revision=seen,
    )
    epochs, metadata = [row[2] for row in rows], [row[3] for row in rows]
    if epochs.count(NO_EPOCH) < len(rows):
        command.leader_epoch.extend(epochs)
    if any(metadata):
        command.metadata.extend(metadata)
    if version < 5 and request.retention_time_ms >= 0:
        command.retention_ms = request.retention_time_ms
    return command


def _fill(
    waiting: list[OffsetCommitResponsePartition], fitting: list[OffsetCommitResponsePartition], result: Result
) -> None:
    if isinstance(result, Refused):
        for row in waiting:
            row.error_code = told(result.code)
        return
    codes = getattr(result, "value", None)
    if isinstance(codes, tuple):
        for row, code in zip(fitting, codes, strict=True):
            row.error_code = code
