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
    asked = states(request, version)
    await ctx.barrier()
    names = [_name(ctx, each) for each in asked]
    named = Counter(name for name in names if name is not None)
    ids = Counter(each.topic_id for each in asked if each.name is None)
    answers: list[Result | None] = [
        _contradiction(each, named[name] if name is not None else 1, ids[each.topic_id])
        for each, name in zip(asked, names, strict=True)
    ]
    if (off := disabled(ctx, version)) is not None:
        answers = [off for _ in asked]
    if ctx.charge is not None:
        _charge(ctx, names, answers, strict=version >= STRICT_SINCE)
    sound = [index for index, refused in enumerate(answers) if refused is None]
    by = ctx.client.principal
    commands = [_command(asked[index], by) for index in sound]
    for index, result in zip(sound, await propose(ctx, commands, request.timeout_ms), strict=True):
        answers[index] = result
    rows: dict[int | str | bytes, DeletableTopicResult] = {}
    for index, (each, name) in enumerate(zip(asked, names, strict=True)):
        if each.name is None and each.topic_id != NIL_ID and ids[each.topic_id] > 1:
            # Without its name: guards let such a row through unasked.
            rows[each.topic_id] = _answer(each, None, answers[index])
        else:
            rows[index if name is None else name] = _answer(each, name, answers[index])
    return DeleteTopicsResponse(responses=list(rows.values()))


def states(request: DeleteTopicsRequest, version: int) -> list[DeleteTopicState]:
    """What a request of any version names."""
    if version >= STATES_SINCE:
        return request.topics
    return [DeleteTopicState(name=name) for name in request.topic_names]


def disabled(ctx: Context, version: int) -> Refused | None:
    """The answer for every topic while delete.topic.enable is false."""
    if broker_configs.boolean(ctx.state.cluster_configs, "delete.topic.enable"):
        return None
    code = Code.TOPIC_DELETION_DISABLED if version >= DISABLED_SINCE else Code.INVALID_REQUEST
    return Refused(code, "Topic deletion is disabled.")


def _charge(ctx: Context, names: list[str | None], answers: list[Result | None], *, strict: bool) -> None:
    """Take the partitions that go from the client's quota."""
    assert ctx.charge is not None
    for index, name in enumerate(names):
        topic = ctx.state.topics.get(name or "")
        if answers[index] is None and topic is not None:
            answers[index] = ctx.charge.mutate(len(topic.partitions), strict=strict)


def _name(ctx: Context, each: DeleteTopicState) -> str | None:
    """The name of the topic asked for; None when an id stands for no topic."""
    if each.name is not None or each.topic_id == NIL_ID:
        return each.name
    topic = ctx.state.topics_by_id.get(each.topic_id)
    return None if topic is None else topic.name


def _contradiction(each: DeleteTopicState, times: int, same_id: int) -> Refused | None:
    """What is wrong with the row, whatever is there: guards let such rows through unasked.

    `times`: how many rows are about its topic as far as is known; `same_id`: how many have its id alone.
    """
    if (each.name is None) == (each.topic_id == NIL_ID):
        why = "You may not specify both topic name and topic id."
        return Refused(
            Code.INVALID_REQUEST, "Neither topic name nor id were specified." if each.name is None else why
        )
    if each.name is None and same_id > 1:
        return Refused(Code.INVALID_REQUEST, "Duplicate topic id.")
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
