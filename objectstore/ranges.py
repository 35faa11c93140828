"""Which byte ranges are worth reading together. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """Bytes [start, start + length) read at once; `members` are the positions of the ranges it covers."""

    start: int
    length: int
    members: tuple[int, ...]


def coalesce(ranges: Sequence[tuple[int, int]], gap_max: int, span_max: int) -> list[Span]:
    """Join (start, length) ranges that lie at most `gap_max` bytes apart into spans of at most `span_max`.

    A single range above `span_max` stays whole. Ranges may come in any order and overlap.
    """
    order = sorted(range(len(ranges)), key=ranges.__getitem__)
    spans: list[Span] = []
    start = end = 0
    members: list[int] = []
    for index in order:
        first, length = ranges[index]
        last = first + length
        if members and first - end <= gap_max and max(end, last) - start <= span_max:
            end = max(end, last)
        else:
            if members:
                spans.append(Span(start, end - start, tuple(members)))
            start, end, members = first, last, []
        members.append(index)
    if members:
        spans.append(Span(start, end - start, tuple(members)))
    return spans
