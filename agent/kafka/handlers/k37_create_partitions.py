"""CreatePartitions: grow topics.

Versions 0 to 3.
Behaviour: one answer per topic; validate_only applies the same rules without effect. All topics of a request
grow at one point of the log, however many they are (rule 12).
Deviations: an assignment is checked as Kafka checks it, its brokers are not remembered.
"""

from __future__ import annotations

from collections import Counter

from agent.kafka.context import Context
from agent.kafka.handlers.assignment import refusal_of_all
from agent.kafka.handlers.rehearse import rehearse_all
from agent.kafka.propose import propose
from agent.net.wire.generated.create_partitions import (
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
STRICT_SINCE = 3  # KIP-599: what is beyond the quota is refused


async def handle(ctx: Context, request: CreatePartitionsRequest, version: int) -> CreatePartitionsResponse:
    """One answer per topic, in the request's order; one that is named twice has one."""
    await ctx.barrier()
    named = Counter(topic.name for topic in request.topics)
    topics = {topic.name: topic for topic in request.topics}
    prepared: dict[str, CreatePartitions | Refused] = {}
    for name, topic in topics.items():
        twice = Refused(Code.INVALID_REQUEST, "Duplicate topic name.")
        prepared[name] = twice if named[name] > 1 else _charged(ctx, topic, version)
    results = await _decide(ctx, request, prepared)
    response = CreatePartitionsResponse()
    for name, result in results.items():
        answer = CreatePartitionsTopicResult(name=name)
        if isinstance(result, Refused):
            answer.error_code, answer.error_message = result.code, result.message or None
        response.results.append(answer)
    return response


async def _decide(
    ctx: Context, request: CreatePartitionsRequest, prepared: dict[str, CreatePartitions | Refused]
) -> dict[str, Result]:
    """What became of each topic, or would have."""
    commands = {name: each for name, each in prepared.items() if isinstance(each, CreatePartitions)}
    results: dict[str, Result] = {name: each for name, each in prepared.items() if isinstance(each, Refused)}
    if request.validate_only:
        decided = rehearse_all(ctx.state, list(commands.values()))
    else:
        decided = await propose(ctx, list(commands.values()), request.timeout_ms)
    results.update(zip(commands, decided, strict=True))
    return {name: results[name] for name in prepared}


def _charged(ctx: Context, topic: CreatePartitionsTopic, version: int) -> CreatePartitions | Refused:
    """The command, once the client's quota has room for what is added."""
    command, known = _command(ctx, topic), ctx.state.topics.get(topic.name)
    if ctx.charge is None or known is None or isinstance(command, Refused):
        return command
    added = command.total - len(known.partitions)
    refused = ctx.charge.mutate(added, strict=version >= STRICT_SINCE) if added > 0 else None
    return refused or command


def _command(ctx: Context, topic: CreatePartitionsTopic) -> CreatePartitions | Refused:
    """The command for one topic, or why its request contradicts itself."""
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
    return CreatePartitions(topic=topic.name, total=max(topic.count, 0))
