"""Coalesced ranges cover what was asked for, within their limits, in few reads."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from objectstore.ranges import Span, coalesce

ranges = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 80)), max_size=20)


@given(ranges, st.integers(0, 60), st.integers(1, 200))
def test_every_range_is_in_exactly_one_span(asked: list[tuple[int, int]], gap: int, span_max: int) -> None:
    spans = coalesce(asked, gap, span_max)
    assert sorted(member for span in spans for member in span.members) == list(range(len(asked)))
    for span in spans:
        for member in span.members:
            start, length = asked[member]
            assert span.start <= start
            assert start + length <= span.start + span.length
        assert (
            span.length <= span_max
            or len({asked[member] for member in span.members}) == 1
            or any(asked[member][1] > span_max for member in span.members)
        )


@given(ranges, st.integers(0, 60))
def test_without_a_size_limit_spans_lie_further_apart_than_the_gap(
    asked: list[tuple[int, int]], gap: int
) -> None:
    spans = coalesce(asked, gap, 1 << 30)
    for one, two in itertools.pairwise(spans):
        assert two.start - (one.start + one.length) > gap


def test_near_ranges_are_one_read() -> None:
    assert coalesce([(100, 10), (0, 50), (60, 10)], 10, 1000) == [Span(0, 70, (1, 2)), Span(100, 10, (0,))]
    assert coalesce([], 10, 1000) == []
