"""Slow is who takes many times as long as most others; not who is told lies, and not all at once."""

from __future__ import annotations

import pytest

from agent.health.checks import SLOW_S, Bad, Slow, Tried
from agent.health.evidence import MANY, Evidence
from agent.health.pace import NEVER_S, Bounds
from tests.unit.agent.health.test_evidence import Hand

BOUNDS = Bounds(min_s=0.1, max_s=1.0, ratio=10)


@pytest.mark.parametrize(
    ("others", "bound_s"),
    [
        ((), 1.0),
        ((0.005,), 1.0),  # one other is no majority: its word alone takes nobody out
        ((0.9,), 1.8),
        ((0.005, 0.005), 0.1),
        ((0.04, 0.02), 0.4),
        ((0.000001, 0.3), 1.0),  # one of two that claims wonders
        ((0.000001, 0.3, 0.3), 1.0),
        ((600.0, 0.02, 0.02), 0.2),  # one that is slow hides nobody
        ((2.0, 2.0), 4.0),  # all are slow
    ],
)
def test_how_long_half_of_the_attempts_may_take(others: tuple[float, ...], bound_s: float) -> None:
    assert BOUNDS.usual_s(others) == pytest.approx(bound_s)


def test_the_slowest_of_a_hundred_are_compared_only_with_two_others_who_know() -> None:
    assert [BOUNDS.late_s(()), BOUNDS.late_s((0.1,))] == [NEVER_S, NEVER_S]
    assert BOUNDS.late_s((0.05, 0.05)) == 1.0
    assert BOUNDS.late_s((0.1, 0.3)) == pytest.approx(3.0)


def test_slow_counts_once_the_others_could_have_said_the_same_and_then_from_its_first_attempt() -> None:
    hand = Hand()
    began, slow = hand.s - 4, [True]
    check = Tried(
        "store write", Evidence(hand.now), 1.0, lambda: Slow("slow", 2.0, began) if slow[0] else None
    )
    assert (check.slow, check.look()) == (False, None)
    hand.s += SLOW_S + 1.9
    assert (check.slow, check.look()) == (True, None)
    slow[0] = False
    assert check.look() is None
    slow[0] = True
    hand.s += 0.3
    assert check.look() is None, "what was over before it was known begins anew"
    hand.s += SLOW_S + 1.9
    assert check.look() is None
    hand.s += 0.2
    assert check.look() == Bad("slow", pytest.approx(hand.s - began))
    slow[0] = False
    assert (check.look(), check.slow) == (None, False)


def test_what_the_slowest_take_is_known_of_many_recent_attempts_only() -> None:
    hand = Hand()
    evidence = Evidence(hand.now)
    for number in range(MANY):
        assert evidence.late_s() == 0
        attempt = evidence.begin()
        hand.s += 5 if number == 90 else 2 if number == 91 else 0.01
        evidence.succeeded(attempt)
    assert evidence.late_s() == pytest.approx(2.0), "one late attempt of a hundred says nothing"
    assert evidence.typical_s() == pytest.approx(0.01)
    assert evidence.newest_s() == pytest.approx(0.01)
    attempts = evidence.begin(), evidence.begin(timed=False)
    hand.s += 0.5
    assert evidence.newest_s() == pytest.approx(0.5), "what is under way is told"
    evidence.succeeded(attempts[0])
    hand.s += 0.5
    assert evidence.newest_s() == pytest.approx(0.5), "but not what was large"
    hand.s += 60
    assert (evidence.late_s(), evidence.newest_s()) == (0, 0)
