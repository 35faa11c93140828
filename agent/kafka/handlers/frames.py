"""Before a topic's messages are to be read with Confluent's frame, there must be a schema for it to name.

It is looked at where the config is set, and not in apply, which reads no descriptors: a topic that is bound
otherwise a moment later has its records read without frame, and a header says why (fetch/frames.py).
"""

from __future__ import annotations

import asyncio

from agent.kafka.context import Context
from agent.kafka.fetch.frames import CONFIG, candidates
from coordination.commands import AlterTopicConfigs
from coordination.kafka_codes import Code
from coordination.state.types import Refused
from schema.enveloping import Form


async def frames_refusal(ctx: Context, altered: AlterTopicConfigs) -> Refused | None:
    """Why the changed config may not ask for frames; None where it does not, or may."""
    change = AlterTopicConfigs.Change
    if not any(
        each.name == CONFIG and each.operation == change.SET and each.value == Form.CONFLUENT
        for each in altered.changes
    ):
        return None
    refused = await _looked_at(ctx, altered.topic)
    if refused is not None and await ctx.barrier():  # it may have been registered through another agent
        refused = await _looked_at(ctx, altered.topic)
    return refused


async def _looked_at(ctx: Context, name: str) -> Refused | None:
    topic, schemas = ctx.state.topics.get(name), ctx.state.schemas
    bound = () if topic is None else (topic.value_schema_id, topic.key_schema_id)
    own = [schemas[each] for each in bound if each is not None and not schemas[each].naming]
    if topic is None or not own:
        return None
    looked = [candidates(ctx.state, topic, each) for each in own]
    try:
        found = await asyncio.to_thread(lambda: [each.target() for each in looked])
    except OSError as error:  # the compiler works in a temporary folder
        return Refused(Code.KAFKA_STORAGE_ERROR, f"{CONFIG}: a schema could not be compiled: {error}")
    why = next((each for each in found if isinstance(each, str)), None)
    return None if why is None else Refused(Code.INVALID_CONFIG, f"{CONFIG}=confluent: {why}")
