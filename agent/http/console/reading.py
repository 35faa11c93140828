"""Whether records may be looked at here at all, and by what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.http.answers import Problem

if TYPE_CHECKING:
    from agent.config import Config
    from agent.http.parts import KafkaShown, Parts
    from coordination.state.types import Partition, Topic


def readable(parts: Parts) -> KafkaShown:
    """What reads records. Raises Problem: 403 where they are shown to nobody, 503 before there is it."""
    if not is_open(parts.config):
        raise Problem(
            403,
            "nobody is asked who he is here, and Kafka's clients are: records are not shown",
            "set http.authentication to required",
        )
    kafka = parts.kafka()
    if kafka is None:
        raise Problem(503, "this agent does not serve records yet", "try again, or ask another agent")
    return kafka


def require_partition(topic: Topic, index: int) -> Partition:
    """The topic's partition. Raises Problem 404."""
    if index >= len(topic.partitions):
        raise Problem(
            404, f"{topic.name} has the partitions 0 to {len(topic.partitions) - 1}", "name one of them"
        )
    return topic.partitions[index]


def is_open(config: Config) -> bool:
    """Whether HTTP asks who it is, or whoever comes may read records by some listener of Kafka's anyway."""
    if config.http.authentication == "required":
        return True
    doors = (each for each in config.listeners if each.tls_client_auth != "required")
    return config.authorizer.mode != "enforce" and any(
        each.protocol in ("PLAINTEXT", "SSL") for each in doors
    )
