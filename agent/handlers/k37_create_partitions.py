"""CreatePartitions: grow topics.

Versions 0 to 3.
Behaviour: one answer per topic; validate_only applies the same rules without effect.
Deviations: an assignment is checked as Kafka checks it, its brokers are not remembered.
"""

from __future__ import annotations

from collections import Counter

from agent.context import Context
from agent.handlers.assignment import refusal_of_all
from agent.handlers.propose import propose_one
from agent.handlers.rehearse import rehearse
from agent.wire.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from coordination.commands import CreatePartitions
from coordination.kafka_codes import Code
from coordination.state.topics import no_increase
from coordination.state.types import Refused, Result

KEY = 37
VERSIONS = (0, 3)


async def handle(ctx: Context, request: CreatePartitionsRequest, version: int) -> CreatePartitionsResponse:
    """One answer per topic, in the request's order; one that is named twice has one."""
    await ctx.barrier()
    named = Counter(topic.name for topic in request.topics)
    response = CreatePartitionsResponse()
    for topic in {topic.name: topic for topic in request.topics}.values():
        if named[topic.name] > 1:
            result: Result = Refused(Code.INVALID_REQUEST, "Duplicate topic name.")
        else:
            result = await _decide(ctx, request, topic)
        answer = CreatePartitionsTopicResult(name=topic.name)
        if isinstance(result, Refused):
            answer.error_code, answer.error_message = result.code, result.message
        response.results.append(answer)
    return response


async def _decide(ctx: Context, request: CreatePartitionsRequest, topic: CreatePartitionsTopic) -> Result:
    known = ctx.state.topics.get(topic.name)
    if known is not None and topic.assignments is not None:
        added = topic.count - len(known.partitions)
        if added > 0 and len(topic.assignments) != added:
            return Refused(
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only {len(topic.assignments)} "
                "assignment(s) were specified.",
            )
        if added > 0:
            refused = refusal_of_all((each.broker_ids for each in topic.assignments), ctx.state.brokers)
            if refused is not None:
                return refused
    if known is not None and topic.count < 0:
        return no_increase(known, topic.count)
    command = CreatePartitions(topic=topic.name, total=max(topic.count, 0))
    if request.validate_only:
        return rehearse(ctx.state, command)
    return await propose_one(ctx, command, request.timeout_ms)
