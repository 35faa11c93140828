"""The server-side assignors of KIP-848: who shall have which partitions.

Both are pure, and give the same answer for the same question on every agent. Racks play no part, as in
Apache Kafka 4.3: its server-side assignors do not look at them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heapreplace

from coordination.state.consumer_types import Assignment


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as an assignor sees it. `topics`: ids of the existing topics that it wants, sorted.

    `target`: what it was assigned last. `expected`: when its next heartbeat is due, in any unit. A member
    gives partitions back with a heartbeat, so taking them from the one whose heartbeat comes first is
    quickest.
    """

    member_id: str
    instance_id: str | None
    topics: tuple[bytes, ...]
    target: Assignment = field(default_factory=dict)
    expected: float = 0.0


Sizes = Mapping[bytes, int]  # topic id → number of partitions
Assignor = Callable[[Sequence[Subscriber], Sizes], dict[str, Assignment]]
_Row = tuple[bytes, int]


def range_assignor(members: Sequence[Subscriber], sizes: Sizes) -> dict[str, Assignment]:
    """Contiguous ranges per topic: equal topics give a member equal partition numbers (co-partitioning).

    Members with an instance id come first, in its order: they keep their range over restarts.
    """
    ordered = sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or "", m.member_id))
    counts: dict[bytes, int] = {}
    for member in ordered:
        for topic_id in member.topics:
            counts[topic_id] = counts.get(topic_id, 0) + 1
    given: dict[bytes, tuple[int, int]] = dict.fromkeys(counts, (0, 0))  # members served, next partition
    result: dict[str, Assignment] = {}
    for member in ordered:
        mine: dict[bytes, tuple[int, ...]] = {}
        for topic_id in member.topics:
            served, start = given[topic_id]
            quota, extra = divmod(sizes[topic_id], counts[topic_id])
            end = start + quota + (served < extra)
            given[topic_id] = (served + 1, end)
            if end > start:
                mine[topic_id] = tuple(range(start, end))
        result[member.member_id] = mine
    return result


def uniform_assignor(members: Sequence[Subscriber], sizes: Sizes) -> dict[str, Assignment]:
    """As many partitions for each as for any other, moving as few as that allows. Balance goes first.

    With equal subscriptions sizes differ by one at most. With different ones, no partition could move to a
    subscriber that has two fewer.
    """
    ordered = sorted(members, key=lambda m: m.member_id)
    if not ordered:
        return {}
    if all(member.topics == ordered[0].topics for member in ordered):
        rows = _equal(ordered, sizes)
    else:
        rows = _different(ordered, sizes)
    return {
        member_id: _as_assignment(row, by_id.target)
        for (member_id, row), by_id in zip(rows.items(), ordered, strict=True)
    }


def _as_assignment(rows: Sequence[_Row], before: Assignment) -> Assignment:
    """Rows by topic; the very object of before when nothing changed."""
    grouped: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(rows):
        grouped.setdefault(topic_id, []).append(partition)
    result = {topic_id: tuple(partitions) for topic_id, partitions in grouped.items()}
    return before if result == before else result


def _kept(members: Sequence[Subscriber], sizes: Sizes) -> tuple[dict[str, list[_Row]], set[_Row]]:
    """What each may keep of its last target, and all of that together. First come, first kept."""
    taken: set[_Row] = set()
    kept: dict[str, list[_Row]] = {}
    for member in members:
        wanted = frozenset(member.topics)
        mine: list[_Row] = []
        for topic_id, partitions in member.target.items():
            if topic_id in wanted:
                size = sizes[topic_id]
                mine += [
                    (topic_id, number)
                    for number in partitions
                    if number < size and (topic_id, number) not in taken
                ]
        taken.update(mine)
        kept[member.member_id] = mine
    return kept, taken


def _equal(members: Sequence[Subscriber], sizes: Sizes) -> dict[str, list[_Row]]:
    """All want the same topics: a quota each, and one more for those who have more already.

    Where more have more than can keep it, those give who will be heard soonest, so that nobody waits long.
    """
    rows, taken = _kept(members, sizes)
    free = [
        (topic_id, number)
        for topic_id in members[0].topics
        for number in range(sizes[topic_id])
        if (topic_id, number) not in taken
    ]
    quota, extra = divmod(sum(sizes[topic_id] for topic_id in members[0].topics), len(members))
    quotas = dict.fromkeys(rows, quota)
    expected = {member.member_id: member.expected for member in members}

    def turn(member_id: str) -> tuple[bool, float]:
        gains = len(rows[member_id]) <= quota
        return gains, expected[member_id] if gains else -expected[member_id]

    for member_id in sorted(rows, key=turn)[:extra]:
        quotas[member_id] += 1
    for member_id, mine in rows.items():
        free += mine[quotas[member_id] :]
        del mine[quotas[member_id] :]
    free.sort(reverse=True)
    for member_id, mine in rows.items():
        for _ in range(quotas[member_id] - len(mine)):
            mine.append(free.pop())
    return rows


def _different(members: Sequence[Subscriber], sizes: Sizes) -> dict[str, list[_Row]]:
    """Subscriptions differ: scarce topics first, to who has least; then single moves until none helps."""
    kept, taken = _kept(members, sizes)
    shares = {member_id: _Share(mine) for member_id, mine in kept.items()}
    wanting: dict[bytes, list[_Share]] = {}
    for member in members:
        for topic_id in member.topics:
            wanting.setdefault(topic_id, []).append(shares[member.member_id])
    topics = sorted(wanting, key=lambda topic_id: (len(wanting[topic_id]), topic_id))
    for topic_id in topics:
        least = [(share.size, order) for order, share in enumerate(wanting[topic_id])]
        heapify(least)
        for number in range(sizes[topic_id]):
            if (topic_id, number) not in taken:
                _, order = least[0]
                wanting[topic_id][order].add(topic_id, number)
                heapreplace(least, (wanting[topic_id][order].size, order))
    moved = True
    while moved:  # ends: every move lowers the sum of the squares of the sizes
        moves = [_level(topic_id, wanting[topic_id]) for topic_id in topics]
        moved = any(moves)
    return {member_id: share.rows() for member_id, share in shares.items()}


class _Share:
    """What one member gets, while it is being found out."""

    __slots__ = ("by_topic", "size")

    def __init__(self, rows: Sequence[_Row]) -> None:
        self.size = 0
        self.by_topic: dict[bytes, list[int]] = {}
        for topic_id, number in rows:
            self.add(topic_id, number)

    def add(self, topic_id: bytes, number: int) -> None:
        self.by_topic.setdefault(topic_id, []).append(number)
        self.size += 1

    def rows(self) -> list[_Row]:
        return [(topic_id, number) for topic_id, numbers in self.by_topic.items() for number in numbers]


def _level(topic_id: bytes, wanting: Sequence[_Share]) -> bool:
    """Move partitions of one topic from who has most to who has least; whether any moved."""
    moved = False
    while True:
        most = max((one for one in wanting if one.by_topic.get(topic_id)), key=_size, default=None)
        least = min(wanting, key=_size)
        if most is None or most.size - least.size < 2:
            return moved
        least.add(topic_id, most.by_topic[topic_id].pop())
        most.size -= 1
        moved = True


def _size(share: _Share) -> int:
    return share.size


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform_assignor, "range": range_assignor}
DEFAULT_ASSIGNOR = "uniform"
