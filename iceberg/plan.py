"""Which records the next commit takes: pure, from the state's partitions and the table's ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from iceberg.ledger import Range
from objectstore.naming import SliceRef


class _Slices(Protocol):
    def plan(self, offset: int, max_bytes: int) -> Sequence[SliceRef]: ...


class ReadablePartition(Protocol):
    """What the planner needs of a partition (coordination/state)."""

    @property
    def index(self) -> int: ...
    @property
    def log_start(self) -> int: ...
    @property
    def last_stable(self) -> int: ...
    @property
    def slices(self) -> _Slices: ...


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
    *,
    rows_max: int,
    bytes_max: int,
    file_rows_max: int,
    file_bytes_max: int,
) -> CommitPlan:
    """The oldest records that the table lacks, shared evenly among partitions. Bytes as stored in chunks.

    Each partition with anything new gives at least its first slice (or `rows_max` of it), so that none waits
    for ever. Records below a partition's log start are gone from the topic: the table goes on after them.
    """
    waiting = []
    for partition in partitions:
        known = ledger[partition.index] if partition.index < len(ledger) else 0
        start = max(known, partition.log_start)
        if start < partition.last_stable:
            waiting.append((partition, start))
    if not waiting:
        return CommitPlan((), more=False)
    share_bytes = min(file_bytes_max, bytes_max // len(waiting))
    share_rows = max(1, min(file_rows_max, rows_max // len(waiting)))
    files = [_file(partition, start, share_rows, share_bytes) for partition, start in waiting]
    ends = [partition.last_stable for partition, _ in waiting]
    return CommitPlan(
        tuple(files), more=any(each.range.end < end for each, end in zip(files, ends, strict=True))
    )


def _file(partition: ReadablePartition, start: int, rows_max: int, bytes_max: int) -> FilePlan:
    limit = min(partition.last_stable, start + rows_max)
    slices = [each for each in partition.slices.plan(start, bytes_max) if each.base_offset < limit]
    if not slices or slices[0].base_offset > start:
        raise AssertionError(f"partition {partition.index}: no slice covers offset {start} below {limit}")
    end = min(limit, slices[-1].end_offset)
    return FilePlan(Range(partition.index, start, end), tuple(slices))
