"""The leader epoch that Metadata tells: one for all partitions, and it grows with every change of leaders.

Leaders are hints, chosen alike by every agent from the brokers that serve, their zones and roles
(agent/cluster/hints.py). Agents hear of a change one after another, so for some milliseconds their answers
name one agent and another; a client that knows epochs takes no answer that is older than the one it has
(KIP-320), and is not sent back to an agent that has gone. Records are all of epoch 0: nothing is truncated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from coordination.state import bounds
from coordination.state.data import StateData
from coordination.state.levels import LEADER_EPOCHS
from coordination.state.types import serving_of


@contextmanager
def chosen_anew(state: StateData) -> Iterator[None]:
    """Around a change of brokers: the epoch grows where leaders may be others behind it."""
    before = _serving(state)
    yield
    if state.feature_level >= LEADER_EPOCHS and _serving(state) != before:
        state.leader_epoch = bounds.LEADER_EPOCH.cut(state.leader_epoch + 1)


def _serving(state: StateData) -> list[int]:
    """Node ids suffice: an agent with another zone or role is another run, and the one before left first."""
    return [broker.node_id for broker in serving_of(state.brokers.values())]
