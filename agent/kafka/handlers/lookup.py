"""Finding topics and partitions in the state, with the error that Kafka answers where there is none."""

from __future__ import annotations

from coordination.kafka_codes import Code
from coordination.state.state import State
from coordination.state.types import Partition, Topic

NIL_ID = bytes(16)

# Without an authoriser every operation is allowed; bits are AclOperation codes (KIP-430).
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
GROUP_OPERATIONS = sum(1 << code for code in (3, 6, 8, 10, 11))
NOT_ASKED = -(1 << 31)
GROUP_COST = 16
"""Of finding a group and who coordinates it, in rows that are only made (agent/net/wire/steps.py)."""


def find_topic(state: State, name: str | None, topic_id: bytes, by_id: bool) -> Topic | None:
    """A topic by id where the request's version names it so, else by name."""
    if by_id:
        return state.topics_by_id.get(topic_id)
    return state.topics.get(name) if name is not None else None


def unknown_code(by_id: bool) -> Code:
    """The error for a topic that does not exist."""
    return Code.UNKNOWN_TOPIC_ID if by_id else Code.UNKNOWN_TOPIC_OR_PARTITION


def find_partition(topic: Topic | None, index: int) -> Partition | None:
    """A partition of the topic; None when either does not exist."""
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    return topic.partitions[index]
