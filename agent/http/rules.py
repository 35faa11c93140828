"""Rules of protovalidate where a message is bound: those that cannot be used are found, a policy is set."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from agent.http.answers import Problem
from agent.http.parts import Parts
from agent.rules.messages import Source
from agent.rules.pool import Busy, Unusable
from agent.rules.quarantine import new_quarantine
from agent.rules.trying import problems, source_in, to_try, types_of, with_type
from coordination.commands import AlterTopicConfigs, Command, command
from coordination.state.following import imported
from coordination.state.subject_types import RegisteredSchema
from coordination.state.types import Topic
from coordination.topic_configs import NEW_CONFIGS, QUARANTINE, REJECT, TOPIC_CONFIGS
from schema.followed import PROTOBUF
from schema.registry import protobuf
from schema.registry.parsed import Imports, InvalidSchema

SHOWN_MAX = 5
"""Rules that an error names."""


async def unusable(parts: Parts, ruled: Ruled) -> list[str]:
    """The rules of messages, and of those inside them, that cannot be used, in words.

    Raises Problem 503 where nobody has time to try them.
    """
    if parts.rules is None or not ruled.messages:
        return []
    try:
        return [str(each) for each in await parts.rules.trial(ruled.descriptor_set, tuple(ruled.messages))]
    except Unusable as error:
        return [str(error)]
    except Busy as busy:
        raise Problem(503, f"the rules were not tried: {busy}", "try again") from None


class Ruled(NamedTuple):
    """Messages of a descriptor set that have rules, by their full names."""

    descriptor_set: bytes
    messages: list[str]


async def of_subject(parts: Parts, subject: str, version: int, message: str) -> Ruled:
    """The messages with rules of a subject's version, 0: of the newest; of `message` alone where it is named.

    None where there is no such version yet, or its type has no rules. Raises Problem 503.
    """
    schema = _version(parts, subject, version)
    if schema is None or schema.schema_type != PROTOBUF:
        return Ruled(b"", [])
    return await in_file(schema.canonical, imported(parts.replica.state.subjects, schema), message)


def _version(parts: Parts, subject: str, version: int) -> RegisteredSchema | None:
    """A subject's version, 0: the newest; None where there is none."""
    table = parts.replica.state.subjects
    held = table.subjects.get(subject)
    versions = [one for one in (held.live if held is not None else []) if version in (0, one.version)]
    return table.schemas[versions[-1].schema_id] if versions else None


async def source_of_subject(parts: Parts, subject: str, version: int, message: str) -> Source | None:
    """The message that records of a topic that follows the subject are; None where nobody knows."""
    schema = _version(parts, subject, version)
    if schema is None or schema.schema_type != PROTOBUF:
        return None
    return await source_in(schema.canonical, imported(parts.replica.state.subjects, schema), message)


async def require_own_usable(
    parts: Parts, topic: Topic, role: str, source: Source | None, *, unbound: bool
) -> None:
    """The topic's own rules must be such that they go with what keys or values are about to be bound to.

    `source`: that, None: nobody knows. Raises Problem 400 naming rule, place and remedy.
    """
    text = to_try(parts.replica.state, topic.configs)
    if not text or parts.rules is None:
        return
    types = await types_of(parts.replica.state, topic, but=role)
    try:
        why = await problems(parts.rules, text, types if unbound else with_type(types, role, source))
    except Busy as busy:
        raise Problem(503, f"the topic's own rules were not tried: {busy}", "try again") from None
    if why:
        raise Problem(
            400,
            f"rules of topic {topic.name} cannot be used then: {why}",
            "change or unset floe.rules first; or force it (force: true, floe topic bind --force)",
        )


async def in_file(form: bytes, imports: Imports, message: str = "") -> Ruled:
    """The same of a file in canonical form. Raises Problem 503."""

    def found() -> Ruled:
        names = [each for each in protobuf.ruled_messages(form, imports) if message in ("", each)]
        return Ruled(protobuf.descriptor_set(form, imports) if names else b"", names)

    try:
        return await asyncio.to_thread(found)
    except InvalidSchema:
        return Ruled(b"", [])  # too large with its imports: its records are refused, whatever its rules
    except OSError as error:  # the compiler works in a temporary folder
        raise Problem(503, f"the schema could not be compiled: {error}", "try again") from None


async def require_usable(parts: Parts, ruled: Ruled) -> None:
    """Raises Problem 400 naming message, field and rule of those that cannot be used."""
    problems = await unusable(parts, ruled)
    if problems:
        more = f"; and {len(problems) - SHOWN_MAX} more" if len(problems) > SHOWN_MAX else ""
        names = ", ".join(ruled.messages[:SHOWN_MAX])
        raise Problem(
            400,
            f"rules of {names} cannot be used: {'; '.join(problems[:SHOWN_MAX])}{more}",
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
    made = new_quarantine(parts.clock) if asked == QUARANTINE else None
    return [command(AlterTopicConfigs(topic=topic.name, changes=[change], quarantine=made))]
