"""Which ranges with digests count, and how they are added up: nothing is lost that only an old one is of."""

from __future__ import annotations

import random

import pytest

from iceberg.spark.digested import (
    STRETCHES_MAX,
    Digested,
    added,
    added_up,
    covered,
    reaching,
    usable,
    wrapped,
)
from objectstore.offset_ranges import outside


def told(first: int, end: int, at: int = 0) -> Digested:
    """A range whose sums say which offsets are in it, each once."""
    return Digested(
        first, end, end - first, sum(range(first, end)), sum(n * n for n in range(first, end)), at
    )


def places(ranges: list[Digested]) -> list[tuple[int, int]]:
    return [(each.first, each.end) for each in ranges]


def test_sums_are_added_modulo_64_bits_and_signed() -> None:
    assert [wrapped(each) for each in (0, -1, (1 << 63) - 1, 1 << 63, (1 << 64) + 5)] == [
        0,
        -1,
        (1 << 63) - 1,
        -(1 << 63),
        5,
    ]
    most = (1 << 63) - 1
    found = added(Digested(0, 5, 5, most, -most, 7), Digested(5, 6, 1, 2, -3, 3))
    assert found == Digested(0, 6, 6, -(1 << 63) + 1, (1 << 63) - 2, 7)
    with pytest.raises(AssertionError):
        added(told(0, 5), told(6, 7))


def test_the_newest_count_and_older_ones_that_reach_further() -> None:
    """As after whole audits of a topic whose log start goes on: the range across it is of what lies below."""
    increments = [told(0, 10, 1), told(10, 20, 2), told(20, 30, 3)]
    assert reaching(increments[::-1]) == increments
    assert places(reaching([*increments, told(5, 30, 4), told(30, 40, 5)])) == [(0, 10), (5, 30), (30, 40)]
    assert places(reaching([*increments, told(0, 30, 4)])) == [(0, 30)]
    assert places(reaching([told(0, 30, 1), told(0, 10, 2)])) == [(0, 10), (0, 30)]
    assert reaching([told(5, 5, 9)]) == [], "nothing in it"


def test_random_ranges_cover_what_all_of_them_do_and_the_newest_first() -> None:
    rng = random.Random(7)
    for _ in range(300):
        ranges = []
        for at in range(rng.randrange(1, 12)):
            first = rng.randrange(30)
            ranges.append(told(first, first + rng.randrange(0, 12), at))
        found = reaching(ranges)
        assert covered(found) == covered(each for each in ranges if each.first < each.end)
        for at, each in enumerate(ranges):
            newer = covered(ranges[at + 1 :])
            reaches = any(outside(each.first, each.end, newer))
            assert (each in found) == reaches, (ranges, each)
        for few in (added_up(ranges, 4), added_up(ranges, 1_000)):
            assert covered(few) == covered(found)
            assert len(few) <= len(found)
            assert all(each[:5] == told(each.first, each.end)[:5] for each in few), "each offset once"


def test_ranges_of_a_period_that_meet_become_one() -> None:
    ranges = [told(at * 10, at * 10 + 10, at) for at in range(10)]
    assert added_up(ranges, 5) == [told(0, 50, 4), told(50, 100, 9)]
    assert places(added_up(ranges[:3] + ranges[4:], 100)) == [(0, 30), (40, 100)]


def test_what_is_beyond_the_end_or_may_have_left_with_its_records_does_not_count() -> None:
    ranges = [told(0, 10, 1), told(10, 20, 2), told(20, 30, 3)]
    assert usable(ranges, 15, 30) == ranges
    assert usable(ranges, 15, 29) == ranges[:2], "the topic lost what was read then"
    assert usable(ranges, 15, 30, follows=True) == ranges[2:]
    assert usable(ranges, 15, 30, compacted=True) == ranges


def test_of_a_compacted_topic_none_counts_behind_what_has_to_be_read() -> None:
    """A newer record of its key may be among those with digests."""
    ranges = [told(10, 20, 2), told(25, 30, 3)]
    assert usable(ranges, 0, 40, compacted=True) == []
    assert usable(ranges, 10, 40, compacted=True) == ranges[:1], "below the start nothing is to be read"
    assert usable(ranges, 22, 40, compacted=True) == ranges[:1]
    assert usable(ranges, 25, 40, compacted=True) == ranges


def test_stretches_without_a_digest_are_bounded() -> None:
    ranges = [told(at * 10, at * 10 + 5, at) for at in range(STRETCHES_MAX + 5)]
    found = usable(ranges, 0, 10_000)
    assert found == ranges[:STRETCHES_MAX]
    assert len(list(outside(0, 10_000, covered(found)))) == STRETCHES_MAX
