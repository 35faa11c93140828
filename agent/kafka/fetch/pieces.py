"""What of one partition's slices can be served when some cannot be read, and whether that is damage. Pure.

Sound batches up to the first unreadable offset are served. A reader whose offset is unreadable gets an error:
a retriable one while the store may only be out of reach; CORRUPT_MESSAGE, which clients tell their
application, once the object is known to be damaged, or to be gone though the state of now still names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agent.kafka.fetch.planner import Planned
from coordination.state.types import Partition
from objectstore.merged import DamagedIndex
from objectstore.naming import ChunkId, ManifestId, SegmentId, SliceRef
from objectstore.reader import ChunkMissing, CorruptSlice
from objectstore.salvage import lost as lost_offsets

Trouble = Exception
Named = ChunkId | SegmentId | ManifestId


@dataclass(frozen=True, slots=True)
class Damage:
    """Offsets [start, end) of a partition that cannot be read any more, and why."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Unread:
    """Offsets [start, end) of a slice that could not be read."""

    start: int
    end: int
    trouble: Trouble


class Lost:
    """Objects that were gone, and that the state named still after the log had been caught up with."""

    def __init__(self) -> None:
        self._proven: set[Named] = set()

    def unproven(self, found: Iterable[object]) -> list[Named]:
        """Objects that are gone and that a newer state may not name any more."""
        gone = [each.chunk for each in found if isinstance(each, ChunkMissing)]
        return [named for named in dict.fromkeys(gone) if named not in self._proven]

    def prove(self, gone: Iterable[Named]) -> None:
        """The log was caught up with after these were found to be gone."""
        self._proven.update(gone)

    def is_lost(self, error: ChunkMissing) -> bool:
        """Whether it is damage that the object is gone."""
        return error.chunk in self._proven


def taken(
    planned: Planned, read: Sequence[memoryview | Trouble]
) -> tuple[list[SliceRef], list[memoryview], Unread | None]:
    """The slices to serve from, in order, and what ends them; those before the wanted offset are left out."""
    refs: list[SliceRef] = []
    buffers: list[memoryview] = []
    for ref, outcome in zip(planned.slices, read, strict=True):
        for piece in _pieces(ref, outcome):
            if isinstance(piece, Unread):
                if piece.end > planned.wanted.offset:
                    return refs, buffers, piece
            elif piece[0].end_offset > planned.wanted.offset:
                refs.append(piece[0])
                buffers.append(piece[1])
    return refs, buffers, None


def unreadable(planned: Planned, unread: Unread | None) -> Trouble | None:
    """The trouble, when the wanted offset itself is behind it."""
    if unread is None or unread.start > planned.wanted.offset:
        return None
    return unread.trouble


def damage_of(planned: Planned, trouble: Trouble, lost: Lost) -> Damage | None:
    """The damage that the trouble is at the wanted offset; None when it may pass."""
    start = planned.wanted.offset
    if isinstance(trouble, CorruptSlice):
        gaps = lost_offsets(trouble.wanted, trouble.runs)
        first, end = next(gap for gap in gaps if gap[1] > start)
        return Damage(max(first, 0), end, str(trouble))
    if isinstance(trouble, ChunkMissing) and not lost.is_lost(trouble):
        return None
    if isinstance(trouble, ChunkMissing | DamagedIndex):
        first, end = trouble.offsets or _held(planned, trouble)
        return Damage(first, end, str(trouble))
    return None


def _pieces(ref: SliceRef, outcome: memoryview | Trouble) -> Iterator[tuple[SliceRef, memoryview] | Unread]:
    """A slice as far as it could be read, in order."""
    if isinstance(outcome, memoryview):
        yield ref, outcome
        return
    runs = outcome.runs if isinstance(outcome, CorruptSlice) else ()
    due = ref.base_offset
    for run in runs:
        if run.ref.base_offset > due:
            yield Unread(due, run.ref.base_offset, outcome)
        yield run.ref, run.data
        due = run.ref.end_offset
    if due < ref.end_offset:
        yield Unread(due, ref.end_offset, outcome)


def _held(planned: Planned, trouble: ChunkMissing | DamagedIndex) -> tuple[int, int]:
    """The offsets in a lost object from the wanted one on; of a manifest, all that are merged."""
    offset, partition = planned.wanted.offset, planned.wanted.partition
    named = trouble.chunk if isinstance(trouble, ChunkMissing) else None
    end = first = -1
    for ref in planned.slices:
        if ref.chunk == named and ref.end_offset > offset and end in (-1, ref.base_offset):
            first = ref.base_offset if first < 0 else first
            end = ref.end_offset
    if end < 0 and isinstance(partition, Partition) and partition.merged is not None:
        return max(partition.log_start, partition.merged.start_offset), partition.merged.end_offset
    return (first, end) if end >= 0 else (offset, offset + 1)
