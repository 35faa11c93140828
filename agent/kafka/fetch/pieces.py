"""What of one partition's slices can be served when some cannot be read, and whether that is damage. Pure.

Sound batches up to the first unreadable offset are served. A reader whose offset is unreadable gets an error:
a retriable one while the store may only be out of reach; CORRUPT_MESSAGE, which clients tell their
application, once the object is known to be damaged, or to be gone though the state of now still names it.

Damage that somebody asked to pass over (coordination/state/skipped.py) is served as empty batches that take
its offsets, as Kafka's log cleaner leaves them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agent.kafka.fetch.planner import Planned
from coordination.state.types import Partition
from objectstore.batch import HEADER_BYTES, empty_batch
from objectstore.merged import DamagedIndex
from objectstore.naming import ChunkId, ManifestId, SegmentId, SliceRef
from objectstore.offset_ranges import Range, covered_to, tiles
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

    def lasts(self, trouble: Trouble) -> bool:
        """Whether it is damage: it will not pass by itself."""
        if isinstance(trouble, ChunkMissing):
            return trouble.chunk in self._proven
        return isinstance(trouble, CorruptSlice | DamagedIndex)


def taken(
    planned: Planned, read: Sequence[memoryview | Trouble], lost: Lost
) -> tuple[list[SliceRef], list[memoryview], Unread | None]:
    """The slices to serve from, in order, and what ends them; those before the wanted offset are left out."""
    refs: list[SliceRef] = []
    buffers: list[memoryview] = []
    for ref, outcome in zip(planned.slices, read, strict=True):
        for piece in _passing(planned, ref, _pieces(ref, outcome), lost):
            if isinstance(piece, Unread):
                if piece.end > planned.wanted.offset:
                    return refs, buffers, piece
            elif piece[0].end_offset > planned.wanted.offset:
                refs.append(piece[0])
                buffers.append(piece[1])
    return refs, buffers, None


def passed_over(planned: Planned, lost: Lost) -> memoryview | None:
    """An empty batch from the wanted offset on, where what could not be looked up is damage to pass over."""
    trouble, offset = planned.wanted.failure, planned.wanted.offset
    damage = None if trouble is None else damage_of(planned, trouble, lost)
    if damage is None:
        return None
    end = min(damage.end, planned.end_offset, covered_to(offset, _skipped(planned)))
    return memoryview(empty_batch(offset, end)) if end > offset else None


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
    if isinstance(trouble, ChunkMissing | DamagedIndex) and lost.lasts(trouble):
        first, end = trouble.offsets or _held(planned, trouble)
        return Damage(first, end, str(trouble))
    return None


def _passing(
    planned: Planned,
    ref: SliceRef,
    pieces: Iterable[tuple[SliceRef, memoryview] | Unread],
    lost: Lost,
) -> Iterator[tuple[SliceRef, memoryview] | Unread]:
    """The pieces, with empty batches for damage that is passed over, from the wanted offset on."""
    for piece in pieces:
        if not isinstance(piece, Unread) or not lost.lasts(piece.trouble):
            yield piece
            continue
        for tile in tiles(piece.start, piece.end, _skipped(planned)):
            start, end = max(tile.start, planned.wanted.offset), min(tile.end, planned.end_offset)
            if not tile.covered:
                yield Unread(tile.start, tile.end, piece.trouble)
            elif start < end:
                hole = ref._replace(base_offset=start, end_offset=end, length=HEADER_BYTES)
                yield hole, memoryview(empty_batch(start, end))


def _skipped(planned: Planned) -> Sequence[Range]:
    partition = planned.wanted.partition
    return partition.skipped if isinstance(partition, Partition) else ()


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
