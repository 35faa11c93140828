"""Which records the next commit takes: pure, from the state's partitions and the table's ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from coordination.state.transaction_types import Extent
from iceberg.ledger import Range
from objectstore.merged import DamagedIndex, MergedRanges, Partition, SlicePlan
from objectstore.naming import SliceRef
from objectstore.reader import ChunkMissing
from objectstore.transactions import Aborted


class ReadablePartition(Partition, Protocol):
    """What the planner needs of a partition (coordination/state)."""

    @property
    def index(self) -> int: ...
    @property
    def last_stable(self) -> int: ...
    def aborted(self, start: int, end: int) -> list[Aborted]: ...


@dataclass(frozen=True, slots=True)
class Lost:
    """Where merged records of a partition are, from `start` on: an object that says it is gone or damaged."""

    partition: int
    start: int
    trouble: ChunkMissing | DamagedIndex


class Unplanned(Exception):
    """Merged records of some partitions cannot be found. `lost`: the first of each such partition."""

    def __init__(self, lost: Sequence[Lost]) -> None:
        super().__init__(f"{len(lost)} partitions; the first, {lost[0].partition}: {lost[0].trouble}")
        self.lost = lost


LOOKS_MAX = 8  # rounds of looking up merged ranges for one commit


@dataclass(frozen=True, slots=True)
class FilePlan:
    """One data file: the offsets it takes and the slices that hold them; what was aborted gives no rows."""

    range: Range
    slices: tuple[SliceRef, ...]
    aborted: tuple[Aborted, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """The files of one commit, by partition; `more` when records are left for the next.

    `too_small`: of some partition nothing fits within the bounds, because a transaction is larger; try with
    larger ones, or it waits for as long as other partitions have anything to give.
    """

    files: tuple[FilePlan, ...]
    more: bool
    too_small: bool = False


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A partition with records that the table lacks, from `start` on; `source` plans them."""

    partition: ReadablePartition
    start: int
    source: SlicePlan


def plan(
    partitions: Sequence[ReadablePartition],
    ledger: Sequence[int],
    older: Mapping[int, SlicePlan],
    *,
    rows_max: int,
    bytes_max: int,
    file_rows_max: int,
    file_bytes_max: int,
    extents: Sequence[Extent] = (),
    factor: int = 1,
    limits: Mapping[int, int] | None = None,
) -> CommitPlan:
    """The oldest records that the table lacks, shared evenly among partitions. Bytes as stored in chunks.

    Each partition with anything new gives at least its first slice (or `rows_max` of it), so that none waits
    for ever. Records below a partition's log start are gone from the topic: the table goes on after them.
    `older` (see `older_slices`) plans merged ranges; a partition that needs one and has none waits for the
    next commit. Of the transactions `extents` each is taken whole, in all its partitions, or not at all; with
    `factor` a partition may give so many files for that. `limits`: by partition, offsets that none may reach.
    """
    limits = limits or {}
    stable = {p.index: min(p.last_stable, limits.get(p.index, p.last_stable)) for p in partitions}
    starts = {partition.index: _start(partition, ledger) for partition in partitions}
    waiting, late = [], False
    for partition in partitions:
        start = starts[partition.index]
        each = _Waiting(partition, start, older.get(partition.index, partition.slices))
        if start < stable[partition.index] and _reaches(each):
            waiting.append(each)
        else:
            late |= start < stable[partition.index]
    if not waiting:
        return CommitPlan((), more=late)
    whole = {each.partition.index: stable[each.partition.index] for each in waiting}
    possible = consistent({**starts, **whole}, starts, extents)
    share_bytes = min(file_bytes_max, bytes_max // len(waiting)) * factor
    share_rows = max(1, min(file_rows_max, rows_max // len(waiting))) * factor
    reaches = {
        each.partition.index: _reach(each, possible[each.partition.index], share_rows, share_bytes)
        for each in waiting
    }
    ends = consistent({**starts, **reaches}, starts, extents)
    files = [
        file
        for each in waiting
        for file in _files(each, ends[each.partition.index], file_rows_max, file_bytes_max)
    ]
    left = any(ends[index] < end for index, end in possible.items())
    stuck = any(ends[index] == starts[index] < end for index, end in possible.items())
    return CommitPlan(tuple(files), more=late or left, too_small=stuck)


def consistent(
    ends: Mapping[int, int], starts: Mapping[int, int], extents: Sequence[Extent]
) -> dict[int, int]:
    """The highest ends, by partition, at or below the given ones between which no transaction is torn.

    What lies below a start is in the table or gone: it holds nothing back. Time: each transaction is taken
    out once per partition, however they lean on each other.
    """
    found = dict(ends)
    markers: dict[int, list[tuple[int, int]]] = {index: [] for index in found}
    parts: list[list[tuple[int, int]]] = []
    for number, extent in enumerate(extents):
        rows = [
            (index, max(first, starts[index]), marker)
            for index, (first, marker) in extent.items()
            if marker >= starts[index]
        ]
        parts.append([(index, first) for index, first, _ in rows])
        for index, _, marker in rows:
            markers[index].append((marker, number))
    for each in markers.values():
        each.sort()
    lowered = list(found)
    while lowered:
        index = lowered.pop()
        highest = markers[index]
        while highest and highest[-1][0] >= found[index]:
            _, number = highest.pop()
            for other, first in parts[number]:
                if found[other] > first:
                    found[other] = first
                    lowered.append(other)
    return found


async def older_slices(
    merged: MergedRanges,
    partitions: Sequence[ReadablePartition],
    ledger: Sequence[int],
    bytes_max: int,
    limits: Mapping[int, int] | None = None,
) -> dict[int, SlicePlan]:
    """By partition index, what plans the records that the table lacks where they are merged already.

    `limits` as for `plan`. Raises Unplanned and what the store raises.
    """
    limits = limits or {}
    older: dict[int, SlicePlan] = {}
    lost: list[Lost] = []  # all of them at once: a plan for each would be a plan of all partitions for each
    for _ in range(LOOKS_MAX):  # what was a tail may be merged while another partition is looked up
        missing = [
            (partition, start)
            for partition in partitions
            if (start := _start(partition, ledger)) < partition.slices.first_offset
            and start < min(partition.last_stable, limits.get(partition.index, partition.last_stable))
            and partition.index not in older
        ]
        if not missing or lost:
            break
        for partition, start in missing:
            try:
                older[partition.index] = await merged.slices(partition, start, bytes_max)
            except (ChunkMissing, DamagedIndex) as error:
                lost.append(Lost(partition.index, start, error))
    if lost:
        raise Unplanned(lost)
    return older


def _start(partition: ReadablePartition, ledger: Sequence[int]) -> int:
    """The first offset that the table lacks."""
    known = ledger[partition.index] if partition.index < len(ledger) else 0
    return max(known, partition.log_start)


def _reaches(each: _Waiting) -> bool:
    """Whether the source plans what comes first: rows behind a merged range may be merged by now."""
    if each.source.first_offset > each.start:
        return False
    return each.source is each.partition.slices or bool(each.source.plan(each.start, 1))


def _reach(each: _Waiting, limit: int, rows_max: int, bytes_max: int) -> int:
    """How far a share of the bounds reaches, at most to `limit`."""
    if limit <= each.start:
        return each.start
    return _file(each, each.start, min(limit, each.start + rows_max), bytes_max).range.end


def _files(each: _Waiting, end: int, rows_max: int, bytes_max: int) -> Iterator[FilePlan]:
    """The partition's records up to `end`, in files within the bounds."""
    start = each.start
    while start < end:
        file = _file(each, start, min(end, start + rows_max), bytes_max)
        yield file
        start = file.range.end


def _file(each: _Waiting, start: int, limit: int, bytes_max: int) -> FilePlan:
    """A merged range may have gaps where compaction took records away; the rows of a tail have none."""
    partition = each.partition
    slices = each.source.plan(start, bytes_max)
    gapless = each.source is partition.slices
    if not slices or (gapless and slices[0].base_offset > start):
        raise AssertionError(f"partition {partition.index}: no slice covers offset {start} below {limit}")
    within = [slice_ for slice_ in slices if slice_.base_offset < limit]
    end = min(limit, within[-1].end_offset) if within else limit
    return FilePlan(Range(partition.index, start, end), tuple(within), tuple(partition.aborted(start, end)))
