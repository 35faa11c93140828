"""Ranges against others, compared with sets of offsets."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from objectstore.offset_ranges import covered, covered_to, joined, tiles


class Pair(NamedTuple):
    """Offsets [start, end)."""

    start: int
    end: int


numbers = st.integers(0, 30)
pairs = st.tuples(numbers, numbers).filter(lambda pair: pair[0] < pair[1])


@given(st.lists(pairs, max_size=8), pairs)
def test_they_tell_which_offsets_are_in_others(others: list[tuple[int, int]], one: tuple[int, int]) -> None:
    inside = {offset for start, end in others for offset in range(start, end)}
    apart = joined(others)
    assert {offset for start, end in apart for offset in range(start, end)} == inside
    assert all(before[1] < after[0] for before, after in pairwise(apart))
    ranges = [Pair(*each) for each in apart]
    found = list(tiles(*one, ranges))
    assert [o for tile in found for o in range(tile.start, tile.end)] == list(range(*one))
    assert all((o in inside) == tile.covered for tile in found for o in range(tile.start, tile.end))
    assert covered(*one, ranges) == (set(range(*one)) <= inside)
    assert covered_to(one[0], ranges) == next(o for o in range(one[0], 99) if o not in inside)


@given(st.lists(st.integers(0, 20), min_size=1, unique=True), pairs)
def test_ranges_that_touch_are_walked_through(cuts: list[int], one: tuple[int, int]) -> None:
    ranges = [Pair(cut, cut + 1) for cut in sorted(cuts)]
    found = list(tiles(*one, ranges))
    assert [o for tile in found for o in range(tile.start, tile.end)] == list(range(*one))
    assert covered_to(one[0], ranges) == next(o for o in range(one[0], 99) if o not in cuts)
