"""Which agent goes first for a table that nobody holds: highest random weight."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from coordination.state.members import job_runners

if TYPE_CHECKING:
    from coordination.replica import Replica


def goes_first(replica: Replica, topic_id: bytes) -> bool:
    """Whether it is this agent; also where no agent is known."""
    nodes = [each.node_id for each in job_runners(replica.state)]
    return not nodes or _chosen(topic_id, nodes) == replica.node_id


def _chosen(topic_id: bytes, nodes: list[int]) -> int:
    """The node that goes first for a topic."""
    return max(
        nodes, key=lambda node: hashlib.blake2b(topic_id + node.to_bytes(8, "big", signed=True)).digest()
    )
