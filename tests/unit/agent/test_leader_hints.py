"""Leaders are hints: spread evenly, the same on every agent, moved only when they must."""

from __future__ import annotations

from collections import Counter

from agent.cluster import NO_BROKER, LeaderHints


def leaders(nodes: list[int], handles: int = 3000) -> list[int]:
    hints = LeaderHints()
    hints.update(nodes)
    return [hints.leader(handle) for handle in range(handles)]


def test_no_broker_no_leader() -> None:
    assert set(leaders([])) == {NO_BROKER}


def test_every_agent_names_the_same_leader() -> None:
    assert leaders([3, 1, 2]) == leaders([2, 3, 1])


def test_partitions_spread_evenly() -> None:
    counts = Counter(leaders([1, 2, 3]))
    assert all(850 < counts[node] < 1150 for node in (1, 2, 3))


def test_only_the_partitions_of_an_agent_that_left_move() -> None:
    before, after = leaders([1, 2, 3]), leaders([1, 3])
    assert all(b == a for b, a in zip(before, after, strict=True) if b != 2)


def test_hints_follow_the_set_of_brokers() -> None:
    hints = LeaderHints()
    hints.update([7])
    assert hints.leader(1) == 7
    assert hints.coordinator("a-group") == 7
    hints.update([8])
    assert hints.leader(1) == 8
    assert hints.coordinator("a-group") == 8
