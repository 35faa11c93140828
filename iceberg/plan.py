"""Which records the next commit takes: pure, from the state's partitions and the table's ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from iceberg.ledger import Range
from objectstore.merged import MergedRanges, Partition, SlicePlan
from objectstore.naming import SliceRef


class ReadablePartition(Partition, Protocol):
    """What the planner needs of a partition (coordination/state)."""

    @property
    def index(self) -> int: ...
    @property
    def last_stable(self) -> int: ...


LOOKS_MAX = 8  # rounds of looking up merged ranges for one commit


@dataclass(frozen=True, slots=True)
class FilePlan:
    """One data file: the offsets it takes and the slices that hold them."""

    range: Range
    slices: tuple[SliceRef, ...]


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """The files of one commit, by partition; `more` when records are left for the next."""

    files: tuple[FilePlan, ...]
    more: bool


def plan(
    partitions: Sequence[ReadablePartition],
    ledger: Sequence[int],
    older: Mapping[int, SlicePlan],
    *,
    rows_max: int,
    bytes_max: int,
    file_rows_max: int,
    file_bytes_max: int,
) -> CommitPlan:
    """The oldest records that the table lacks, shared evenly among partitions. Bytes as stored in chunks.

    Each partition with anything new gives at least its first slice (or `rows_max` of it), so that none waits
    for ever. Records below a partition's log start are gone from the topic: the table goes on after them.
    `older` (see `older_slices`) plans merged ranges; a partition that needs one and has none waits for the
    next commit.
    """
    waiting, late = [], False
    for partition in partitions:
        start = _start(partition, ledger)
        source = older.get(partition.index, partition.slices)
        if start < partition.last_stable and source.first_offset <= start:
            waiting.append((partition, start, source))
        else:
            late |= start < partition.last_stable
    if not waiting:
        return CommitPlan((), more=late)
    share_bytes = min(file_bytes_max, bytes_max // len(waiting))
    share_rows = max(1, min(file_rows_max, rows_max // len(waiting)))
    files = [_file(*each, share_rows, share_bytes) for each in waiting]
    ends = [partition.last_stable for partition, _, _ in waiting]
    left = any(each.range.end < end for each, end in zip(files, ends, strict=True))
    return CommitPlan(tuple(files), more=late or left)


async def older_slices(
    merged: MergedRanges, partitions: Sequence[ReadablePartition], ledger: Sequence[int], bytes_max: int
) -> dict[int, SlicePlan]:
    """By partition index, what plans the records that the table lacks where they are merged already.

    Raises ChunkMissing and what the store raises.
    """
    older: dict[int, SlicePlan] = {}
    for _ in range(LOOKS_MAX):  # what was a tail may be merged while another partition is looked up
        missing = [
            (partition, start)
            for partition in partitions
            if (start := _start(partition, ledger)) < partition.slices.first_offset
            and start < partition.last_stable
            and partition.index not in older
        ]
        if not missing:
            break
        for partition, start in missing:
            older[partition.index] = await merged.slices(partition, start, bytes_max)
    return older


def _start(partition: ReadablePartition, ledger: Sequence[int]) -> int:
    """The first offset that the table lacks."""
    known = ledger[partition.index] if partition.index < len(ledger) else 0
    return max(known, partition.log_start)


def _file(
    partition: ReadablePartition, start: int, source: SlicePlan, rows_max: int, bytes_max: int
) -> FilePlan:
    """A merged range may have gaps where compaction took records away; the rows of a tail have none."""
    limit = min(partition.last_stable, start + rows_max)
    slices = source.plan(start, bytes_max)
    gapless = source is partition.slices
    if not slices or (gapless and slices[0].base_offset > start):
        raise AssertionError(f"partition {partition.index}: no slice covers offset {start} below {limit}")
    within = [each for each in slices if each.base_offset < limit]
    end = min(limit, within[-1].end_offset) if within else limit
    return FilePlan(Range(partition.index, start, end), tuple(within))
