"""Which agent goes first for a table that nobody holds: highest random weight."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from coordination.state.members import runs_jobs

if TYPE_CHECKING:
    from coordination.replica import Replica


def goes_first(replica: Replica, topic_id: bytes) -> bool:
    """Whether it is this agent; also where no agent is known."""
    state = replica.state
    nodes = [each.node_id for each in state.brokers.values() if runs_jobs(state, each.incarnation)]
    return not nodes or _chosen(topic_id, nodes) == replica.node_id


def _chosen(topic_id: bytes, nodes: list[int]) -> int:
    """The node that goes first for a topic."""
    return max(
        nodes, key=lambda node: hashlib.blake2b(topic_id + node.to_bytes(8, "big", signed=True)).digest()
    )
