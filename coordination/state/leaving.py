"""Deleted topics that hold very much: they are gone at once, what they held goes entry by entry.

Letting go of 160,000 rows in the entry that deletes their topic held up every agent for 20 ms and more.
From LEAVING on, such a topic's partitions wait in `StateData.leaving`, and each entry that follows lets go
of some rows. Until then their chunks and manifests are referenced, as those of a topic that is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from coordination.state.data import StateData
from coordination.state.levels import LEAVING
from coordination.state.segments import drop_merged
from coordination.state.slices import ROW_BYTES, SliceIndex
from coordination.state.types import Partition

ROWS_AT_ONCE_MAX = 4096  # rows, and partitions, that one entry lets go of; some 0.5 ms


def leave(state: StateData, partitions: Sequence[Partition], now_ms: int) -> None:
    """Let go of what the partitions of a deleted topic hold: at once when it is little, else from now on."""
    slices = [partition.slices for partition in partitions]
    # Dead bytes before the head do not count: a replica that began with a snapshot has none.
    held = len(slices) + sum([len(each.rows) - each.head for each in slices]) // ROW_BYTES
    if held > ROWS_AT_ONCE_MAX and state.feature_level >= LEAVING:
        state.leaving.update((partition.handle, partition) for partition in partitions)
        return
    for partition in partitions:
        _let_go(state, partition, len(partition.slices), now_ms)


def go_on(state: StateData, now_ms: int) -> None:
    """Let go of the oldest rows that wait, of at most ROWS_AT_ONCE_MAX. A partition counts as one more."""
    left, gone = ROWS_AT_ONCE_MAX, []
    for partition in islice(state.leaving.values(), ROWS_AT_ONCE_MAX):
        rows = len(partition.slices)
        _let_go(state, partition, min(rows, left), now_ms)
        if rows > left:
            break
        gone.append(partition.handle)
        left -= rows + 1
        if left <= 0:
            break
    for handle in gone:
        del state.leaving[handle]


def _let_go(state: StateData, partition: Partition, rows: int, now_ms: int) -> None:
    """Let go of the first so many rows; with the last one, of everything else."""
    state.chunks.release(partition.slices.drop(rows), now_ms)
    if not len(partition.slices):
        partition.slices = SliceIndex(state.chunks)  # who still looks at it finds nothing
        partition.producers = {}
        drop_merged(state, partition, now_ms)
