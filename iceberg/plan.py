"""Which records the next commit takes, from the state's partitions and the table's ledger.

Planned in steps, since a topic may have thousands of partitions with a thousand slices each. What is applied
between two steps changes no record: a partition whose slices moved before they were looked at waits.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from coordination.state.transaction_types import Extent
from iceberg.ledger import Range
from objectstore.merged import DamagedIndex, MergedRanges, Partition, SlicePlan
from objectstore.naming import SliceRef
from objectstore.reader import ChunkMissing
from objectstore.transactions import Aborted
from objectstore.turns import Turns, in_turns


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


class PlannedTopic(Protocol):
    """What the planner needs of a topic (coordination/state)."""

    @property
    def partitions(self) -> Sequence[ReadablePartition]: ...
    @property
    def extents(self) -> Sequence[Extent]: ...


class Unplanned(Exception):
    """Merged records of some partitions cannot be found. `lost`: the first of each such partition."""

    def __init__(self, lost: Sequence[Lost]) -> None:
        super().__init__(f"{len(lost)} partitions; the first, {lost[0].partition}: {lost[0].trouble}")
        self.lost = lost


FACTOR_MAX = 1 << 20  # files that one partition may give to a commit, so that a transaction is taken whole
LOOKS_MAX = 8  # rounds of looking up merged ranges for one commit
LOOKUPS_STEP = 8  # merged ranges looked up before the event loop gets a turn, …
STEP = 512  # … and partitions and slices


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
class Bounds:
    """What one commit takes at most, and one of its files. Bytes as stored in chunks."""

    rows_max: int
    bytes_max: int
    file_rows_max: int
    file_bytes_max: int

    def narrowed(self, rows_max: int) -> Bounds:
        """The same for at most so many rows."""
        rows = min(self.rows_max, rows_max)
        return Bounds(rows, self.bytes_max, min(self.file_rows_max, rows), self.file_bytes_max)


_TOO_SMALL = CommitPlan((), more=True, too_small=True)


@dataclass(frozen=True, slots=True)
class _Found:
    """A partition's records up to `end`, as one look found them: what moves afterwards does not matter."""

    index: int
    start: int
    end: int
    slices: Sequence[SliceRef]
    aborted: Sequence[Aborted]


def plan(
    partitions: Sequence[ReadablePartition],
    ledger: Sequence[int],
    older: Mapping[int, SlicePlan],
    bounds: Bounds,
    *,
    extents: Sequence[Extent] = (),
    factor: int = 1,
    limits: Mapping[int, int] | None = None,
) -> Turns[CommitPlan]:
    """The oldest records that the table lacks, shared evenly among partitions.

    Each partition with anything new gives at least its first slice (or `rows_max` of it), so that none waits
    for ever. Records below a partition's log start are gone from the topic: the table goes on after them.
    `older` (see `older_slices`) plans merged ranges; a partition that needs one and has none waits for the
    next commit, and so does one whose rows are merged between two steps of this. Of the transactions
    `extents` each is taken whole, in all its partitions, or not at all; with `factor` a partition may give so
    many files for that. `limits`: by partition, offsets that none may reach.
    """
    # One look at all ends and transactions: one that ends between two looks would be torn.
    looks, extents = [(each, each.log_start, each.last_stable) for each in partitions], tuple(extents)
    yield
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    for number, (each, log_start, stable) in enumerate(looks):
        starts[each.index] = _after(ledger, each.index, log_start)
        ends[each.index] = min(stable, limits.get(each.index, stable)) if limits else stable
        if number % STEP == STEP - 1:
            yield
    wanted = [each for each, _, _ in looks if starts[each.index] < ends[each.index]]
    del looks
    if not wanted:
        return CommitPlan((), more=False)
    yield
    found: dict[int, _Found] = {}
    share_bytes = min(bounds.file_bytes_max, bounds.bytes_max // len(wanted)) * factor
    share_rows = max(1, min(bounds.file_rows_max, bounds.rows_max // len(wanted))) * factor
    work = 0
    for each in wanted:
        start, source = starts[each.index], older.get(each.index, each.slices)
        one = _look(each, source, start, min(ends[each.index], start + share_rows), share_bytes)
        if one is not None:
            found[each.index] = one
        work += 1 + (len(one.slices) if one is not None else 0)
        if work >= STEP:
            work = 0
            yield
    return (yield from _in_files(found, starts, ends, extents, bounds, late=len(found) < len(wanted)))


def _in_files(
    found: dict[int, _Found],
    starts: Mapping[int, int],
    stable: Mapping[int, int],
    extents: Sequence[Extent],
    bounds: Bounds,
    *,
    late: bool,
) -> Turns[CommitPlan]:
    """What was found, as far as it tears no transaction. It leaves `found`: to free all at once is long."""
    possible = consistent({**starts, **{index: stable[index] for index in found}}, starts, extents)
    yield
    reaches = {index: min(each.end, possible[index]) for index, each in found.items()}
    ends = consistent({**starts, **reaches}, starts, extents)
    yield
    files: list[FilePlan] = []
    left = stuck = False
    work = 0
    for index in reaches:
        each, end = found.pop(index), ends[index]
        files += _files(each, end, bounds.file_rows_max, bounds.file_bytes_max)
        left |= end < possible[index]
        stuck |= end == starts[index] < possible[index]
        work += 1 + len(each.slices)
        if work >= STEP:
            work = 0
            yield
    return CommitPlan(tuple(files), more=late or left, too_small=stuck)


async def fitting(
    merged: MergedRanges,
    topic: PlannedTopic,
    ledger: Sequence[int],
    bounds: Bounds,
    limits: Mapping[int, int],
    there: Callable[[], bool],
) -> CommitPlan | None:
    """A plan of a topic with bounds in which a whole transaction fits; None once it is not `there` any more.

    Raises what `older_slices` raises.
    """
    found, factor = _TOO_SMALL, 1
    while found.too_small and factor <= FACTOR_MAX:
        size = bounds.file_bytes_max * factor
        older = await older_slices(merged, topic.partitions, ledger, size, limits)
        if not there():
            return None
        steps = plan(
            topic.partitions, ledger, older, bounds, extents=topic.extents, factor=factor, limits=limits
        )
        planned = await in_turns(_while_there(steps, there))
        if planned is None:
            return None
        found, factor = planned, factor * 2
    return found


def _while_there(work: Turns[CommitPlan], there: Callable[[], bool]) -> Turns[CommitPlan | None]:
    """The work, until its topic is gone: of a deleted one no slice may be looked at."""
    while there():
        try:
            next(work)
        except StopIteration as done:
            made: CommitPlan = done.value
            return made
        yield
    return None


def consistent(
    ends: Mapping[int, int], starts: Mapping[int, int], extents: Sequence[Extent]
) -> dict[int, int]:
    """The highest ends, by partition, at or below the given ones between which no transaction is torn.

    What lies below a start is in the table or gone: it holds nothing back. Time: each transaction is taken
    out once per partition, however they lean on each other.
    """
    found = dict(ends)
    markers: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
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
    lowered = list(markers)
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
        behind = await in_turns(_behind(partitions, ledger, limits))
        missing = [each for each in behind if each[0].index not in older]
        if not missing or lost:
            break
        for number, (partition, start) in enumerate(missing):
            if number % LOOKUPS_STEP == LOOKUPS_STEP - 1:
                await asyncio.sleep(0)  # what is in memory makes nobody wait
            try:
                older[partition.index] = await merged.slices(partition, start, bytes_max)
            except (ChunkMissing, DamagedIndex) as error:
                lost.append(Lost(partition.index, start, error))
    if lost:
        raise Unplanned(lost)
    return older


def _behind(
    partitions: Sequence[ReadablePartition], ledger: Sequence[int], limits: Mapping[int, int]
) -> Turns[list[tuple[ReadablePartition, int]]]:
    """The partitions whose next record is in a merged range, each with its offset."""
    found: list[tuple[ReadablePartition, int]] = []
    for number, each in enumerate(partitions):
        start = _after(ledger, each.index, each.log_start)
        if start < each.slices.first_offset and start < limits.get(each.index, each.last_stable):
            found.append((each, start))
        if number % STEP == STEP - 1:
            yield
    return found


def _after(ledger: Sequence[int], index: int, log_start: int) -> int:
    """The first offset of a partition that the table lacks."""
    return max(ledger[index], log_start) if index < len(ledger) else log_start


def _look(
    partition: ReadablePartition, source: SlicePlan, start: int, limit: int, bytes_max: int
) -> _Found | None:
    """The records from `start` on, at most to `limit`; None when the source does not plan what comes first.

    Rows behind a merged range may be merged by now, and so may those of a tail. A merged range may have gaps
    where compaction took records away; the rows of a tail have none.
    """
    slices = source.plan(start, bytes_max) if source.first_offset <= start else []
    gapless = source is partition.slices
    if gapless and source.first_offset <= start and not (slices and slices[0].base_offset <= start):
        raise AssertionError(f"partition {partition.index}: no slice covers offset {start} below {limit}")
    if not slices:
        return None
    within = [slice_ for slice_ in slices if slice_.base_offset < limit]
    end = min(limit, within[-1].end_offset) if within else limit
    return _Found(partition.index, start, end, within, partition.aborted(start, end))


def _files(found: _Found, end: int, rows_max: int, bytes_max: int) -> Iterator[FilePlan]:
    """What was found up to `end`, in files within the bounds; each takes at least its first slice."""
    start, number = found.start, 0
    while start < end:
        limit, left = min(end, start + rows_max), bytes_max
        while number < len(found.slices) and found.slices[number].end_offset <= start:
            number += 1
        taken: list[SliceRef] = []
        for at in range(number, len(found.slices)):
            ref = found.slices[at]
            left -= ref.length
            if ref.base_offset >= limit or (left < 0 and taken):
                break
            taken.append(ref)
        stop = min(limit, taken[-1].end_offset) if taken else limit
        aborted = (a for a in found.aborted if a.first_offset < stop and a.marker_offset >= start)
        yield FilePlan(Range(found.index, start, stop), tuple(taken), tuple(aborted))
        start = stop
