"""Where a consumer should read instead: the agent of its zone, or one that is for fetching (KIP-392); where
this agent sends its clients away, another one.

A hint like all leadership. It cannot loop: an agent that is for fetching and in the client's zone never
sends it away, and no agent sends the same connection from a partition to the same node again within REPEAT_S,
but once more within AGAIN_S. A client that does not follow is served then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agent.cluster.hints import ANYWHERE, NO_BROKER, LeaderHints
from coordination.state.types import FETCH, Broker

LIBRDKAFKA = "librdkafka"
BINDING = "rdkafka-"  # in a version: confluent-kafka announces itself as 2.16.1-rdkafka-2.16.0
FOLLOW_WITHOUT_RACK = ("apache-kafka-java", LIBRDKAFKA)  # as they name themselves (KIP-511)
"""Clients that follow to a node that they do not know yet by asking for Metadata, and read on meanwhile."""

REPEAT_S = 60.0  # within this a connection is sent from a partition to a node once, seconds
AGAIN_S = 1.0
"""Within this it is told once more, seconds. librdkafka moves a partition in a step of its own and may send
one more Fetch for it before: served, its records would cross zones to be thrown away.
"""
WHEREVER = float("inf")
"""Who does not find a node comes back: to an agent that stays."""
REMEMBERED_MAX = 10_000  # partitions that one connection was sent away from


class Sent(NamedTuple):
    """To which node a connection was sent from a partition, when (seconds), and whether twice."""

    node: int
    when: float
    twice: bool = False


def suits(broker: Broker, zone: str) -> bool:
    """Whether clients of the zone should read from this broker, whatever the partition."""
    return FETCH in broker.roles and zone in (ANYWHERE, broker.zone)


def follows(rack_id: str, software: str) -> bool:
    """Whether a client goes where it is sent (KIP-392): it asked for that by its rack, or is known to."""
    return bool(rack_id) or software in FOLLOW_WITHOUT_RACK


def stays(broker: Broker, rack_id: str, software: str) -> bool:
    """Whether a client is served by this broker although its own zone has another one for it.

    A client that gives no rack has not asked for redirects (KIP-392), and some handle them badly: KafkaJS,
    sent to a node that its metadata does not know, asks nobody for the partition until its metadata is five
    minutes old. Such a client moves by itself: its next Metadata names the agent of its zone.
    """
    return FETCH in broker.roles and not follows(rack_id, software)


def elsewhere(
    hints: LeaderHints,
    own: Broker | None,
    zone: str,
    handles: Iterable[int],
    sent: dict[int, Sent],
    now: float,
    told: float,
) -> Mapping[int, int]:
    """Partition handle → the node that a client should read it from instead of `own`, which does not suit it.

    `sent` is the connection's own memory: for a partition where it was sent last, and when, seconds. `told`
    is when it heard last from this agent where all are: it is sent to no node that has moved since; WHEREVER:
    to any.
    """
    here = own.node_id if own is not None else NO_BROKER
    found: dict[int, int] = {}
    view = hints.view(zone)  # once: it looks whether the brokers have changed, of which there may be many
    for handle in handles:
        node = view.reader(handle)
        if node in (NO_BROKER, here) or not hints.places.found(node, told):
            continue
        last = sent.get(handle)
        again = last is not None and node == last.node and now - last.when < REPEAT_S
        if last is not None and again and (last.twice or now - last.when >= AGAIN_S):
            continue
        if len(sent) >= REMEMBERED_MAX:
            sent.clear()
        sent[handle] = Sent(node, now, again)
        found[handle] = node
    return found
