"""Merged ranges: a partition's pointer to its manifest, moved by compare-and-swap, and what it let go.

The old part of a partition lies in segments that a manifest in the bucket names; the state keeps only the
pointer and a summary (DESIGN "Compaction of chunks"). Offsets [merged.start_offset, merged.end_offset) are
the manifest's, the tail's rows begin at merged.end_offset. A swap is decided here and nowhere else: two jobs
that merge the same partition at once do no harm, one of them is refused.
"""

from __future__ import annotations

from coordination.commands import ForgetSegments, MergedRange, SwapSegments
from coordination.kafka_codes import Code
from coordination.state.data import StateData
from coordination.state.expiry import too_soon
from coordination.state.types import At, Done, Merged, Partition, Refused, Result
from objectstore.naming import ChunkId, ManifestId, MarkerId, SegmentId, marker_as_chunk

RELEASED_MAX = 10_000  # segments that one swap may let go of


def swap_segments(state: StateData, message: SwapSegments, at: At) -> Result:
    """Point the partition to a new manifest, in place of the old one and of the tail's oldest rows.

    Done's value: None. INVALID_UPDATE_VERSION when the manifest or the rows are not what was expected,
    OFFSET_OUT_OF_RANGE when the log start has passed everything that would be swapped in. Records that are
    held below the log start (held.py) count as there.
    """
    handle = message.partition
    partition = state.partitions[handle] if handle < len(state.partitions) else None
    if partition is None:
        return Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"no partition has the handle {handle}")
    refusal = (
        too_soon(state, message.judged_ms) or _outdated(partition, message) or _malformed(partition, message)
    )
    if refusal is not None:
        return refusal
    new = message.merged
    if message.HasField("last_chunk"):
        if new.end_offset > partition.settled:
            return Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"partition {handle}: rows up to {new.end_offset} are of transactions that are open: from "
                f"{partition.settled} on nothing is known of their ends",
            )
        state.chunks.release(partition.slices.trim(new.end_offset), at.now_ms)
    if partition.merged is not None:
        let_go(state, partition.merged.manifest, at.now_ms, whole=False)
    for released in message.released:
        state.segment_garbage[SegmentId(released.incarnation, handle, released.number)] = at.now_ms
    partition.merged = _merged(ManifestId(at.author.incarnation, handle, message.number), new)
    if partition.transactions is not None:
        partition.transactions.forget_below(max(partition.held_start, new.end_offset))
    return Done()


def drop_merged(state: StateData, partition: Partition, now_ms: int) -> None:
    """Let go of the manifest and every segment that it names."""
    if partition.merged is not None:
        let_go(state, partition.merged.manifest, now_ms, whole=True)
        partition.merged = None


def let_go(state: StateData, manifest: ManifestId, now_ms: int, *, whole: bool) -> None:
    """The manifest is garbage from now on; `whole`: with all segments that it names."""
    _, before = state.manifest_garbage.get(manifest, (0, False))
    state.manifest_garbage[manifest] = (now_ms, whole)
    _count_whole(state, manifest.partition, whole - before)


def _take_back(state: StateData, manifest: ManifestId) -> bool:
    """The manifest is no garbage any more. Whether it was."""
    found = state.manifest_garbage.pop(manifest, None)
    if found is not None:
        _count_whole(state, manifest.partition, -found[1])
    return found is not None


def _count_whole(state: StateData, handle: int, change: int) -> None:
    count = state.whole_garbage.pop(handle, 0) + change
    if count:
        state.whole_garbage[handle] = count


def forget_segments(state: StateData, message: ForgetSegments, at: At) -> Result:
    """Drop deleted objects from the garbage. Done's value: how many were in it."""
    segments = (message.segment_incarnation, message.segment_partition, message.segment_number)
    manifests = (message.manifest_incarnation, message.manifest_partition, message.manifest_number)
    if any(len(frozenset(map(len, columns))) != 1 for columns in (segments, manifests)):
        return Refused(Code.INVALID_REQUEST, "ForgetSegments: columns of different lengths")
    forgotten = 0
    for name in map(SegmentId, *segments):
        forgotten += state.segment_garbage.pop(name, None) is not None
    for manifest in map(ManifestId, *manifests):
        forgotten += _take_back(state, manifest)
    return Done(forgotten)


def _outdated(partition: Partition, message: SwapSegments) -> Refused | None:
    """The refusal when something changed under the swap."""
    merged, end = partition.merged, message.merged.end_offset
    expected = None
    if message.HasField("expected"):
        expected = ManifestId(message.expected.incarnation, partition.handle, message.expected.number)
    if expected != (merged.manifest if merged is not None else None):
        return Refused(
            Code.INVALID_UPDATE_VERSION,
            f"partition {partition.handle}: its manifest is {merged.manifest if merged else None}, "
            f"not {expected}",
        )
    if end <= partition.held_start:
        return Refused(
            Code.OFFSET_OUT_OF_RANGE,
            f"partition {partition.handle}: the log start {partition.held_start} has passed {end}",
        )
    if message.HasField("last_chunk"):
        last = ChunkId(message.last_chunk.incarnation, message.last_chunk.number)
        if _row_name(partition.slices.holder_ending_at(end)) != last:
            return Refused(
                Code.INVALID_UPDATE_VERSION,
                f"partition {partition.handle}: no row of chunk {last} ends at offset {end}",
            )
    elif merged is None or end != merged.end_offset:
        return Refused(
            Code.INVALID_UPDATE_VERSION,
            f"partition {partition.handle}: the merged range ends at "
            f"{merged.end_offset if merged else None}, not at {end}",
        )
    return None


def _row_name(holder: ChunkId | MarkerId | None) -> ChunkId | None:
    return marker_as_chunk(holder) if isinstance(holder, MarkerId) else holder


def _malformed(partition: Partition, message: SwapSegments) -> Refused | None:
    """The refusal of a swap that would hide records, or that nobody could have meant."""
    new = message.merged
    if len(message.released) > RELEASED_MAX:
        return Refused(
            Code.INVALID_REQUEST, f"{len(message.released)} segments released: at most {RELEASED_MAX}"
        )
    begins = new.start_offset <= partition.held_start if new.segments else new.start_offset == new.end_offset
    if not begins or new.start_offset > new.end_offset:
        return Refused(
            Code.INVALID_REQUEST,
            f"partition {partition.handle}: {new.segments} segments from offset {new.start_offset} to "
            f"{new.end_offset} leave out records from the log start {partition.held_start} on",
        )
    return None


def _merged(manifest: ManifestId, new: MergedRange) -> Merged:
    return Merged(
        manifest=manifest,
        start_offset=new.start_offset,
        end_offset=new.end_offset,
        size_bytes=new.size_bytes,
        records=new.records,
        segments=new.segments,
        manifest_bytes=new.manifest_bytes,
        max_timestamp_ms=new.max_timestamp_ms,
        first_end_offset=new.first_end_offset,
        first_size_bytes=new.first_size_bytes,
        first_max_timestamp_ms=new.first_max_timestamp_ms,
        first_dirty_offset=new.first_dirty_offset,
        clean_bytes=new.clean_bytes,
        first_dirty_ms=new.first_dirty_ms,
    )
