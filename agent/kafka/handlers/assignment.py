"""Manual assignments of replicas: Kafka's checks. What passes has no effect, since there are no replicas."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence

from coordination.kafka_codes import Code
from coordination.state.types import Refused


def refusal_of(brokers: Sequence[int], known: Container[int]) -> Refused | None:
    """Why a partition cannot have these brokers (validateManualPartitionAssignment)."""
    if not brokers:
        why = "The manual partition assignment includes an empty replica list."
    elif len(frozenset(brokers)) != len(brokers):
        twice = next(broker for broker in brokers if brokers.count(broker) > 1)
        why = f"The manual partition assignment includes the broker {twice} more than once."
    elif not all(broker in known for broker in brokers):
        missing = next(broker for broker in brokers if broker not in known)
        why = f"The manual partition assignment includes broker {missing}, but no such broker is registered."
    else:
        return None
    return Refused(Code.INVALID_REPLICA_ASSIGNMENT, why)


def refusal_of_all(partitions: Iterable[Sequence[int]], known: Collection[int]) -> Refused | None:
    """Why new partitions cannot be assigned so: each by itself, and all to equally many brokers."""
    first: int | None = None
    for brokers in partitions:
        refused = refusal_of(brokers, known)
        if refused is not None:
            return refused
        first = len(brokers) if first is None else first
        if len(brokers) != first:
            return Refused(
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes a partition with {len(brokers)} replica(s), "
                f"but this is not consistent with previous partitions, which have {first} replica(s).",
            )
    return None
