"""Offset ranges [start, end) against others that are in order and apart from each other. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol


class Range(Protocol):
    """Offsets [start, end)."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


class Tile(NamedTuple):
    """Offsets [start, end), all of them in one of the others, or none."""

    start: int
    end: int
    covered: bool


def tiles(start: int, end: int, ranges: Sequence[Range]) -> Iterator[Tile]:
    """What of [start, end) lies in one of `ranges` and what does not, in order and without gaps."""
    place = bisect_right(ranges, start, key=lambda each: each.end) if ranges else 0
    while start < end and place < len(ranges) and ranges[place].start < end:
        found = ranges[place]
        if found.start > start:
            yield Tile(start, found.start, covered=False)
        stop = min(found.end, end)
        yield Tile(max(start, found.start), stop, covered=True)
        start, place = stop, place + 1
    if start < end:
        yield Tile(start, end, covered=False)


def covered(start: int, end: int, ranges: Sequence[Range]) -> bool:
    """Whether all of [start, end) lies in `ranges`."""
    return all(tile.covered for tile in tiles(start, end, ranges))


def covered_to(offset: int, ranges: Sequence[Range]) -> int:
    """The first offset from `offset` on that lies in none of `ranges`."""
    for found in ranges[bisect_right(ranges, offset, key=lambda each: each.end) :] if ranges else ():
        if found.start > offset:
            break
        offset = found.end
    return offset


def outside(start: int, end: int, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The stretches of [start, end) that lie in none of these, which are in order and apart."""
    for first, until in ranges:
        if start < min(first, end):
            yield start, min(first, end)
        start = max(start, until)
    if start < end:
        yield start, end


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, those that touch or overlap as one."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
