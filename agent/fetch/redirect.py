"""Where a consumer should read instead: the agent of its zone, or one that is for fetching (KIP-392).

A hint like all leadership. It cannot loop: an agent that is for fetching and in the client's zone never
sends it away, and no agent sends the same connection from a partition to the same node twice within REPEAT_S.
A client that does not follow is served then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.cluster import ANYWHERE, NO_BROKER, LeaderHints
from coordination.state.types import FETCH, Broker

FOLLOW_WITHOUT_RACK = ("apache-kafka-java", "librdkafka")  # as they name themselves (KIP-511)
"""Clients that follow to a node that they do not know yet by asking for Metadata, and read on meanwhile."""

REPEAT_S = 60.0  # within this a connection is sent from a partition to a node once, seconds
REMEMBERED_MAX = 10_000  # partitions that one connection was sent away from


def suits(broker: Broker | None, zone: str) -> bool:
    """Whether clients of the zone should read from this broker, whatever the partition."""
    return broker is not None and FETCH in broker.roles and zone in (ANYWHERE, broker.zone)


def stays(broker: Broker | None, rack_id: str, software: str) -> bool:
    """Whether a client reads on from this broker though another zone is its own.

    One that gives no rack has not asked for KIP-392, and may take an agent that came back for a node that
    it need not look for: KafkaJS then asks nobody for the partition until its metadata is five minutes old.
    Its next Metadata names the agent of its zone.
    """
    return (
        broker is not None and FETCH in broker.roles and not rack_id and software not in FOLLOW_WITHOUT_RACK
    )


def elsewhere(
    hints: LeaderHints,
    own: Broker | None,
    zone: str,
    handles: Iterable[int],
    sent: dict[int, tuple[int, float]],
    now: float,
) -> Mapping[int, int]:
    """Partition handle → the node that a client should read it from instead of `own`, which does not suit it.

    `sent` is the connection's own memory: for a partition where it was sent last, and when, seconds.
    """
    here = own.node_id if own is not None else NO_BROKER
    found: dict[int, int] = {}
    for handle in handles:
        node = hints.reader(handle, zone)
        if node in (NO_BROKER, here):
            continue
        last, when = sent.get(handle, (NO_BROKER, now))
        if node == last and now - when < REPEAT_S:
            continue
        if len(sent) >= REMEMBERED_MAX:
            sent.clear()
        sent[handle] = (node, now)
        found[handle] = node
    return found
