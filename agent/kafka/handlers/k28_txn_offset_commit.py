"""TxnOffsetCommit: commit positions of a group as part of a transaction (KIP-98, KIP-447).

Versions 0 to 5; 5 is transactions v2: the group is added to the transaction on the way.
Behaviour: the positions count once the transaction is committed, never before. Who may commit is decided at
apply by member and generation, where a version names them. A request of v1 that may be older than what is
there closes its connection, or is COORDINATOR_LOAD_IN_PROGRESS where that did not ask for ApiVersions first;
where that cannot be told, the transaction can only be aborted, by the code that
clients of the version take so: TRANSACTION_ABORTABLE, in version 3 ILLEGAL_GENERATION, before it
GROUP_AUTHORIZATION_FAILED (docs/transactions.md). A request that names no partition is decided at apply, too.
Deviations: what is late is taken by Kafka; as AddPartitionsToTxn: no CONCURRENT_TRANSACTIONS, and a code to
recover from after a timeout; in a rebalance as OffsetCommit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.kafka.context import Context
from agent.kafka.handlers.lookup import find_partition
from agent.kafka.transactions.requests import decide, fence_of
from agent.net.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from coordination import broker_configs
from coordination.commands import CommitTransactionOffsets
from coordination.kafka_codes import Code
from coordination.state.types import Refused, Result

KEY = 28
VERSIONS = (0, 5)
V2_SINCE, ABORTABLE_KNOWN_SINCE, MEMBERS_SINCE = 5, 4, 3


@dataclass(slots=True)
class _Rows:
    """The answer with errors where a partition does not exist; the others by handle, to be proposed."""

    answer: TxnOffsetCommitResponse = field(default_factory=TxnOffsetCommitResponse)
    known: list[tuple[int, TxnOffsetCommitRequestPartition, TxnOffsetCommitResponsePartition]] = field(
        default_factory=list
    )
    unknown: bool = False


async def handle(ctx: Context, request: TxnOffsetCommitRequest, version: int) -> TxnOffsetCommitResponse:
    """A code per partition, in the request's order."""
    rows = _sort(ctx, request)
    if rows.unknown and await ctx.barrier():  # a topic that was made a moment ago
        rows = _sort(ctx, request)
    code = ctx.services.groups.refusal(request.group_id) if request.group_id else Code.INVALID_GROUP_ID
    if not request.transactional_id:
        code = Code.INVALID_REQUEST
    nothing_left = bool(request.topics) and not rows.known  # named were some, none of which exists
    if code is not None or nothing_left:
        for _, _, row in rows.known:
            row.error_code = code or Code.NONE
        return rows.answer
    command, fitting = _command(ctx, request, version, rows)
    _fill(rows, fitting, await decide(ctx, command, told=bool(rows.known)), version)
    return rows.answer


def _sort(ctx: Context, request: TxnOffsetCommitRequest) -> _Rows:
    rows = _Rows()
    for topic in request.topics:
        part = TxnOffsetCommitResponseTopic(name=topic.name)
        rows.answer.topics.append(part)
        for asked in topic.partitions:
            row = TxnOffsetCommitResponsePartition(asked.partition_index)
            part.partitions.append(row)
            partition = find_partition(ctx.state.topics.get(topic.name), asked.partition_index)
            if partition is None:
                rows.unknown = True
                row.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
            else:
                rows.known.append((partition.handle, asked, row))
    return rows


def _command(
    ctx: Context, request: TxnOffsetCommitRequest, version: int, rows: _Rows
) -> tuple[CommitTransactionOffsets, list[TxnOffsetCommitResponsePartition]]:
    """The command, and the rows that it is about: metadata that is too long stays behind."""
    most = broker_configs.integer(ctx.state.cluster_configs, "offset.metadata.max.bytes")
    command = CommitTransactionOffsets(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        group=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        adds_group=version >= V2_SINCE,
        fence=fence_of(ctx) if version < V2_SINCE else None,
        abortable_known=version >= ABORTABLE_KNOWN_SINCE,
    )
    fitting = []
    for handle, asked, row in rows.known:
        if len(asked.committed_metadata or "") > most:
            row.error_code = Code.OFFSET_METADATA_TOO_LARGE
            continue
        fitting.append(row)
        command.partition.append(handle)
        command.offset.append(asked.committed_offset)
        command.leader_epoch.append(asked.committed_leader_epoch)
        command.metadata.append(asked.committed_metadata or "")
    return command, fitting


def _fill(rows: _Rows, fitting: list[TxnOffsetCommitResponsePartition], result: Result, version: int) -> None:
    if isinstance(result, Refused):
        code = result.code
        if code is Code.TRANSACTION_ABORTABLE and version < ABORTABLE_KNOWN_SINCE:
            code = Code.ILLEGAL_GENERATION if version >= MEMBERS_SINCE else Code.GROUP_AUTHORIZATION_FAILED
        for _, _, row in rows.known:
            row.error_code = code
        return
    codes = getattr(result, "value", None)
    if isinstance(codes, tuple):
        for row, code in zip(fitting, codes, strict=True):
            row.error_code = code
