"""Which data files of a table become one (pure): the steps of a maintenance job, each one commit.

A file of a topic's table holds rows of one Kafka partition, and offsets of a file shall stay one stretch: so
small neighbours become one, and nothing is merged past a file that is not small. Where rows are sorted by
something else than offsets, a step makes one file: two would have offsets of the same stretch.

A step names files by their partition and the offsets at which they begin, which is all that a procedure's
`where` can say of them: of a table partitioned by columns it has files of several partition values, of which
each becomes a file of its own, and it ends before a value's files would be merged past a large one of that
value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

STEP_BYTES_MAX = 1 << 30
"""Bytes of the files that one commit makes anew, about."""
STEP_FILES_MAX = 5_000
"""Files of one commit: Floe's catalog takes 20,000."""


class DataFile(NamedTuple):
    """A data file as the table's metadata names it. `values`: its spec's partition values, as JSON;
    `partition`, `first`, `last`: Kafka's partition and offsets, 0 in tables that are no topic's.
    """

    size: int
    spec_id: int = 0
    values: str = ""
    partition: int = 0
    first: int = 0
    last: int = 0

    @property
    def group(self) -> tuple[int, str]:
        """Only files of one group become one."""
        return self.spec_id, self.values


class Step(NamedTuple):
    """One commit: files of a Kafka partition and a spec that begin at offsets `first` to `last`."""

    partition: int
    spec_id: int
    first: int
    last: int
    files: int
    size: int

    def meets_others(self, file: DataFile) -> bool:
        """Whether its condition selects a file of another spec, which no file of its own may take in."""
        return file.spec_id != self.spec_id and file.first <= self.last and file.last >= self.first

    def where(self) -> str:
        """The condition that selects its files, and none that begins behind them."""
        return (
            f"kafka.partition = {self.partition} AND kafka.offset >= {self.first} "
            f"AND kafka.offset <= {self.last}"
        )


@dataclass(frozen=True, slots=True)
class Sizes:
    """What files are made to be. `target_bytes` of one, small is below half of it; `files_min`: small
    neighbours that are worth a rewrite; fewer are when they are larger than the target together.
    `is_sorted`: by the table's own order, so that a step has of a group no more than makes one file, and
    fewer are worth it when that file is not small.
    """

    target_bytes: int
    files_min: int
    step_bytes_max: int = STEP_BYTES_MAX
    is_sorted: bool = False

    @property
    def small_below(self) -> int:
        """Bytes from which on a file is left alone."""
        return self.target_bytes // 2

    @property
    def group_bytes_max(self) -> int:
        """Bytes of one group's files that one step may take."""
        return self.target_bytes if self.is_sorted else self.step_bytes_max

    def worth(self, files: Iterable[DataFile]) -> tuple[int, int]:
        """How many of these small files, and of how many bytes, would be made anew."""
        sizes: dict[tuple[int, str], list[int]] = {}
        for each in files:
            sizes.setdefault(each.group, []).append(each.size)
        some = [own for own in sizes.values() if self._are_worth(own)]
        return sum(map(len, some)), sum(map(sum, some))

    def _are_worth(self, sizes: list[int]) -> bool:
        enough = self.small_below if self.is_sorted else self.target_bytes
        return len(sizes) > 1 and (len(sizes) >= self.files_min or sum(sizes) > enough)


def steps(files: Iterable[DataFile], sizes: Sizes) -> Iterator[Step]:
    """What there is to do in a topic's table; `files`: all of it, by partition and first offset."""
    for partition, own in groupby(files, key=lambda each: each.partition):
        here = [*own]
        small = [each for each in here if each.size < sizes.small_below]
        mixed = len({each.spec_id for each in small}) > 1
        for some in _stretches(here, sizes):
            count, size = sizes.worth(some)
            step = Step(partition, some[0].spec_id, some[0].first, some[-1].first, count, size)
            if count and not (mixed and any(map(step.meets_others, small))):
                yield step


def _stretches(files: Iterable[DataFile], sizes: Sizes) -> Iterator[list[DataFile]]:
    """Small files of one Kafka partition, as many as one step may have."""
    stretch = _Stretch()
    for each in files:
        if each.size >= sizes.small_below:
            stretch.pass_by(each)
            continue
        if not stretch.takes(each, sizes):
            if stretch.files:
                yield stretch.files
            stretch = stretch.next(each)
        stretch.add(each)
    if stretch.files:
        yield stretch.files


class _Reach(NamedTuple):
    """Up to which offset a group's small files go, and of how many bytes they are."""

    last: int = 0
    size: int = 0


@dataclass
class _Stretch:
    """The step that grows. `reach`: of each group its small files, with those of earlier steps that its
    offsets touch, so that its condition may select them; `shut`: groups of which a large file came since.
    """

    files: list[DataFile] = field(default_factory=list)
    size: int = 0
    reach: dict[tuple[int, str], _Reach] = field(default_factory=dict)
    shut: set[tuple[int, str]] = field(default_factory=set)

    def takes(self, file: DataFile, sizes: Sizes) -> bool:
        if not self.files:
            return file.group not in self.shut
        fits = self.size + file.size <= sizes.step_bytes_max and len(self.files) < STEP_FILES_MAX
        fits = fits and self._of(file.group).size + file.size <= sizes.group_bytes_max
        return fits and file.spec_id == self.files[0].spec_id and file.group not in self.shut

    def _of(self, group: tuple[int, str]) -> _Reach:
        return self.reach.get(group, _Reach())

    def pass_by(self, large: DataFile) -> None:
        if large.group in self.reach:
            self.shut.add(large.group)

    def add(self, file: DataFile) -> None:
        self.files.append(file)
        self.size += file.size
        known = self._of(file.group)
        self.reach[file.group] = _Reach(max(file.last, known.last), known.size + file.size)

    def next(self, begins: DataFile) -> _Stretch:
        kept = {group: reach for group, reach in self.reach.items() if reach.last >= begins.first}
        return _Stretch(reach=kept)
