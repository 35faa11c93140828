"""Produce: store record batches.

Versions 3 to 13; 0 to 2 are advertised because older librdkafka would otherwise stop compressing, and
answered with UNSUPPORTED_VERSION. From 13 topics are named by id.
Behaviour: acknowledged when stored and ordered, whatever acks says: acks=1 is as safe as acks=all. Of a
transactional producer: from version 12 on (transactions v2) a batch adds its partition to the transaction;
older ones need AddPartitionsToTxn before. acks=0 gets no answer; an error then closes the connection, also
one that comes late (a sequence out of order, a store or a log that fails), which is all that such a client
can notice.
Deviations: batches are kept as sent; the maximum timestamp in a header is trusted; NOT_ENOUGH_REPLICAS
stands for a log or store that cannot be reached (nothing written), REQUEST_TIMED_OUT for an unknown
outcome. Records that break rules of a topic with the policy `quarantine` leave holes, of which the producer
is not told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from agent.kafka.authority.needs import PRODUCE, PRODUCE_ID
from agent.kafka.context import Context
from agent.kafka.handlers.lookup import find_partition, find_topic, unknown_code
from agent.kafka.handlers.quarantines import judged_apart
from agent.kafka.handlers.schemas import require_current, require_schemas
from agent.kafka.produce import traced
from agent.kafka.produce.admission import Rejected, TopicRules, admit, topic_rules
from agent.kafka.produce.admitted import Admitted
from agent.kafka.produce.buffer import Offered, Outcome
from agent.kafka.produce.driver import JUDGE_AGAIN
from agent.kafka.produce.firsts import Named
from agent.kafka.produce.keys import require_keys
from agent.kafka.produce.obeyed import outside
from agent.kafka.produce.records import looked_at, require_records
from agent.kafka.produce.times import bad_times
from agent.kafka.transactions.requests import NOT_YET
from agent.net.wire.errors import WireError
from agent.net.wire.generated.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from agent.telemetry.tracing import current
from coordination.kafka_codes import RETRIABLE, Code
from coordination.state.levels import TRANSACTIONS
from coordination.state.redacting import policy_of
from coordination.state.topics import TOPIC_NAME_LENGTH_MAX
from coordination.state.transaction_batches import EXPLICIT, IMPLICIT
from coordination.state.types import Partition, Topic
from coordination.topic_configs import QUARANTINE
from objectstore.batch import CorruptBatch, peek, with_append_time

KEY = 0
VERSIONS = (0, 13)
VERSION_SERVED_MIN = 3
TOPIC_IDS_SINCE = 13
ABORTABLE_KNOWN_SINCE, V2_SINCE = 11, 12  # TRANSACTION_ABORTABLE; transactions v2 (KIP-890)
ACKS = (-1, 0, 1)
KEEPS_LOG_START = (
    Code.INVALID_RECORD,
    Code.INVALID_TIMESTAMP,
    Code.INVALID_PRODUCER_EPOCH,
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Code.UNKNOWN_SERVER_ERROR,
)

NOT_REFUSED = (Code.NOT_ENOUGH_REPLICAS, Code.NOT_LEADER_OR_FOLLOWER, Code.REQUEST_TIMED_OUT)
"""Outcomes that say nothing against the records: the producer sends them again."""


class Unacknowledged(WireError):
    """A Produce with acks=0 failed: the connection is closed, as Kafka does."""


async def handle(ctx: Context, request: ProduceRequest, version: int) -> ProduceResponse | None:
    """Admit in the connection's order, answer when every batch has its outcome."""
    refusal = _refusal(ctx, request, version)
    if refusal is not None:
        if refusal[0] is Code.NOT_LEADER_OR_FOLLOWER:
            _note_refused(ctx, request, version)
        response = ProduceResponse(responses=[_refuse_topic(topic, *refusal) for topic in request.topic_data])
        return _answer(request, response)
    response, outcomes, admitted = await _admit_in_order(ctx, request, version)
    if ctx.services.trail.tells_access:
        ctx.services.trail.accessed(ctx.actor, "Write", (each.topic.name for each in admitted.partitions))
    if outcomes is not None:
        if request.acks == 0:
            _settle_later(ctx, version, response, admitted, outcomes)
        else:
            await _await_outcomes(ctx, request, version, admitted, outcomes)
    return _answer(request, response)


def _refusal(ctx: Context, request: ProduceRequest, version: int) -> tuple[Code, str] | None:
    if version < VERSION_SERVED_MIN:
        return Code.UNSUPPORTED_VERSION, f"Produce version {version}: 3 or newer is needed"
    if request.acks not in ACKS:
        return Code.INVALID_REQUIRED_ACKS, f"acks={request.acks}: -1, 0 and 1 are possible"
    if request.transactional_id is not None and ctx.state.feature_level < TRANSACTIONS:
        return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NOT_YET  # as versions that know none
    if not _may_be_of(ctx, request):
        return PRODUCE_ID.code, "Transactional Id authorization failed."
    if ctx.away():  # nothing was written: clients look who leads now, and send again there
        return Code.NOT_LEADER_OR_FOLLOWER, "The agent is leaving or not well: send again to another."
    return None


def _may_be_of(ctx: Context, request: ProduceRequest) -> bool:
    """Whether the client may write for the transactional id; asked where a batch is transactional."""
    if not request.transactional_id or ctx.services.authority.off:
        return True
    for topic_data in request.topic_data:
        for data in topic_data.partition_data:
            with suppress(CorruptBatch):
                if data.records is not None and peek(data.records).transactional:
                    return ctx.may(PRODUCE_ID, request.transactional_id)
    return True


def _unknown(ctx: Context, request: ProduceRequest, version: int) -> bool:
    """Whether a topic is not known here: it may have been created through another agent."""
    state, by_id = ctx.state, version >= TOPIC_IDS_SINCE
    for topic_data in request.topic_data:
        if find_topic(state, topic_data.name, topic_data.topic_id, by_id) is None:
            return True
    return False


async def _admit_in_order(
    ctx: Context, request: ProduceRequest, version: int
) -> tuple[ProduceResponse, asyncio.Future[list[Outcome]] | None, Admitted]:
    """Checks, then room in the buffer, then the buffer; never overtaken by the connection's next request.

    Nor does it overtake what failed since it came and is going to be sent again.
    """
    admitted = Admitted()
    transaction = 0
    if request.transactional_id:
        transaction = IMPLICIT if version >= V2_SINCE else EXPLICIT
    came = _failures(ctx)
    async with ctx.client.admission():
        if _unknown(ctx, request, version):
            await ctx.barrier()
        response = ProduceResponse()
        for topic_data in request.topic_data:
            response.responses.append(await _admit_topic(ctx, topic_data, version, transaction, admitted))
        if request.transactional_id:
            await _refuse_foreign(ctx, request.transactional_id, admitted)
        if not admitted.offered:
            return response, None, admitted
        refusal = await _room(ctx, request, admitted, came)
        if refusal is not None:
            ctx.client.failures += 1
            for at, answer in enumerate(admitted.answers):
                _fail(answer, Code.NOT_ENOUGH_REPLICAS, refusal)
                _waits(ctx, admitted, at)
            return response, None, admitted
        ctx.client.firsts.note(admitted.firsts(), came, asyncio.get_running_loop().time())
        if (trace := current.get()) is not None:
            traced.note(trace, admitted.partitions, admitted.offered)
        outcomes = ctx.services.produce.append(
            ctx.client.connection, admitted.offered, ctx.state.revision, admitted.size
        )
        return response, outcomes, admitted


def _note_refused(ctx: Context, request: ProduceRequest, version: int) -> None:
    """Remember a request's first batch of each producer: this agent refuses it, as it does not serve now.

    Its client sends the request again. What the client had sent behind it may arrive before that, when this
    agent serves again, and must not be stored first.
    """
    ctx.client.failures += 1
    for topic_data in request.topic_data:
        for data in topic_data.partition_data:
            _wait_for(ctx, _named(topic_data, data, version), data)


def _named(topic_data: TopicProduceData, data: PartitionProduceData, version: int) -> Named:
    return topic_data.topic_id if version >= TOPIC_IDS_SINCE else topic_data.name, data.index


def _wait_for(ctx: Context, named: Named, data: PartitionProduceData) -> None:
    """Its client sends the batch again: nothing behind it that this producer has on its way comes first."""
    if (
        data.records is not None and len(named[0]) <= TOPIC_NAME_LENGTH_MAX
    ):  # else there never is such a topic
        with suppress(CorruptBatch):
            ctx.client.firsts.refuse(named, peek(data.records), asyncio.get_running_loop().time())


def _waits(ctx: Context, admitted: Admitted, at: int) -> None:
    """Likewise of one that was admitted."""
    header, now_s = admitted.offered[at].header, asyncio.get_running_loop().time()
    ctx.client.firsts.refuse(admitted.named[at], header, now_s)


def _failures(ctx: Context) -> tuple[int, int]:
    """Counts of what failed, here and on this connection. When they change, a request may be out of order."""
    return ctx.services.produce.failures, ctx.client.failures


def _judged_by_now(ctx: Context, offered: Sequence[Offered]) -> bool:
    """Whether the batches, and those before them, were judged by what their topics are bound to now."""
    partitions, newest = ctx.state.partitions, 0
    for each in offered:
        partition = partitions[each.handle]
        bound = partition.topic.bound_revision if partition is not None else 0
        if bound > each.judged:
            return False
        newest = max(newest, bound)
    return not newest or ctx.services.produce.judged_since(newest)


async def _room(
    ctx: Context, request: ProduceRequest, admitted: Admitted, came: tuple[int, int]
) -> str | None:
    """Take room in the buffer; why there is none for this request, or None."""
    driver, size = ctx.services.produce, admitted.size
    if _failures(ctx) == came:
        if not driver.budget.taken(size):
            try:
                async with asyncio.timeout(_seconds(ctx, request)):
                    await driver.room(size)
            except TimeoutError:
                return "The agent's produce buffer is full: send again."
        judged = _judged_by_now(ctx, admitted.offered)
        now_s = asyncio.get_running_loop().time()
        ordered = ctx.client.firsts.in_order(admitted.firsts(), came, now_s)
        if judged and ordered and _failures(ctx) == came:
            return None
        driver.budget.give(size)
        if not judged:
            return JUDGE_AGAIN
    return "An earlier write failed; nothing was written: send again."


async def _refuse_foreign(ctx: Context, name: str, admitted: Admitted) -> None:
    """Refuse transactional batches of another producer than the one that the transactional id belongs to.

    They would become part of that other producer's transaction.
    """

    def foreign() -> list[int]:
        known = ctx.state.transactions.get(name)
        own = () if known is None else (known.producer_id, known.previous[0])
        return [
            at
            for at, batch in enumerate(admitted.offered)
            if batch.transaction and batch.header.producer_id not in own
        ]

    fresh = not foreign() or await ctx.barrier()  # the id may have come by another agent
    for at in reversed(foreign()):
        producer = admitted.offered[at].header.producer_id
        if fresh:
            why = f"Producer id {producer} is not that of the transactional id."
            _fail(admitted.answers[at], Code.INVALID_PRODUCER_ID_MAPPING, why)
            _note(ctx, admitted.partitions[at], Code.INVALID_PRODUCER_ID_MAPPING, why)
        else:
            _fail(admitted.answers[at], Code.NOT_ENOUGH_REPLICAS, "The log cannot be reached: send again.")
            _waits(ctx, admitted, at)
        admitted.drop(at)


async def _admit_topic(
    ctx: Context, topic_data: TopicProduceData, version: int, transaction: int, admitted: Admitted
) -> TopicProduceResponse:
    by_id = version >= TOPIC_IDS_SINCE
    response = TopicProduceResponse(name=topic_data.name, topic_id=topic_data.topic_id)
    state = ctx.state
    judged, topic = state.revision, find_topic(state, topic_data.name, topic_data.topic_id, by_id)
    name = topic.name if topic is not None else topic_data.name
    if (topic is not None or not by_id) and not ctx.may(PRODUCE, name):
        return _refuse_topic(topic_data, PRODUCE.code, None)
    rules = topic_rules(topic.configs, state.cluster_configs) if topic is not None else None
    for data in topic_data.partition_data:
        answer = PartitionProduceResponse(index=data.index, base_offset=-1)
        response.partition_responses.append(answer)
        partition, named = find_partition(topic, data.index), _named(topic_data, data, version)
        if topic is None or partition is None or rules is None:
            _fail(answer, unknown_code(by_id and topic is None), "The topic or partition does not exist.")
            _wait_for(ctx, named, data)
            continue
        try:
            offered = await _admit_batch(ctx, topic, partition, data, rules, version, transaction, judged)
        except Rejected as rejected:
            _reject(answer, rejected, partition.log_start)
            _note(ctx, partition, rejected.code, rejected.message)
            if rejected.code in RETRIABLE:
                _wait_for(ctx, named, data)
            continue
        if rules.append_time:
            answer.log_append_time_ms = offered.header.max_timestamp
        admitted.add(offered, answer, partition, named)
    return response


async def _admit_batch(
    ctx: Context,
    topic: Topic,
    partition: Partition,
    data: PartitionProduceData,
    rules: TopicRules,
    version: int,
    transaction: int,
    judged: int,
) -> Offered:
    """The batch as it will be stored. Raises Rejected."""
    now_ms = ctx.services.replica.wall_ms()
    try:
        header = admit(data.records, rules, version, now_ms, transactional=transaction > 0)
    except Rejected as rejected:
        if rejected.code is Code.INVALID_TIMESTAMP and data.records is not None:
            rejected.bad_records = await bad_times(data.records, rules, now_ms)
        raise
    assert data.records is not None
    if not looked_at(data.records, header, rules):
        await require_records(data.records, header)
    if rules.keys_required:
        await require_keys(data.records, topic.name, partition.index)
    part = transaction * header.transactional if transaction else 0
    offered = Offered(partition.handle, data.records, header, part, judged)
    if rules.own or topic.value_schema_id is not None or topic.key_schema_id is not None:
        offered = await _judged(ctx, partition, offered, rules, now_ms)
    if rules.append_time:
        stamped = with_append_time(offered.data, now_ms)
        return offered._replace(data=stamped, header=peek(stamped))
    return offered


async def _judged(
    ctx: Context, partition: Partition, offered: Offered, rules: TopicRules, now_ms: int
) -> Offered:
    """The batch of a topic that is bound or has rules of its own, without what goes to its quarantine.

    Raises Rejected. Nobody is refused by a binding or a policy that was over when his records came.
    """
    bound = partition.topic.bound_revision
    try:
        if QUARANTINE in rules.policies.values():
            return await judged_apart(ctx, partition, offered, rules, now_ms)
        await require_schemas(ctx, partition, memoryview(offered.data), offered.header, rules)
    except Rejected as rejected:
        if rejected.code is Code.INVALID_RECORD:
            await require_current(ctx, partition.topic, bound)
        raise
    return offered


class _Waiting:
    """Who waits for the outcomes of a request; beyond its deadline there are none."""

    __slots__ = ("_pending",)

    def __init__(self, pending: asyncio.Future[list[Outcome]]) -> None:
        self._pending = pending

    def due(self) -> None:
        """See Deadlines."""
        if not self._pending.done():
            self._pending.set_result([])


async def _await_outcomes(
    ctx: Context,
    request: ProduceRequest,
    version: int,
    admitted: Admitted,
    pending: asyncio.Future[list[Outcome]],
) -> None:
    """Whoever is cancelled, or waits no longer, changes nothing for the driver, which looks at `pending`."""
    waiting, deadlines = _Waiting(pending), ctx.services.deadlines
    tick = deadlines.add(waiting, asyncio.get_running_loop().time() + _seconds(ctx, request))
    try:
        outcomes = await pending
    finally:
        deadlines.remove(waiting, tick)
    if not outcomes:
        message = "The batch was not acknowledged in time; it may have been written."
        outcomes = [Outcome(Code.REQUEST_TIMED_OUT, message=message)] * len(admitted.answers)
    _settle(ctx, version, admitted, outcomes)


def _settle_later(
    ctx: Context,
    version: int,
    response: ProduceResponse,
    admitted: Admitted,
    pending: asyncio.Future[list[Outcome]],
) -> None:
    """Of acks=0: what comes next waits for the outcomes (rule 17), the place of the answer does not.

    Else no more than limits.requests_in_flight_max requests of a connection would share a flush. A failure
    ends the connection, and nothing behind it on the connection begins.
    """

    def settle(done: asyncio.Future[list[Outcome]]) -> None:
        with ctx.over_when_failed():
            _settle(ctx, version, admitted, done.result())
            _require_success(response)

    pending.add_done_callback(settle)
    ctx.client.turns.hold(pending)


def _settle(ctx: Context, version: int, admitted: Admitted, outcomes: Sequence[Outcome]) -> None:
    """Fill in the answers; what is stored is counted, what is refused leaves a trace."""
    stored = records = 0
    metrics = ctx.services.metrics
    rows = zip(admitted.answers, admitted.partitions, admitted.offered, outcomes, strict=True)
    for at, (answer, partition, offered, outcome) in enumerate(rows):
        if outcome.code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER:
            others = len(ctx.state.live) > 1  # who is fenced stores nothing any more
            outcome = ctx.services.gaps.judged(partition, offered.header, outcome, others=others)
        if outcome.code:
            code = outcome.code
            if code is Code.TRANSACTION_ABORTABLE and version < ABORTABLE_KNOWN_SINCE:
                code = Code.INVALID_TXN_STATE
            _fail(answer, code, outcome.message)
            if outcome.code in NOT_REFUSED:
                _waits(ctx, admitted, at)
            else:
                _note(ctx, partition, outcome.code, outcome.message)
            if outcome.code in KEEPS_LOG_START:
                answer.log_start_offset = partition.log_start
            continue
        ctx.services.gaps.stored(partition, offered.header)
        answer.base_offset = outcome.base_offset
        answer.log_start_offset = partition.log_start
        stored += len(offered.data)
        records += offered.header.record_count
        metrics.traffic.stored(partition.topic.name, len(offered.data), offered.header.record_count)
    metrics.produce_bytes.inc(stored)
    metrics.produce_records.inc(records)


def _note(ctx: Context, partition: Partition, code: Code, message: str | None) -> None:
    """A refused batch leaves a trace (agent/telemetry/refusals.py)."""
    client = (ctx.client_id, ctx.client.host)
    told = outside(message or "", quoted=policy_of(ctx.state, partition.topic) is None)
    ctx.services.refusals.note(partition.topic.name, partition.index, code.name, told, *client)


def _seconds(ctx: Context, request: ProduceRequest) -> float:
    """How long a request may take: the client's bound counts for acks=all, as in Kafka."""
    own = ctx.services.config.produce.commit_timeout_ms
    return (min(own, max(request.timeout_ms, 1)) if request.acks == -1 else own) / 1000


def _answer(request: ProduceRequest, response: ProduceResponse) -> ProduceResponse | None:
    if request.acks != 0:
        return response
    _require_success(response)
    return None


def _require_success(response: ProduceResponse) -> None:
    """Raise Unacknowledged for the first error that there is: it is told in no other way."""
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                raise Unacknowledged(f"Produce with acks=0: {answer.error_message or answer.error_code}")


def _refuse_topic(topic_data: TopicProduceData, code: Code, message: str | None) -> TopicProduceResponse:
    response = TopicProduceResponse(name=topic_data.name, topic_id=topic_data.topic_id)
    for data in topic_data.partition_data:
        answer = PartitionProduceResponse(index=data.index)
        _fail(answer, code, message)
        response.partition_responses.append(answer)
    return response


def _fail(answer: PartitionProduceResponse, code: Code, message: str | None) -> None:
    """An error carries -1 for base offset, append time and log start (KAFKA-13574)."""
    answer.error_code = code
    answer.error_message = message
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1


def _reject(answer: PartitionProduceResponse, rejected: Rejected, log_start: int) -> None:
    _fail(answer, rejected.code, rejected.message)
    if rejected.code in KEEPS_LOG_START:
        answer.log_start_offset = log_start
    answer.record_errors = [
        BatchIndexAndErrorMessage(index, reason) for index, reason in rejected.bad_records
    ]
