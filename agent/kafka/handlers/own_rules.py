"""Topics' own rules (`floe.rules`) are tried before they are proposed, when topics are made and altered."""

from __future__ import annotations

from collections.abc import Mapping

from agent.kafka.context import Context
from agent.rules.pool import Busy
from agent.rules.trying import NOT_KNOWN, problems, to_try, types_of
from coordination.commands import AlterTopicConfigs, CreateTopic
from coordination.kafka_codes import Code
from coordination.state.types import Refused


async def unusable(ctx: Context, message: CreateTopic | AlterTopicConfigs) -> Refused | None:
    """Why the rules that the command sets cannot be used, naming rule, place and remedy; None: they can.

    A topic that is created is bound afterwards, so it is not known yet what its records are.
    """
    text = to_try(ctx.state, _set_by(message))
    if not text:
        return None
    types = NOT_KNOWN
    if isinstance(message, AlterTopicConfigs):
        topic = ctx.state.topics.get(message.topic)
        if topic is None:
            return None  # or not yet: then its records tell
        types = await types_of(ctx.state, topic)
    try:
        why = await problems(ctx.services.rules, text, types)
    except Busy as busy:
        return Refused(Code.NOT_CONTROLLER, f"nothing was changed: the rules were not tried: {busy}")
    return Refused(Code.INVALID_CONFIG, why) if why else None


def _set_by(message: CreateTopic | AlterTopicConfigs) -> Mapping[str, str]:
    if isinstance(message, CreateTopic):
        return {each.name: each.value for each in message.configs}
    set_by = AlterTopicConfigs.Change.SET
    return {each.name: each.value for each in message.changes if each.operation == set_by}
