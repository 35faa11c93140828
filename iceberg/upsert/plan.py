"""What a turn of a latest table takes, and which of its files it touches (pure).

The files of one Kafka partition are a *run*: sorted by key, each key in one file. A file owns the keys from
its low bound up to the next file's; what lies before the first is the first's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from iceberg.small_files import LiveFile


class KeyFile(NamedTuple):
    """A data file of a latest table: its partition, the low bound of its keys, rows, bytes."""

    partition: int
    low: bytes
    rows: int
    size: int
    location: str


@dataclass(frozen=True, slots=True)
class Take:
    """Rows of one Kafka partition with start ≤ offset < end, and the append table's files that have them."""

    partition: int
    start: int
    end: int
    files: tuple[LiveFile, ...]

    @property
    def bytes_per_row(self) -> int:
        """Stored bytes of a row in these files, about; at least 1."""
        return max(1, sum(each.size for each in self.files) // max(1, sum(each.rows for each in self.files)))


class Share(NamedTuple):
    """A stretch of new rows (first ≤ row < end) and the file that owns their keys; -1: there is none yet."""

    file: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a turn takes at most: stored bytes of files that it reads, and offsets of one partition."""

    bytes_max: int
    span_max: int = 1 << 62


def takes(
    files: Iterable[LiveFile], have: Sequence[int], upto: Sequence[int], bounds: Bounds, first: int = 0
) -> tuple[list[Take], bool]:
    """What is new, oldest first in each partition, and whether more is left.

    `have`, `upto`: next offsets of the latest and of the append table, by partition. The first partition that
    has anything new gives one file at least; the count begins at partition `first` and goes round.
    """
    by_partition: dict[int, list[LiveFile]] = {}
    for each in files:
        by_partition.setdefault(each.partition, []).append(each)
    found: list[Take] = []
    left, more = bounds.bytes_max, False
    for number in range(len(upto)):
        partition = (first + number) % len(upto)
        start, end = have[partition] if partition < len(have) else 0, upto[partition]
        if start >= end:
            continue
        if left <= 0 and found:
            more = True
            continue
        wanted = sorted(each for each in by_partition.get(partition, ()) if start <= each.last < end)
        taken, stop = _within(wanted, start, end, replace(bounds, bytes_max=left))
        left -= sum(each.size for each in taken)
        more |= stop < end
        found.append(Take(partition, start, stop, tuple(taken)))
    return found, more


def _within(wanted: Sequence[LiveFile], start: int, end: int, bounds: Bounds) -> tuple[list[LiveFile], int]:
    """The first files, at least one, and the offset up to which they have all rows.

    Files of a partitioned table lie across each other: it ends before the first one that is left out.
    """
    size = count = 0
    for each in wanted:
        if count and size + each.size > bounds.bytes_max:
            break
        size, count = size + each.size, count + 1
    while count < len(wanted) and wanted[count].first <= start:
        count += 1  # without these nothing would be whole
    stop = wanted[count].first if count < len(wanted) else end
    if wanted:
        stop = min(stop, max(start, wanted[0].first) + bounds.span_max)
    return [each for each in wanted[:count] if each.first < stop], stop


def shares(run: Sequence[KeyFile], count: int, key: Callable[[int], bytes]) -> list[Share]:
    """Which file owns which of `count` new rows, sorted by key; only files that own any.

    `key`: of a row. Time: logarithmic in the rows for each file.
    """
    if not count:
        return []
    if not run:
        return [Share(-1, 0, count)]
    rows = range(count)
    starts = [0, *(bisect_left(rows, each.low, key=key) for each in run[1:]), count]
    return [
        Share(number, starts[number], starts[number + 1])
        for number in range(len(run))
        if starts[number] < starts[number + 1]
    ]


def groups(run: Sequence[KeyFile], touched: Sequence[Share], target: int) -> Iterator[list[Share]]:
    """The touched files in stretches of neighbours: each stretch becomes files anew, together.

    A neighbour that is small (below a quarter of `target` bytes) joins a stretch though nothing new is its.
    """
    by_file = {each.file: each for each in touched}
    for number in sorted(by_file):
        for beside in (number - 1, number + 1):
            known = beside in by_file or not 0 <= beside < len(run)
            if not known and run[beside].size < target // 4:
                at = by_file[number].first if beside < number else by_file[number].end
                by_file[beside] = Share(beside, at, at)
    group: list[Share] = []
    for number in sorted(by_file):
        if group and group[-1].file + 1 != number:
            yield group
            group = []
        group.append(by_file[number])
    if group:
        yield group


def in_runs(files: Iterable[KeyFile]) -> dict[int, list[KeyFile]]:
    """The files by partition, each in the order of keys. Raises ValueError when two have one low bound."""
    runs: dict[int, list[KeyFile]] = {}
    for each in sorted(files):
        run = runs.setdefault(each.partition, [])
        if run and run[-1].low == each.low:
            raise ValueError(f"{run[-1].location} and {each.location} both begin at key {each.low[:40]!r}")
        run.append(each)
    return runs


@dataclass(frozen=True, slots=True)
class Pace:
    """When new rows are folded in. `age_s`: they wait so long at most, seconds; `share_percent`: or until
    there are so many of them, percent of the rows that the table has.
    """

    age_s: float = 300.0
    share_percent: int = 10

    def due(self, waiting: int, rows: int, waited_s: float) -> bool:
        """Whether it is time. `waiting`: new rows; `rows`: that the table has."""
        return waiting > 0 and (waited_s >= self.age_s or 100 * waiting >= self.share_percent * rows)
