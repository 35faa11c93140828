"""Whom this agent follows: every agent of a zone that has the same state says the same. Pure."""

from __future__ import annotations

from typing import NamedTuple

from coordination.state.state import State
from coordination.state.types import serving_of


class Choice(NamedTuple):
    """The zone's relay. An empty address: this agent itself."""

    incarnation: int
    address: str


def choose(state: State, own: int, zone: str, agents_min: int) -> Choice | None:
    """The relay of a zone: the agent with the lowest id of those that are well and serve.

    None where each follows etcd: `own` incarnation does not count (yet), nobody serves in the zone, or it has
    fewer than `agents_min` agents that can be reached. Whoever is chosen decides nothing: see docs/zones.md.
    """
    if not own or not state.is_live(own):
        return None
    near = [each for each in state.brokers.values() if each.zone == zone and each.peer_address]
    if len(near) < agents_min:
        return None
    able = [each for each in serving_of(near) if each.named and not each.unwell]
    if not able:
        return None
    chosen = min(able, key=lambda each: each.node_id)
    return Choice(chosen.incarnation, "" if chosen.incarnation == own else chosen.peer_address)
