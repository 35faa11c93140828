"""Rules of protovalidate where a message is bound: those that cannot be used are found, a policy is set."""

from __future__ import annotations

from collections.abc import Sequence

from agent.http.answers import Problem
from agent.http.parts import Parts
from agent.rules.pool import Busy, Unusable
from coordination.commands import AlterTopicConfigs, Command, command
from coordination.state.types import Topic
from coordination.topic_configs import NEW_CONFIGS, REJECT, TOPIC_CONFIGS

SHOWN_MAX = 5
"""Rules that an error names."""


async def unusable(parts: Parts, descriptor_set: bytes, messages: Sequence[str]) -> list[str]:
    """The rules of messages, and of those inside them, that cannot be used, in words.

    Raises Problem 503 where nobody has time to try them.
    """
    if parts.rules is None:
        return []
    try:
        return [str(each) for each in await parts.rules.trial(descriptor_set, tuple(messages))]
    except Unusable as error:
        return [str(error)]
    except Busy as busy:
        raise Problem(503, f"the rules were not tried: {busy}", "try again") from None


async def require_usable(parts: Parts, descriptor_set: bytes, message: str) -> None:
    """Raises Problem 400 naming message, field and rule of those that cannot be used."""
    problems = await unusable(parts, descriptor_set, [message])
    if problems:
        more = f"; and {len(problems) - SHOWN_MAX} more" if len(problems) > SHOWN_MAX else ""
        raise Problem(
            400,
            f"rules of {message} cannot be used: {'; '.join(problems[:SHOWN_MAX])}{more}",
            "correct the rules; or bind it all the same (force: true, floe topic bind --force) and leave "
            "the topic's policy off",
        )


def policy_wanted(parts: Parts, topic: Topic, role: str, asked: str, *, ruled: bool) -> list[Command]:
    """What sets the policy with a binding: the one that was asked for.

    Without one: `reject` where the role was bound to nothing and nobody has set a policy. Who binds a topic
    anew keeps what is in force, so that records that were taken until now are not refused by surprise.
    """
    name = f"floe.{role}.rules"
    if not asked:
        state = parts.replica.state
        bound = topic.key_schema_id if role == "key" else topic.value_schema_id
        known = name in topic.configs or TOPIC_CONFIGS[name].broker_name in state.cluster_configs
        if not ruled or bound is not None or known or state.feature_level < NEW_CONFIGS:
            return []
        asked = REJECT
    change = AlterTopicConfigs.Change(name=name, operation=AlterTopicConfigs.Change.SET, value=asked)
    return [command(AlterTopicConfigs(topic=topic.name, changes=[change]))]
