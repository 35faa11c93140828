"""Which pieces of a log go by age and by size: Kafka's rules, over pieces instead of segments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.background.retention.planner import Piece, Rules, new_start, rules_of

NOW = 1_000_000


def start(ages: list[int | None], rules: Rules, log_start: int = 0, sizes: list[int] | None = None) -> int:
    """The new log start of pieces of ten offsets each, of these ages in ms (None: without timestamp)."""
    sizes = sizes or [100] * len(ages)
    pieces = [
        Piece(10 * n + 10, size, -1 if age is None else NOW - age)
        for n, (age, size) in enumerate(zip(ages, sizes, strict=True))
    ]
    return new_start(pieces, log_start, sum(sizes), rules, NOW)


@pytest.mark.parametrize(
    ("ages", "left"),
    [
        ([], 0),
        ([50, 40], 0),
        ([51, 50], 10),
        ([90, 80, 70], 30),
        ([90, 10, 80], 10),
        ([10, 90], 0),
        ([None, 90, 10], 20),
        ([None, None], 0),
        ([None, 10, 90], 0),
        ([90, None, 10], 10),
        ([-5, 90], 0),
    ],
)
def test_by_age_the_first_piece_that_stays_ends_it(ages: list[int | None], left: int) -> None:
    assert start(ages, Rules(50, -1)) == left
    assert start(ages, Rules(-1, -1)) == 0


@pytest.mark.parametrize(
    ("limit", "left"), [(0, 40), (50, 30), (99, 30), (100, 30), (101, 20), (300, 10), (301, 0), (1000, 0)]
)
def test_by_size_at_least_the_limit_stays(limit: int, left: int) -> None:
    assert start([1, 1, 1, 1], Rules(-1, limit)) == left


def test_whichever_goes_further_counts() -> None:
    assert start([90, 90, 1, 1], Rules(50, 350)) == 20
    assert start([90, 1, 1, 1], Rules(50, 100)) == 30
    assert start([None, 90, 1], Rules(50, 250)) == 20
    assert start([1, 90], Rules(50, 100)) == 10, "what expired behind it goes at the next look"


def test_the_log_start_never_goes_back() -> None:
    assert start([1, 1], Rules(50, -1), log_start=7) == 7
    assert start([90, 1], Rules(50, -1), log_start=7) == 10


def test_only_a_policy_that_deletes_has_limits() -> None:
    assert rules_of({"cleanup.policy": "compact", "retention.ms": "5"}, {}).keeps_all
    assert rules_of({"cleanup.policy": "", "retention.ms": "5"}, {}).keeps_all
    assert rules_of({"cleanup.policy": "compact,delete", "retention.ms": "5"}, {}) == Rules(5, -1)
    assert rules_of({}, {}) == Rules(604_800_000, -1)


AGES = st.lists(st.none() | st.integers(-20, 120), max_size=12)


@given(AGES, st.integers(-1, 100), st.integers(-1, 1300), st.data())
def test_it_agrees_with_kafkas_two_passes(
    ages: list[int | None], ms: int, limit: int, data: st.DataObject
) -> None:
    """Age first, then size over what is left, each over the front only (UnifiedLog.deleteOldSegments)."""
    sizes = [data.draw(st.integers(1, 200)) for _ in ages]
    given_ages = [0 if age is None else age for age in ages]  # Kafka gives every segment an age
    left = list(zip(given_ages, sizes, range(len(ages)), strict=True))
    while left and 0 <= ms < left[0][0]:
        left.pop(0)
    diff = sum(size for _, size, _ in left) - limit
    while left and limit >= 0 and diff - left[0][1] >= 0:
        diff -= left.pop(0)[1]
    assert start(list(given_ages), Rules(ms, limit), sizes=sizes) == 10 * (len(ages) - len(left))
