"""A topic's own rules are tried before they are set, and before keys or values are bound to something else.

What the topic is bound to at that moment says what the expressions may name. Where it follows a subject that
is the newest version, or the one that it stays at; where that is not known (nothing is registered yet, AVRO,
JSON, subjects called as messages) only what is wrong whatever the records are is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.rules.messages import OwnTrial, Source
from agent.rules.pool import RulesPool, Unusable
from coordination import record_rules
from coordination.config_types import VALUE_LENGTH_MAX
from coordination.state import State
from coordination.state.following import imported, newest
from coordination.state.types import Schema, Topic
from coordination.topic_configs import NEW_CONFIGS
from schema.descriptors import DescriptorError, message_at
from schema.followed import PROTOBUF
from schema.registry import protobuf
from schema.registry.parsed import InvalidSchema

NAME = "floe.rules"
SHOWN_MAX = 5
"""Problems that are told."""


@dataclass(frozen=True, slots=True)
class Types:
    """What keys and values are; None: bytes. `known`: whether that is known."""

    key: Source | None = None
    value: Source | None = None
    known: bool = True


NOT_KNOWN = Types(known=False)


def to_try(state: State, configs: Mapping[str, str]) -> str:
    """The rules among configs that are about to be set, if worth trying: apply refuses the others."""
    text = configs.get(NAME, "")
    if state.feature_level < NEW_CONFIGS or len(text) > VALUE_LENGTH_MAX or record_rules.refusal(text):
        return ""
    return text.strip()


async def types_of(state: State, topic: Topic, *, but: str = "") -> Types:
    """What a topic's keys and values are now; `but`: those of this role are bytes, whatever they are."""
    found = Types()
    for role, schema_id in (("key", topic.key_schema_id), ("value", topic.value_schema_id)):
        if schema_id is None or role == but:
            continue
        bound = state.schemas[schema_id]
        source = await _followed(state, bound) if bound.naming else (bound.descriptor_set, bound.message)
        found = with_type(found, role, source)
    return found


def with_type(types: Types, role: str, source: Source | None) -> Types:
    """The same, and keys or values are of this type; None: nobody knows of which."""
    if source is None:
        return replace(types, known=False)
    return replace(types, key=source) if role == "key" else replace(types, value=source)


async def _followed(state: State, bound: Schema) -> Source | None:
    """The message that a followed subject has now."""
    table, schema_id = state.subjects, newest(state, bound)
    schema = table.schemas.get(schema_id)
    if schema is None or schema.schema_type != PROTOBUF:
        return None
    return await source_in(schema.canonical, imported(table, schema), bound.message)


async def source_in(form: bytes, imports: Mapping[str, bytes], message: str) -> Source | None:
    """A message of a schema of PROTOBUF; the first one where none is named."""

    def found() -> Source:
        files = protobuf.descriptor_set(form, imports)
        return files, message or message_at(files, (0,))

    try:
        return await asyncio.to_thread(found)
    except (InvalidSchema, DescriptorError, OSError):  # so are its records, or there is no temporary folder
        return None


async def problems(pool: RulesPool, text: str, types: Types) -> str:
    """What is wrong with a topic's own rules, over what it is bound to; empty: nothing. Raises Busy."""
    asked = OwnTrial(record_rules.parse(text), types.key, types.value, types.known)
    try:
        found = await pool.own_trial(asked)
    except Unusable as error:
        return f"{NAME}: {error}"
    more = f"; and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    return "; ".join(map(str, found[:SHOWN_MAX])) + more
