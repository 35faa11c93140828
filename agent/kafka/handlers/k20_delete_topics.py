"""DeleteTopics: delete topics by name or, from version 6, by id.

Versions 1 to 6.
Behaviour: one answer per topic; a topic named twice, or by name and id, is INVALID_REQUEST, once. With
delete.topic.enable=false every one is TOPIC_DELETION_DISABLED. A topic can be brought back for
floe.delete.retention.ms (docs/retention.md).
Deviations: a topic with floe.delete.protection=true is POLICY_VIOLATION.
"""

from __future__ import annotations

from collections import Counter

from agent.kafka.context import Context
from agent.kafka.handlers.lookup import NIL_ID
from agent.kafka.propose import propose
from agent.net.listening import ANONYMOUS
from agent.net.wire.generated.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from coordination import broker_configs
from coordination.commands import DeleteTopic
from coordination.kafka_codes import Code
from coordination.state.types import Refused, Result

KEY = 20
VERSIONS = (1, 6)
STATES_SINCE = 6
STRICT_SINCE = 5  # KIP-599: what is beyond the quota is refused
DISABLED_SINCE = 3  # before, clients do not know TOPIC_DELETION_DISABLED


async def handle(ctx: Context, request: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse:
    """One answer per topic, in the request's order."""
    if version >= STATES_SINCE:
        asked = request.topics
    else:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    await ctx.barrier()
    names = [_name(ctx, each) for each in asked]
    named = Counter(name for name in names if name is not None)
    answers: list[Result | None] = [
        _contradiction(each, named[name] if name is not None else 1)
        for each, name in zip(asked, names, strict=True)
    ]
    if not broker_configs.boolean(ctx.state.cluster_configs, "delete.topic.enable"):
        code = Code.TOPIC_DELETION_DISABLED if version >= DISABLED_SINCE else Code.INVALID_REQUEST
        answers = [Refused(code, "Topic deletion is disabled.") for _ in asked]
    if ctx.charge is not None:
        _charge(ctx, names, answers, strict=version >= STRICT_SINCE)
    sound = [index for index, refused in enumerate(answers) if refused is None]
    by = ctx.client.principal
    commands = [_command(asked[index], by) for index in sound]
    for index, result in zip(sound, await propose(ctx, commands, request.timeout_ms), strict=True):
        answers[index] = result
    rows = {
        index if name is None else name: _answer(each, name, result)
        for index, (each, name, result) in enumerate(zip(asked, names, answers, strict=True))
    }
    return DeleteTopicsResponse(responses=list(rows.values()))


def _charge(ctx: Context, names: list[str | None], answers: list[Result | None], *, strict: bool) -> None:
    """Take the partitions that go from the client's quota."""
    assert ctx.charge is not None
    for index, name in enumerate(names):
        topic = ctx.state.topics.get(name or "")
        if answers[index] is None and topic is not None:
            answers[index] = ctx.charge.mutate(len(topic.partitions), strict=strict)


def _name(ctx: Context, each: DeleteTopicState) -> str | None:
    """The name of the topic asked for; None when an id stands for no topic."""
    if each.topic_id == NIL_ID:
        return each.name
    topic = ctx.state.topics_by_id.get(each.topic_id)
    return each.name if topic is None else topic.name


def _contradiction(each: DeleteTopicState, times: int) -> Refused | None:
    if (each.name is None) == (each.topic_id == NIL_ID):
        why = "You may not specify both topic name and topic id."
        return Refused(
            Code.INVALID_REQUEST, "Neither topic name nor id were specified." if each.name is None else why
        )
    if times > 1:
        return Refused(Code.INVALID_REQUEST, "Duplicate topic name.")
    return None


def _command(each: DeleteTopicState, by: str) -> DeleteTopic:
    topic_id = b"" if each.topic_id == NIL_ID else each.topic_id
    return DeleteTopic(name=each.name or "", topic_id=topic_id, by="" if by == ANONYMOUS else f"User:{by}")


def _answer(each: DeleteTopicState, name: str | None, result: Result | None) -> DeletableTopicResult:
    answer = DeletableTopicResult(name=name, topic_id=each.topic_id)
    if isinstance(result, Refused):
        answer.error_code = result.code
        answer.error_message = result.message or None
    return answer
