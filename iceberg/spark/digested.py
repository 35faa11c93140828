"""Ranges of offsets of which an audit kept a digest: which of them count, and how they are added up. Pure.

Such a range was found equal: a consumer read `records` there, and their hashes add up to two sums. Sums of
ranges that meet may be added. Ranges may overlap, as whole audits compare anew what increments had compared:
the newest counts, and older ones as far as they reach further.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from objectstore.offset_ranges import outside

STRETCHES_MAX = 32
"""Of a partition's offsets without a digest; behind so many no digest counts, and the topic is read."""
_TWO_64 = 1 << 64

Stretch = tuple[int, int]
"""The first offset and that behind the last."""


class Digested(NamedTuple):
    """What an audit found equal of a partition. `lower`, `upper`: sums of the lower and upper 32 bits of the
    records' hashes, modulo 2⁶⁴ and signed. `at_us`: when, microseconds of Unix time; of several the newest.
    """

    first: int
    end: int
    records: int
    lower: int
    upper: int
    at_us: int = 0

    @property
    def sums(self) -> tuple[int, int, int]:
        """What has to be the same."""
        return self.records, self.lower, self.upper


def wrapped(value: int) -> int:
    """Modulo 2⁶⁴, as a signed number of 64 bits."""
    return (value + _TWO_64 // 2) % _TWO_64 - _TWO_64 // 2


def added(one: Digested, other: Digested) -> Digested:
    """Of two ranges that meet."""
    assert one.end == other.first, (one, other)
    sums = one.records + other.records, wrapped(one.lower + other.lower), wrapped(one.upper + other.upper)
    return Digested(one.first, other.end, *sums, max(one.at_us, other.at_us))


class _Cover:
    """Offsets that ranges cover, which grow."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def has(self, first: int, end: int) -> bool:
        place = bisect_right(self._starts, first) - 1
        return place >= 0 and self._ends[place] >= end

    def add(self, first: int, end: int) -> None:
        low, high = bisect_left(self._ends, first), bisect_right(self._starts, end)
        if low < high:
            first, end = min(first, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [first], [end]


def reaching(ranges: Iterable[Digested]) -> list[Digested]:
    """Those that count, by their first offsets: the newest, and older ones that reach further."""
    found, cover = list[Digested](), _Cover()
    for each in sorted(ranges, key=lambda one: (one.at_us, one.end - one.first), reverse=True):
        if each.first < each.end and not cover.has(each.first, each.end):
            cover.add(each.first, each.end)
            found.append(each)
    return sorted(found)


def covered(ranges: Iterable[Digested]) -> list[Stretch]:
    """The offsets in these ranges, in order and apart."""
    found: list[Stretch] = []
    for each in sorted(ranges):
        if found and each.first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], each.end)
        else:
            found.append((each.first, each.end))
    return found


def usable(
    ranges: Iterable[Digested], start: int, end: int, *, follows: bool = False, compacted: bool = False
) -> list[Digested]:
    """The ranges by which rows of a partition can be judged that has records from `start` to `end`.

    A range that ends beyond is of records that are lost. A table that `follows` its topic may lack what lies
    below the start. Of a topic that is `compacted` a record without digest may have gone for one with; so
    there is none behind the first offset that is to be read.
    """
    found = reaching(each for each in ranges if each.end <= end and (not follows or each.first >= start))
    gaps = list(outside(0, end, covered(found)))
    ends = [first for first, _ in gaps[STRETCHES_MAX - 1 :]]
    if compacted:
        ends += [max(first, start) for first, until in gaps if until > start]
    return [each for each in found if each.end <= min(ends, default=end)]


def added_up(ranges: Iterable[Digested], period_us: int) -> list[Digested]:
    """The same in fewer: those that count, and of each period those that meet as one."""
    open_ended: dict[tuple[int, int], Digested] = {}
    found: list[Digested] = []
    for each in reaching(ranges):
        period = each.at_us // period_us
        before = open_ended.pop((period, each.first), None)
        whole = each if before is None else added(before, each)
        if (period, whole.end) in open_ended:  # one that begins elsewhere
            found.append(open_ended.pop((period, whole.end)))
        open_ended[period, whole.end] = whole
    return sorted([*found, *open_ended.values()])
