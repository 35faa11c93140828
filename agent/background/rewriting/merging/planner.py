"""What is to be merged, and with what: pure, from the state's partitions and their manifests.

A partition is due when its tail has many rows, many bytes, or has been there for long. Rows near the end
stay: readers of the tail have their chunks in memory. Segments grow by levels: a new one takes along the
segments before it of about its size or smaller once there are FAN_IN of them, so that each record is written
again only a few times (log of the goal over the first size, to the base FAN_IN) and few segments are small.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from agent.background.rewriting.spans import span_ms
from coordination.state.data import HANDLE_RANGE
from coordination.state.segments import RELEASED_MAX
from coordination.state.types import Partition
from objectstore.manifest import Manifest
from objectstore.naming import ChunkId, MarkerId, SegmentId, SliceRef
from objectstore.segment import SegmentInfo
from objectstore.transactions import Aborted

RANGE = HANDLE_RANGE  # partition handles of one claim
FAN_IN = 8  # segments of one level that become one of the next
SLICES_MIN = 8  # a partition with fewer rows is merged only for their age
ROWS_MAX = 4_096  # rows that one swap takes from a tail
# rows planned at once: objects that Python's garbage collector walks, and the loop waits
GROUP_ROWS_MAX = 32_768
MANIFEST_SHARE_MAX = 4  # a manifest may be this many times larger than what is merged; not in an aged tail


@dataclass(frozen=True, slots=True)
class MergeRules:
    """Limits as configured (agent/config, MergingConfig)."""

    min_slices: int
    keep_slices: int
    tail_slices_max: int
    segment_bytes: int
    age_s: float

    def threshold(self, partitions: int) -> int:
        """Rows at which a tail is merged, in a cluster of so many partitions: bounds all tails together."""
        return max(SLICES_MIN, min(self.min_slices, self.tail_slices_max // max(1, partitions)))


@dataclass(frozen=True, slots=True)
class Due:
    """A partition to be merged: how many of its oldest rows, their bytes about, and whether for their age."""

    handle: int
    rows: int
    bytes: int
    aged: bool = False


@dataclass(frozen=True, slots=True)
class Take:
    """The oldest rows of a tail that move into a segment; the last ends at `end_offset`, in `last_chunk`.

    Records of the transactions `aborted` do not move along: whose rows are merged has ended.
    """

    refs: Sequence[SliceRef]
    end_offset: int
    last_chunk: ChunkId | MarkerId
    bytes: int
    aborted: Sequence[Aborted] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One partition's merge: rows of its tail and the segments of `before` from `absorbed` on become one."""

    before: Manifest
    absorbed: int
    taken: Take

    def after(self, written: SegmentInfo | None, held_start: int) -> tuple[Manifest, list[SegmentId]]:
        """The manifest that names the new segment, and what it does not name any more. None: all was aborted.

        Segments below what is held go on this occasion, as many as one swap may let go of.
        """
        before = self.before
        kept = before.without_from(self.absorbed)
        dead = min(kept.find(held_start), RELEASED_MAX - (len(before) - self.absorbed))
        added = [written] if written is not None else []
        after = kept.without_first(dead).appended(added, self.taken.end_offset)
        return after, before.segments(0, dead) + before.segments(self.absorbed, len(before))


def due(partition: Partition, threshold: int, rules: MergeRules, age_s: float) -> Due | None:
    """Whether the partition's tail is to be merged now. `age_s`: for how long its first row has been seen."""
    rows = len(partition.slices)
    keep = min(rules.keep_slices, threshold // 2)
    size = partition.slices.size_bytes
    if not rows or partition.settled <= partition.slices.first_offset:  # the first is of an open one
        return None
    if age_s >= rules.age_s:  # even one: it may be the last that keeps a large chunk
        return Due(partition.handle, min(rows, ROWS_MAX), size, aged=True)
    ready = rows - keep
    if rows >= threshold and ready > 0 and (size >= _worthwhile(partition) or rows >= 4 * threshold):
        return Due(partition.handle, min(ready, ROWS_MAX), size * ready // rows)
    if ready > 1 and size * ready // rows >= rules.segment_bytes:
        return Due(partition.handle, min(ready, ROWS_MAX), size * ready // rows)
    return None


def _worthwhile(partition: Partition) -> int:
    """Bytes below which writing the manifest again would cost more than the records."""
    merged = partition.merged
    return merged.manifest_bytes // MANIFEST_SHARE_MAX if merged is not None else 0


def batches_of_work(found: Iterable[Due], bytes_max: int, alone: frozenset[int]) -> list[list[Due]]:
    """Partitions side by side, so that a chunk is read once for all; each group within `bytes_max`.

    Those of the handles `alone` are groups of their own.
    """
    groups: list[list[Due]] = []
    room = rows = 0
    for each in found:
        size = min(each.bytes, bytes_max)
        by_itself = each.handle in alone
        if size > room or each.rows > rows or by_itself:
            groups.append([])
            room, rows = bytes_max, GROUP_ROWS_MAX
        groups[-1].append(each)
        room, rows = (-1, -1) if by_itself else (room - size, rows - each.rows)
    return groups


def plan(
    partition: Partition,
    manifest: Manifest | None,
    rows: int,
    rules: MergeRules,
    cluster_configs: dict[str, str],
    *,
    alone: bool = False,
    until: int | None = None,
    spared: Container[SegmentId] = (),
) -> Step | None:
    """What one merge of the oldest rows does; None when there are none. `manifest`: the partition's own.

    `alone`: no segment is taken along; else none that is `spared`, and none before such a one. Rows beyond
    the offset `until` stay.
    """
    taken = take(partition, rows, rules.segment_bytes, until)
    if taken is None:
        return None
    if manifest is None:
        manifest = Manifest.empty(partition.handle, partition.slices.first_offset)
    elif not len(manifest):  # compaction left nothing: the new segment answers for all that is held
        bare = Manifest.empty(partition.handle, min(manifest.end_offset, partition.held_start))
        manifest = bare.with_first_dirty(manifest.first_dirty_offset)
    newest_ms = max(ref.max_timestamp_ms for ref in taken.refs)
    spread_ms = span_ms(partition.topic.configs, cluster_configs)
    absorbed = len(manifest)
    if not alone:
        absorbed = absorbed_from(manifest, taken.bytes, rules.segment_bytes, spread_ms, newest_ms, spared)
    return Step(manifest, max(absorbed, manifest.find(partition.held_start)), taken)


def take(partition: Partition, rows: int, bytes_max: int, until: int | None = None) -> Take | None:
    """The oldest rows, at most so many and so many bytes; at least one. None when there are none.

    Rows of transactions that are open stay where they are, and those beyond the offset `until`.
    """
    end = partition.settled if until is None else min(partition.settled, until)
    planned = [ref for ref in partition.slices.oldest(rows, bytes_max) if ref.end_offset <= end]
    if not planned:
        return None
    last = planned[-1]
    assert isinstance(last.chunk, ChunkId | MarkerId), "rows of a tail are in chunks"
    size = sum(ref.length for ref in planned)
    aborted = partition.aborted(planned[0].base_offset, last.end_offset)
    return Take(planned, last.end_offset, last.chunk, size, aborted)


def absorbed_from(
    manifest: Manifest,
    new_bytes: int,
    bytes_max: int,
    span_ms_max: int,
    newest_ms: int,
    spared: Container[SegmentId] = (),
) -> int:
    """Number of the first segment that the new one takes along; len(manifest) when it takes none.

    Taken are segments behind the compacted range and the last `spared` one, up to `bytes_max` with the new
    bytes, none of which has records older than the newest by more than `span_ms_max` (-1: any): retention
    removes whole segments. No more than a swap may let go of.
    """
    first = best = len(manifest)
    total, run, level = new_bytes, 0, _level(new_bytes)
    while first:
        info = manifest[first - 1]
        size = info.record_bytes
        old = span_ms_max >= 0 and newest_ms - info.begun_ms > span_ms_max
        old = old or info.segment in spared or len(manifest) - first == RELEASED_MAX
        if old or total + size > bytes_max or info.end_offset <= manifest.first_dirty_offset:
            break
        if _level(size) > level:  # one level up, once this one is complete
            if best != first or _level(size) > _level(total):
                break
            run, level = 0, _level(total)
        first, total, run = first - 1, total + size, run + 1
        if run >= FAN_IN - 1 or total * 2 >= bytes_max:
            best = first
    return best


def _level(size: int) -> int:
    """Level by size: 0 below FAN_IN bytes, one more for each factor FAN_IN."""
    return max(0, size.bit_length() - 1) // (FAN_IN.bit_length() - 1)
