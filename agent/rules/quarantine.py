"""What a command says of how a topic's quarantine is made, should there be none."""

from __future__ import annotations

from coordination.clock import Clock
from coordination.commands import Quarantine
from coordination.state.topics import TOPIC_ID_BYTES
from schema.quarantine import descriptor_set


def new_quarantine(clock: Clock) -> Quarantine:
    """With an id that no topic has, for CreateTopic and AlterTopicConfigs."""
    return Quarantine(topic_id=clock.random_bytes(TOPIC_ID_BYTES), descriptor_set=descriptor_set())
