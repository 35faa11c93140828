"""Evidence: bad is what failed or hangs and has not succeeded since; one slow attempt is not."""

from __future__ import annotations

from random import Random

import pytest

from agent.health.checks import SLOW_S, Bad, Slow, Tried
from agent.health.evidence import KEPT_MAX, MANY, RECENT_S, Evidence


class Hand:
    """Time that is moved by hand."""

    def __init__(self) -> None:
        self.s = 100.0

    def now(self) -> float:
        return self.s


@pytest.fixture
def hand() -> Hand:
    return Hand()


def test_what_hangs_is_bad_before_it_ends(hand: Hand) -> None:
    evidence = Evidence(hand.now)
    evidence.begin()
    assert evidence.reason(1.0) == ""
    hand.s += 1.5
    assert evidence.bad_s() == 1.5
    assert evidence.reason(1.0) == "no answer for 1.5 s"


def test_a_success_beside_a_slow_one_says_that_it_works(hand: Hand) -> None:
    """A chunk of many megabytes takes its time; a small probe beside it answers."""
    evidence = Evidence(hand.now)
    large = evidence.begin()
    hand.s += 3
    evidence.succeeded(evidence.begin())
    hand.s += 0.4
    assert evidence.bad_s() == pytest.approx(0.4), "since the success, not since the large one began"
    evidence.succeeded(large)
    assert evidence.bad_s() == 0


def test_a_failure_counts_from_its_attempts_beginning_until_a_success(hand: Hand) -> None:
    evidence = Evidence(hand.now)
    first = evidence.begin()
    hand.s += 2
    evidence.failed(first, "Denied: full")
    second = evidence.begin()
    hand.s += 1
    evidence.failed(second, "Denied: still full")
    assert evidence.bad_s() == 3
    assert evidence.reason(9.0) == "Denied: still full (for 3.0 s)"
    evidence.succeeded(evidence.begin())
    assert (evidence.bad_s(), evidence.reason(0.1)) == (0, "")


def test_a_cancelled_attempt_counts_only_when_it_had_time_and_nothing_else_worked(hand: Hand) -> None:
    evidence = Evidence(hand.now)
    hedged = evidence.begin()
    hand.s += 2
    evidence.succeeded(evidence.begin())
    evidence.given_up(hedged)
    assert evidence.reason(0.1) == ""
    soon = evidence.begin()
    hand.s += 0.1
    evidence.given_up(soon)
    assert evidence.reason(0.1) == ""
    late = evidence.begin()
    hand.s += 0.9
    evidence.given_up(late)
    assert evidence.reason(9.0).startswith("no answer within 0.9 s")


def _took(evidence: Evidence, hand: Hand, *seconds: float, timed: bool = True) -> None:
    """Attempts one after the other, each of that duration."""
    for each in seconds:
        attempt = evidence.begin(timed=timed)
        hand.s += each
        evidence.succeeded(attempt)


def test_slow_is_when_half_of_the_newest_attempts_are(hand: Hand) -> None:
    evidence = Evidence(hand.now)
    _took(evidence, hand, *[0.1] * 20, 3.0, 3.0, 3.0)
    assert evidence.slow(1.0) is None, "three of the newest eight"
    began = hand.s - 9.0
    _took(evidence, hand, 3.0)
    assert evidence.slow(1.0) == (3.0, pytest.approx(began)), "since the first of them began"
    _took(evidence, hand, *[0.1] * 5)
    assert evidence.slow(1.0) is None


def test_what_is_under_way_for_long_is_slow_before_it_ends(hand: Hand) -> None:
    evidence = Evidence(hand.now)
    _took(evidence, hand, 0.1, 0.1, 0.1, 0.1)
    began = hand.s
    attempts = [evidence.begin() for _ in range(4)]
    hand.s += 0.9
    assert evidence.slow(1.0) is None
    hand.s += 0.2
    assert evidence.slow(1.0) == (pytest.approx(1.1), pytest.approx(began))
    for each in attempts:
        evidence.given_up(each)
    assert evidence.slow(1.0) is None


def test_what_is_old_or_large_is_not_slow(hand: Hand) -> None:
    evidence = Evidence(hand.now)
    _took(evidence, hand, *[2.0] * 8)
    assert evidence.slow(1.0)
    large = [evidence.begin(timed=False) for _ in range(8)]
    hand.s += 60
    assert evidence.slow(1.0) is None, "what is old says nothing, and what is large and under way neither"
    for each in large:
        evidence.succeeded(each)
    assert evidence.slow(1.0) is None, "nor what was large"


def test_slow_counts_from_the_first_slow_attempt_for_as_long_as_it_lasts(hand: Hand) -> None:
    """Many calls a second: the newest eight never go back to where it began."""
    evidence = Evidence(hand.now)

    def slow() -> Slow | None:
        found = evidence.slow(1.0)
        return Slow("slow", *found) if found else None

    check = Tried("store write", evidence, 10.0, slow)
    _took(evidence, hand, *[2.0] * 4)
    assert check.look() is None, "in doubt"
    hand.s += SLOW_S + 2
    assert check.look() == Bad("slow", pytest.approx(8.0 + SLOW_S + 2))
    _took(evidence, hand, *[2.0] * 10)
    assert check.look() == Bad("slow", pytest.approx(28.0 + SLOW_S + 2)), "since the first of all"
    _took(evidence, hand, *[0.1] * 8)
    assert check.look() is None
    _took(evidence, hand, *[2.0] * 4)
    check.look()
    hand.s += SLOW_S + 2
    assert check.look() == Bad("slow", pytest.approx(8.0 + SLOW_S + 2)), "what was before is over"


def test_the_slowest_of_a_hundred_is_of_those_that_are_kept_and_not_old(hand: Hand) -> None:
    evidence, random, all_of_them = Evidence(hand.now), Random(7), []
    for _ in range(2 * KEPT_MAX):
        took = random.choice((0.001, 0.002, 0.5 * random.random()))
        _took(evidence, hand, took)
        all_of_them.append((hand.s, took))
        hand.s += random.choice((0.0, 0.0, 0.3))
        known = sorted(took for at, took in all_of_them[-KEPT_MAX:] if hand.s - at <= RECENT_S)
        assert evidence.late_s() == pytest.approx(known[-1 - len(known) // 100] if len(known) >= MANY else 0)
    hand.s += RECENT_S + 1
    assert evidence.late_s() == 0
    assert evidence.latency_ms() == round(1000 * took, 3), "the newest, however old"


def test_no_more_than_the_newest_are_kept(hand: Hand) -> None:
    evidence = Evidence(hand.now)
    _took(evidence, hand, *[0.02] * 6, *[0.002] * KEPT_MAX)
    assert evidence.late_s() == pytest.approx(0.002)
