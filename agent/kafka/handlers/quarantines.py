"""What a command says of how a topic's quarantine is to be made, should there be none."""

from __future__ import annotations

from agent.kafka.context import Context
from coordination.commands import Quarantine
from coordination.state.topics import TOPIC_ID_BYTES
from schema.quarantine import descriptor_set


def new_quarantine(ctx: Context) -> Quarantine:
    """With an id that no topic has."""
    topic_id = ctx.services.clock.random_bytes(TOPIC_ID_BYTES)
    return Quarantine(topic_id=topic_id, descriptor_set=descriptor_set())
