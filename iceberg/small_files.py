"""Which of a table's data files are made one (pure): neighbours of one partition, in the order of offsets.

A file is *small* below half the target, so that two always fit into one. Small neighbours become one when
there are enough of them and the result has many times the rows of the largest (so a row is written anew a
bounded number of times, however long its table grows: rows add up where bytes, under compression, do not),
or when together they are not small any more. Those that have waited for long become one when that has twice
the rows of the largest, however few they are: of each partition only as many stay as its rows have binary
digits. Nothing is merged past a file that is not small: offsets of a file stay one stretch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from iceberg.groups import Group

STRETCH_MAX = 8
"""Times `merged_at`: of a longer stretch of small neighbours the cheapest are merged whatever their rows."""


class LiveFile(NamedTuple):
    """A data file that the table has: its partition, its lowest and highest offset, rows, bytes, and where it
    stands in the table's own partitioning: only files of one group become one. `row_id` and `sequence`: the
    first row's id, and by which commit the rows came, where the file itself does not say (lineage.py).
    """

    partition: int
    first: int
    last: int
    rows: int
    size: int
    location: str
    group: Group = Group()
    row_id: int | None = None
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class FileSizes:
    """What files are made to be. `target_bytes`: of one; `merged_at`: small neighbours that become one;
    `age_s`: for how long fewer of them wait, seconds.

    Bounds: `inputs_max` files of one merge; `files_per_turn_max` and `bytes_per_turn_max` that one turn of a
    topic reads; `busy_percent_max`: of a topic's time that goes into it.
    """

    target_bytes: int = 128 << 20
    merged_at: int = 16
    age_s: float = 3_600.0
    inputs_max: int = 1_000
    files_per_turn_max: int = 2_000
    bytes_per_turn_max: int = 256 << 20
    busy_percent_max: int = 25

    def is_small(self, size: int) -> bool:
        """Whether a file of so many bytes may be merged with others."""
        return size < self.target_bytes // 2


def chosen(files: Iterable[LiveFile], sizes: FileSizes, *, aged: bool = False) -> Iterator[list[LiveFile]]:
    """What is merged next: each list becomes one file. `files`: all of a table, by partition and offset.

    `aged`: they have waited for long enough, and need not be many.
    """
    for _, own in groupby(files, key=lambda each: each.partition):
        for small, stretch in groupby(own, key=lambda each: sizes.is_small(each.size)):
            if small:
                yield from _of_stretch([*stretch], sizes, aged)


def overlapping(files: Iterable[LiveFile]) -> set[str]:
    """Locations of files of one partition, in order, that lie across others: another engine made them of
    files that were no neighbours. To merge them with neighbours would mix offsets, so they stay.
    """
    found: set[str] = set()
    widest: LiveFile | None = None
    for each in files:
        if widest is not None and each.first <= widest.last:
            found |= {widest.location, each.location}
        if widest is None or each.last > widest.last:
            widest = each
    return found


def within(merges: Iterable[list[LiveFile]], sizes: FileSizes) -> tuple[list[list[LiveFile]], bool]:
    """As many of the merges as one turn may do, one at least; whether some are left."""
    taken: list[list[LiveFile]] = []
    files = size = 0
    for each in merges:
        files, size = files + len(each), size + sum(one.size for one in each)
        if taken and (files > sizes.files_per_turn_max or size > sizes.bytes_per_turn_max):
            return taken, True
        taken.append(each)
    return taken, False


def _of_stretch(stretch: Sequence[LiveFile], sizes: FileSizes, aged: bool) -> Iterator[list[LiveFile]]:
    """Of small neighbours those that are worth it: with the largest of them, else without."""
    for bits in sorted({each.rows.bit_length() for each in stretch}, reverse=True):
        alike = groupby(stretch, key=lambda each: each.rows.bit_length() <= bits)
        pieces = [piece for fit, some in alike if fit for piece in _cut([*some], sizes)]
        worth = [each for each in pieces if _worth(each, sizes, aged)]
        if worth:
            yield from worth
            return
    if len(stretch) > STRETCH_MAX * sizes.merged_at:
        yield _cheapest(stretch, sizes)


def _cut(some: Sequence[LiveFile], sizes: FileSizes) -> Iterator[list[LiveFile]]:
    """Neighbours in pieces that fit into one file."""
    piece: list[LiveFile] = []
    size = 0
    for each in some:
        if piece and (size + each.size > sizes.target_bytes or len(piece) >= sizes.inputs_max):
            yield piece
            piece, size = [], 0
        piece.append(each)
        size += each.size
    if piece:
        yield piece


def _worth(piece: Sequence[LiveFile], sizes: FileSizes, aged: bool) -> bool:
    largest, rows = max(each.rows for each in piece), sum(each.rows for each in piece)
    if len(piece) >= sizes.merged_at and rows >= largest * sizes.merged_at // 2:
        return True
    full = not sizes.is_small(sum(each.size for each in piece))
    return (full or aged) and rows >= 2 * largest


def _cheapest(stretch: Sequence[LiveFile], sizes: FileSizes) -> list[LiveFile]:
    """Of all `merged_at` neighbours those with the fewest bytes, as far as they fit into one file."""
    count = sizes.merged_at
    starts = range(len(stretch) - count + 1)
    at = min(starts, key=lambda start: sum(each.size for each in stretch[start : start + count]))
    return next(_cut(stretch[at : at + count], sizes))
