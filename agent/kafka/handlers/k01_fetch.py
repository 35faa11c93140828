"""Fetch: read record batches, waiting for them if asked.

Versions 4 to 18; from 13 topics are named by id.
Behaviour: long polls wake when a partition is appended to, and none waits for more than its answer can hold;
OFFSET_OUT_OF_RANGE and unknown topics are answered only after a read barrier; limits cut at batch ends, the
first batch is always whole. A client that another agent should serve is told so by the preferred read
replica, from version 11 on (KIP-392). A leaving agent answers NOT_LEADER_OR_FOLLOWER, so that clients look at
once who leads now. Committed records are read up to the last stable offset, with the aborted transactions
among them; control batches are sent like others.
Deviations: aborted records are gone once they were merged, for readers of uncommitted records too. There
are no fetch sessions: every answer has session id 0, which clients accept (KIP-227); every partition is
answered every time. A replica id is ignored: there are no follower replicas. Of a quota's bytes an answer
counts its records and 64 for each partition, and what goes beyond the quota is sent and then waited for,
where Kafka reads it and sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.cluster.hints import NO_BROKER
from agent.kafka.context import Context
from agent.kafka.fetch.driver import Fetched, FetchRequest
from agent.kafka.fetch.planner import Wanted, aborted_in
from agent.kafka.fetch.redirect import elsewhere, stays, suits
from agent.kafka.fetch.rewriting import Reader
from agent.kafka.handlers.lookup import find_partition, find_topic, unknown_code
from agent.net.wire.generated.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from agent.net.wire.generated.fetch import FetchRequest as Request
from coordination.kafka_codes import Code
from coordination.state.quotas import FETCH as FETCH_RATE

KEY = 1
VERSIONS = (4, 18)
TOPIC_IDS_SINCE = 13
PREFERRED_REPLICA_SINCE = 11
READ_COMMITTED = 1
PARTITION_BYTES = 64  # about what an answer says of a partition, for the quota
FULL_FETCH_EPOCHS = (0, -1)  # KIP-227: begin a session, or none


async def handle(ctx: Context, request: Request, version: int) -> FetchResponse:
    """Answer with every partition asked for, in the request's order."""
    if request.session_id != 0 and request.session_epoch not in FULL_FETCH_EPOCHS:
        return FetchResponse(error_code=Code.FETCH_SESSION_ID_NOT_FOUND)
    if ctx.charge is not None and not ctx.charge.may_fetch():
        return FetchResponse()  # nothing now, as in Kafka, and the connection is not read for a while
    by_id = version >= TOPIC_IDS_SINCE
    standing = ctx.services.standing
    if ctx.away() and not standing.doubtful:
        return _elsewhere(request)
    away = _sent_away(ctx, request, version)
    fetch = FetchRequest(
        resolve=lambda: _resolve(ctx, request, by_id, away),
        wait_s=0 if away else max(request.max_wait_ms, 0) / 1000,
        bytes_min=request.min_bytes,
        bytes_max=request.max_bytes,
        read_committed=request.isolation_level == READ_COMMITTED,
    )
    fetched = await ctx.services.fetch.fetch(fetch)
    if ctx.services.trail.tells_access:
        ctx.services.trail.accessed(ctx.actor, "Read", _read(ctx, fetched))
    await _rewrite(ctx, fetched, request.max_bytes)
    nothing = not any(each.records for each in fetched)
    if nothing and ctx.away() and not standing.leaving:  # what it has it gives, and waits for no more
        return _elsewhere(request)
    return _response(ctx, request, fetched, away)


def _read(ctx: Context, fetched: list[Fetched]) -> list[str]:
    """Of which topics there are records."""
    read = (each.planned.wanted.partition for each in fetched if each.records)
    partitions = (ctx.state.partitions[each.handle] for each in read if each is not None)
    return [each.topic.name for each in partitions if each is not None]


async def _rewrite(ctx: Context, fetched: list[Fetched], bytes_max: int) -> None:
    """Rewrite what this client does not get as it is stored."""
    services, client = ctx.services, ctx.client
    cleared = services.rewriting.redaction.cleared(client.listener, ctx.client_id, client.principal)
    bytes_max = min(bytes_max, services.config.fetch.response_bytes_max)
    await services.rewriting.apply(fetched, Reader(client.listener, ctx.client_id, cleared, bytes_max))


def _elsewhere(request: Request) -> FetchResponse:
    response = FetchResponse()
    for topic in request.topics:
        partitions = [
            PartitionData(
                partition_index=each.partition,
                error_code=Code.NOT_LEADER_OR_FOLLOWER,
                high_watermark=-1,
                records=[],
            )
            for each in topic.partitions
        ]
        response.responses.append(
            FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions)
        )
    return response


def _sent_away(ctx: Context, request: Request, version: int) -> Mapping[int, int]:
    """Partition handle → the node that the client should read it from instead."""
    if version < PREFERRED_REPLICA_SINCE:
        return {}
    services = ctx.services
    zone = services.hints.known(request.rack_id or ctx.zone)
    own = ctx.state.brokers.get(services.replica.node_id)
    if suits(own, zone) or stays(own, request.rack_id, ctx.client.software):
        return {}
    wanted = _resolve(ctx, request, version >= TOPIC_IDS_SINCE, {})
    handles = [want.partition.handle for want in wanted if want.partition is not None]
    now = services.clock.monotonic()
    return elsewhere(services.hints, own, zone, handles, ctx.client.sent_away, now)


def _resolve(ctx: Context, request: Request, by_id: bool, away: Mapping[int, int]) -> list[Wanted]:
    """Each partition as asked for; one that is read elsewhere as if its reader were at the end."""
    state = ctx.state
    wanted: list[Wanted] = []
    for topic_data in request.topics:
        topic = find_topic(state, topic_data.topic, topic_data.topic_id, by_id)
        code = unknown_code(by_id and topic is None)
        for each in topic_data.partitions:
            partition, offset = find_partition(topic, each.partition), each.fetch_offset
            if partition is not None and partition.handle in away:
                offset = partition.high_watermark
            wanted.append(
                Wanted(partition, offset, each.partition_max_bytes, each.current_leader_epoch, code)
            )
    return wanted


def _response(
    ctx: Context, request: Request, fetched: list[Fetched], away: Mapping[int, int]
) -> FetchResponse:
    response = FetchResponse()
    read_committed = request.isolation_level == READ_COMMITTED
    answers = iter(fetched)
    sent = 0
    for topic_data in request.topics:
        topic = FetchableTopicResponse(topic=topic_data.topic, topic_id=topic_data.topic_id)
        response.responses.append(topic)
        for each in topic_data.partitions:
            answer = next(answers)
            planned = answer.planned
            partition, size = planned.wanted.partition, sum(map(len, answer.records))
            sent += size
            if size and partition is not None:
                ctx.services.metrics.traffic.sent(partition.topic.name, size)
            topic.partitions.append(
                PartitionData(
                    partition_index=each.partition,
                    error_code=planned.code,
                    high_watermark=planned.high_watermark,
                    last_stable_offset=planned.last_stable,
                    log_start_offset=planned.log_start,
                    aborted_transactions=_aborted(answer) if read_committed else None,
                    preferred_read_replica=away.get(partition.handle, NO_BROKER) if partition else NO_BROKER,
                    records=answer.records,
                )
            )
    if ctx.charge is not None:
        ctx.charge.take(FETCH_RATE, sent + PARTITION_BYTES * len(fetched))
    ctx.services.metrics.fetch_bytes.inc(sent)
    return response


def _aborted(answer: Fetched) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(each.producer_id, each.first_offset)
        for each in aborted_in(answer.planned, answer.records)
    ]
