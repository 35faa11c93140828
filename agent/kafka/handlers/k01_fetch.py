"""Fetch: read record batches, waiting for them if asked.

Versions 4 to 18; from 13 topics are named by id.
Behaviour: long polls wake when a partition is appended to, and none waits for more than its answer can hold;
OFFSET_OUT_OF_RANGE and unknown topics are answered only after a read barrier; limits cut at batch ends, the
first batch is always whole. A client that another agent should serve is told so by the preferred read
replica, from version 11 on (KIP-392). A leaving agent answers NOT_LEADER_OR_FOLLOWER, so that clients look at
once who leads now. Committed records are read up to the last stable offset, with the aborted transactions
among them; control batches are sent like others. Fetch sessions from version 7 on (KIP-227): a request names
what is new, the answer has the partitions that have something to tell: records, another high watermark, log
start or last stable offset, a preferred replica, an error. Who got records is served last the next time.
Deviations: aborted records are gone once they were merged, for readers of uncommitted records too. A session
belongs to the principal that began it. A replica id is ignored: there are no follower replicas. Of a quota's
bytes an answer counts its records and 64 for each partition, and what goes beyond the quota is sent and then
waited for, where Kafka reads it and sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.cluster.hints import NO_BROKER
from agent.kafka.context import Context
from agent.kafka.fetch.driver import Fetched, FetchRequest
from agent.kafka.fetch.exchange import Exchange, opened
from agent.kafka.fetch.planner import PartitionView, Wanted, aborted_in
from agent.kafka.fetch.redirect import WHEREVER, elsewhere, follows
from agent.kafka.fetch.rewriting import Reader
from agent.kafka.fetch.sessions import NOWHERE, READ_COMMITTED, Row
from agent.kafka.handlers.fetch_rights import Place, asked_again, empty, refusals
from agent.kafka.handlers.lookup import find_partition, find_topic, unknown_code
from agent.kafka.repeats import nothing, serves
from agent.net.wire.generated.fetch import AbortedTransaction, FetchResponse, PartitionData
from agent.net.wire.generated.fetch import FetchRequest as Request
from coordination.kafka_codes import Code
from coordination.state.quotas import FETCH as FETCH_RATE

KEY = 1
VERSIONS = (4, 18)
TOPIC_IDS_SINCE = 13
PREFERRED_REPLICA_SINCE = 11
PARTITION_BYTES = 64  # about what an answer says of a partition, for the quota

Answers = list[tuple[Row, PartitionData]]


class Told(NamedTuple):
    """What is said of each partition that is due, and what was read for it. `plain`: by that alone."""

    answers: Answers
    fetched: list[Fetched]
    plain: bool


async def handle(ctx: Context, request: Request, version: int) -> FetchResponse:
    """Answer with what its session does not know yet, or with every partition asked for, in their order."""
    by_id = version >= TOPIC_IDS_SINCE
    services = ctx.services
    exchange = opened(services.sessions, request, by_id, ctx.client.principal, ctx.state.partitions)
    if isinstance(exchange, Code):
        return FetchResponse(error_code=exchange)
    if ctx.charge is not None and not ctx.charge.may_fetch():
        # nothing now, as in Kafka, and the connection is not read for a while
        return FetchResponse(session_id=exchange.session_id)
    off = services.authority.off
    refused = {} if off else await refusals(ctx, exchange.every(), by_id)
    if refused and all(_place(row, by_id) in refused for row in exchange.every()):
        return exchange.close(_refused(exchange, refused, by_id))
    if ctx.away() and not services.standing.doubtful:
        return exchange.dismiss(_dismissed(ctx, request, exchange, refused, version))
    asked_at = ctx.state.acls.revision
    told = await _told(ctx, request, exchange, refused, version)
    if told is None:
        return exchange.dismiss(_dismissed(ctx, request, exchange, refused, version))
    if not off and ctx.state.acls.revision != asked_at:
        told = told._replace(answers=asked_again(ctx, told.answers, by_id), plain=False)
    response = exchange.close([*told.answers, *_refused(exchange, refused, by_id)])
    if not refused and told.plain and not response.error_code:
        ctx.nothing = nothing(ctx, request, version, exchange, told.fetched, response)
    return response


def _place(row: Row, by_id: bool) -> Place:
    return row.topic_id if by_id else row.topic


def _dismissed(
    ctx: Context, request: Request, exchange: Exchange, refused: Mapping[Place, Code], version: int
) -> Answers:
    """What clients are told that shall read elsewhere.

    Those that follow are told where, as of a preferred replica (KIP-392), and go there at once. Told an error
    they rest first (librdkafka 500 ms), and librdkafka, where it takes this agent for a preferred replica,
    stays until it is listed no more. A client that is here still is told the error, as all others are.
    """
    exchange.rouse()
    asked = _Asked(ctx, exchange, refused, {}, version >= TOPIC_IDS_SINCE)
    wanted = asked.resolve()
    node_of: Mapping[int, int] = {}
    if version >= PREFERRED_REPLICA_SINCE and follows(request.rack_id, ctx.client.software):
        node_of = _elsewhere(ctx, request, wanted, ctx.client.told)
    told: Answers = []
    for row, want in zip(asked.rows, wanted, strict=True):
        data = empty(row.index, Code.NOT_LEADER_OR_FOLLOWER)
        if want.partition is not None and row.handle in node_of:
            data = _pointed(row, want.partition, node_of[row.handle])
        told.append((row, data))
    return [*told, *_refused(exchange, refused, version >= TOPIC_IDS_SINCE)]


def _pointed(row: Row, partition: PartitionView, node: int) -> PartitionData:
    """To be read from that node."""
    return PartitionData(
        partition_index=row.index,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable,
        log_start_offset=partition.log_start,
        preferred_read_replica=node,
        records=[],
    )


def _refused(exchange: Exchange, refused: Mapping[Place, Code], by_id: bool) -> Answers:
    """The rows of topics that the client may not read."""
    if not refused:
        return []
    found = ((row, refused.get(_place(row, by_id))) for row in exchange.every())
    return [(row, empty(row.index, code)) for row, code in found if code is not None]


class _Asked:
    """What is planned for, looked up anew for each plan. `rows` are the newest plan's, in its order."""

    def __init__(
        self,
        ctx: Context,
        exchange: Exchange,
        refused: Mapping[Place, Code],
        away: Mapping[int, int],
        by_id: bool,
    ) -> None:
        self._ctx, self._exchange, self._refused = ctx, exchange, refused
        self._away, self._by_id = away, by_id
        self.rows: list[Row] = []

    def resolve(self) -> list[Wanted]:
        """Each partition as asked for; one that is read elsewhere as if its reader were at the end."""
        state, exchange, by_id, away = self._ctx.state, self._exchange, self._by_id, self._away
        rows = exchange.due()
        if self._refused:
            rows = [row for row in rows if _place(row, by_id) not in self._refused]
        self.rows = rows
        wanted: list[Wanted] = []
        named, topic, code = None, None, Code.NONE
        for row in rows:
            place = row.topic_id if by_id else row.topic
            if place != named:
                named, topic = place, find_topic(state, row.topic, row.topic_id, by_id)
                code = unknown_code(by_id and topic is None)
            partition, offset = find_partition(topic, row.index), row.offset
            handle = NOWHERE if partition is None else partition.handle
            if handle != row.handle:
                exchange.place(row, handle)
            if partition is not None and handle in away:
                offset = partition.high_watermark
            ahead = row.leader_epoch > state.leader_epoch
            wanted.append(Wanted(partition, offset, row.bytes_max, ahead, code))
        return wanted


async def _told(
    ctx: Context, request: Request, exchange: Exchange, refused: Mapping[Place, Code], version: int
) -> Told | None:
    """What is read of each partition that is due; None where there is nothing and others shall be asked."""
    services = ctx.services
    by_id = version >= TOPIC_IDS_SINCE
    away = _sent_away(ctx, request, exchange, version)
    asked = _Asked(ctx, exchange, refused, away, by_id)
    read_committed = request.isolation_level == READ_COMMITTED
    fetch = FetchRequest(
        resolve=asked.resolve,
        wait_s=0 if away else max(request.max_wait_ms, 0) / 1000,
        bytes_min=request.min_bytes,
        bytes_max=request.max_bytes,
        read_committed=read_committed,
        quiet=lambda: exchange.quiet,
        standing=exchange.standing,
        waited_s=ctx.waited_s,
    )
    fetched = await services.fetch.fetch(fetch)
    if services.trail.tells_access:
        services.trail.accessed(ctx.actor, "Read", _read(ctx, fetched))
    await _rewrite(ctx, fetched, request.max_bytes)
    empty_handed = not any(each.records for each in fetched)
    # What it has it gives, and waits for no more.
    if empty_handed and ctx.away() and not services.standing.leaving:
        return None
    _count(ctx, fetched)
    return Told(_answers(asked.rows, fetched, away, read_committed), fetched, not away)


def _count(ctx: Context, fetched: list[Fetched]) -> None:
    """What is sent, for the figures and the client's quota."""
    sent, traffic = 0, ctx.services.metrics.traffic
    for each in fetched:
        partition, size = each.planned.wanted.partition, sum(map(len, each.records))
        if size and partition is not None:
            sent += size
            traffic.sent(partition.topic.name, size)
    if ctx.charge is not None:
        ctx.charge.take(FETCH_RATE, sent + PARTITION_BYTES * len(fetched))
    ctx.services.metrics.fetch_bytes.inc(sent)


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


def _sent_away(ctx: Context, request: Request, exchange: Exchange, version: int) -> Mapping[int, int]:
    """Partition handle → the node that the client should read it from instead."""
    if version < PREFERRED_REPLICA_SINCE:
        return {}
    if serves(ctx.services, ctx.client, request.rack_id or ctx.zone, request.rack_id):
        return {}
    exchange.rouse()
    wanted = _Asked(ctx, exchange, {}, {}, version >= TOPIC_IDS_SINCE).resolve()
    return _elsewhere(ctx, request, wanted, WHEREVER)


def _elsewhere(ctx: Context, request: Request, wanted: Sequence[Wanted], told: float) -> Mapping[int, int]:
    """Partition handle → the node that this connection is sent to for it now; `told` as in `elsewhere`."""
    services = ctx.services
    zone = services.hints.known(request.rack_id or ctx.zone)
    own = ctx.state.brokers.get(services.replica.node_id)
    handles = [want.partition.handle for want in wanted if want.partition is not None]
    client, now = ctx.client, services.clock.monotonic()
    return elsewhere(services.hints, own, zone, handles, client.sent_away, now, told)


def _answers(
    rows: Sequence[Row], fetched: Sequence[Fetched], away: Mapping[int, int], read_committed: bool
) -> Answers:
    found: Answers = []
    for row, answer in zip(rows, fetched, strict=True):
        planned = answer.planned
        data = PartitionData(
            partition_index=row.index,
            error_code=planned.code,
            high_watermark=planned.high_watermark,
            last_stable_offset=planned.last_stable,
            log_start_offset=planned.log_start,
            aborted_transactions=_aborted(answer) if read_committed else None,
            preferred_read_replica=away.get(row.handle, NO_BROKER) if away else NO_BROKER,
            records=answer.records,
        )
        found.append((row, data))
    return found


def _aborted(answer: Fetched) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(each.producer_id, each.first_offset)
        for each in aborted_in(answer.planned, answer.records)
    ]
