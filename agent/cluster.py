"""Which agent Metadata names as a partition's leader. A hint: any agent serves anything.

Rendezvous hashing keeps a partition's writers and readers on one agent, so that tail reads come from
its memory, and moves only the partitions of an agent that came or went.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

NO_BROKER = -1

_MASK = (1 << 64) - 1


def _mix(value: int) -> int:
    """splitmix64's finalizer: every bit of the input moves every bit of the output."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def rendezvous(key: int, nodes: Iterable[tuple[int, int]]) -> int:
    """The node of the highest weight for `key` among (node id, seed); NO_BROKER when there is none."""
    best, best_weight = NO_BROKER, -1
    for node, seed in nodes:
        weight = _mix(key ^ seed)
        if weight > best_weight:
            best, best_weight = node, weight
    return best


class LeaderHints:
    """Leaders by partition handle for the current set of live brokers, remembered until it changes."""

    def __init__(self) -> None:
        self._nodes: tuple[int, ...] = ()
        self._seeds: list[tuple[int, int]] = []
        self._leaders: dict[int, int] = {}

    def update(self, nodes: Sequence[int]) -> None:
        """Make `nodes` (node ids, in any order) the live brokers."""
        ordered = tuple(sorted(nodes))
        if ordered != self._nodes:
            self._nodes = ordered
            self._seeds = [(node, _mix((node + 1) * 0x9E3779B97F4A7C15 & _MASK)) for node in ordered]
            self._leaders = {}

    def leader(self, handle: int) -> int:
        """The node id that Metadata names for the partition; NO_BROKER when no broker lives."""
        leader = self._leaders.get(handle)
        if leader is None:
            leader = rendezvous(_mix(handle + 1), self._seeds)
            self._leaders[handle] = leader
        return leader

    def coordinator(self, key: str) -> int:
        """The node id that a group or transactional id is sent to; NO_BROKER when no broker lives."""
        return rendezvous(_mix(zlib.crc32(key.encode()) + (1 << 33)), self._seeds)
