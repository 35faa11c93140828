"""One merge of some partitions: read their oldest rows, write a segment each, swap the references.

    read           each chunk's span once for all of them, and segments that are taken along
    put-segment    one per partition: its rows behind the segments that it takes along
    put-manifest   one per partition, naming the new segment in place of those
    swap           few log entries for all, one decision per partition (coordination/state/segments.py)

Until the swap nothing is visible: whoever dies before leaves objects that nothing refers to, which collection
finds once the author is fenced. What a failed merge or a refused swap leaves is deleted here, since nobody
has seen it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from agent.background.rewriting.compaction.choice import claim_of
from agent.background.rewriting.compaction.sources import groups
from agent.background.rewriting.decisions import Decided, Decisions
from agent.background.rewriting.merging.planner import Due, MergeRules, Step
from agent.background.rewriting.merging.planner import plan as plan_one
from agent.background.rewriting.merging.spared import Spared, Unreadable
from agent.background.rewriting.merging.worker import Worker
from agent.background.rewriting.salvage import Piece, Salvage, lost_piece
from agent.background.rewriting.swap import OUTRUN, Swap, Swapping, SwapRefused
from agent.background.rewriting.worker import Corrupt
from agent.telemetry.logs import logger
from coordination.clock import Clock
from coordination.helper import HelperDied
from coordination.replica import Replica
from coordination.replica.clock_watch import deletion_ms
from coordination.state.types import Done, Merged, Partition, Refused
from coordination.steps import steps
from objectstore.manifest import Manifest
from objectstore.markers import marker_batch
from objectstore.merged import DamagedIndex, MergedRanges
from objectstore.naming import (
    ChunkId,
    ManifestId,
    MarkerId,
    SegmentId,
    SliceRef,
    manifest_key,
    object_key,
    segment_key,
)
from objectstore.ranges import Span, coalesce
from objectstore.reader import ChunkMissing, ChunkReader, CorruptSlice
from objectstore.store import Denied, NotFound, ObjectStore, Retryable, StoreError

_log = logger("merging")

GAP_BYTES_MAX = 64 * 1024  # slices nearer than this are read together …
SPAN_BYTES_MAX = 8 << 20  # … up to this size
READS_IN_FLIGHT_MAX = 4  # spans held at once, beside what the helper holds
PUTS_IN_FLIGHT_MAX = 4
SWAP_ROWS_MAX = 16_384  # rows that the swaps of one log entry drop: every agent's loop waits for that


@dataclass(frozen=True, slots=True)
class Parts:
    """What merges share."""

    replica: Replica
    store: ObjectStore
    ranges: MergedRanges
    worker: Worker
    clock: Clock
    cluster_id: bytes
    rules: MergeRules
    decisions: Decisions
    spared: Spared = field(default_factory=Spared)

    @property
    def swapping(self) -> Swapping:
        """Stores what was merged and swaps it into the partitions."""
        return Swapping("merge", self.replica, self.store, self.ranges)

    def salvage(self, passed: Decided) -> Salvage:
        """Reads the pieces of a partition where damage is passed over (skip-damaged)."""
        return Salvage(self.ranges, self.replica.barrier, passed)


@dataclass(slots=True)
class Outcome:
    """What a merge did. Bytes are record bytes."""

    swapped: list[int] = field(default_factory=list)  # handles
    refused: list[int] = field(default_factory=list)  # because something else came first
    failed: dict[int, SwapRefused] = field(default_factory=dict)  # for another reason
    rows: int = 0
    read_bytes: int = 0
    rewritten_bytes: int = 0  # of those, from segments that were taken along
    gets: int = 0


@dataclass(slots=True)
class Work:
    """One partition's merge, fixed when it was planned."""

    partition: Partition
    expected: Merged | None
    step: Step
    refs: list[SliceRef]  # everything to be read, in order
    segment: SegmentId
    name: ManifestId
    decided: Decided
    now_ms: int  # as of which damage was decided on
    swap: Swap | None = None  # once its objects are stored

    @property
    def bytes(self) -> int:
        """Record bytes to be read."""
        return sum(ref.length for ref in self.refs)

    @property
    def keys(self) -> tuple[str, str]:
        """The objects that it writes."""
        return segment_key(self.segment), manifest_key(self.name)


async def plan(parts: Parts, group: Iterable[Due], incarnation: int) -> list[Work]:
    """What to read and to write for each partition that still needs it. Raises StoreError."""
    works = []
    for each in group:
        work = await _plan(parts, each, incarnation)
        if work is not None:
            works.append(work)
        await asyncio.sleep(0)
    return works


def portions(works: Iterable[Work], bytes_max: int) -> Iterator[list[Work]]:
    """As many side by side as are of at most `bytes_max` together: what a merge holds in memory."""
    portion: list[Work] = []
    room = bytes_max
    for work in works:
        size = work.bytes
        if portion and size > room:
            yield portion
            portion, room = [], bytes_max
        portion.append(work)
        room -= size
    if portion:
        yield portion


async def merge(parts: Parts, works: Sequence[Work], incarnation: int) -> Outcome:
    """Merge what was planned. Raises LogError, StoreError (Unreadable too), Corrupt and HelperDied.

    Memory: the bytes of the works in the helper; a few spans and segments here.
    """
    outcome = Outcome()
    try:
        await _read(parts, works, outcome)
        gate = asyncio.Semaphore(PUTS_IN_FLIGHT_MAX)
        await _all(_store(parts, work, gate) for work in works)
    except (StoreError, HelperDied, Corrupt):
        await parts.swapping.take_back([key for work in works for key in work.keys])
        raise
    finally:
        await parts.worker.clear()
    await _swap(parts, works, incarnation, outcome)
    return outcome


async def _plan(parts: Parts, due: Due, incarnation: int) -> Work | None:
    """One partition's work; None when there is nothing left to do."""
    state, rules = parts.replica.state, parts.rules
    partition = state.partitions[due.handle]
    if partition is None:
        return None
    now_ms, expected = deletion_ms(state, parts.clock.now_ms()), partition.merged
    passed = parts.decisions.of(partition)
    salvage = parts.salvage(passed)
    manifest = await salvage.manifest(partition, expected) if expected is not None else None
    if state.partitions[due.handle] is not partition or partition.merged is not expected:
        return None
    tail = partition.slices.first_offset
    alone = claim_of(due.handle) in state.claims  # what a compaction reads stays until it has swapped
    alone = alone or passed.alone_from(0) < tail
    now_s, spared = asyncio.get_running_loop().time(), parts.spared
    until = min(passed.alone_from(tail), spared.tail_until(due.handle, now_s))
    left = spared.segments(due.handle, now_s)
    configs = state.cluster_configs
    step = plan_one(partition, manifest, due.rows, rules, configs, alone=alone, until=until, spared=left)
    if step is None:
        return None
    older = await _older(salvage, step.before, step.absorbed)
    number = parts.clock.random_bits(64)
    segment = SegmentId(incarnation, due.handle, number)
    if expected is not None and expected.segments and not len(step.before):  # their manifest is lost
        older = [lost_piece(segment, max(passed.held_start, expected.start_offset), expected.end_offset)]
    return Work(
        partition,
        expected,
        step,
        [*older, *step.taken.refs],
        segment,
        ManifestId(incarnation, due.handle, number),
        passed,
        now_ms,
    )


async def _older(salvage: Salvage, manifest: Manifest, absorbed: int) -> list[SliceRef]:
    """The blocks of the segments from `absorbed` on. Raises Unreadable and what the store raises."""
    blocks: list[SliceRef] = []
    for number in range(absorbed, len(manifest)):
        info = manifest[number]
        try:
            blocks += await salvage.blocks(info)
        except (ChunkMissing, DamagedIndex) as error:
            whole = lost_piece(info.segment, info.base_offset, info.end_offset)
            gone = isinstance(error, ChunkMissing)
            raise Unreadable(str(error), [(manifest.partition, whole)], gone=gone) from error
    return blocks


@steps("merge/read")
async def _read(parts: Parts, works: Sequence[Work], outcome: Outcome) -> None:
    """Give the helper every piece, each object's spans read once for all partitions.

    Where damage is passed over, a partition's pieces are read by themselves.
    """
    wanted: dict[ChunkId | SegmentId, list[tuple[int, SliceRef]]] = {}
    markers: list[tuple[int, SliceRef]] = []
    made: list[memoryview] = []
    hurt: list[tuple[Work, list[SliceRef]]] = []
    for work in works:
        handle = work.partition.handle
        hurt.append((work, []))
        for ref in work.refs:
            if work.decided.touches(ref):
                hurt[-1][1].append(ref)
            elif isinstance(ref.chunk, MarkerId):
                markers.append((handle, ref))
                made.append(memoryview(marker_batch(ref.chunk, ref.base_offset, ref.max_timestamp_ms)))
            else:
                wanted.setdefault(ref.chunk, []).append((handle, ref))
        taken, total = work.step.taken, work.bytes
        outcome.rows += len(taken.refs)
        outcome.read_bytes += total
        outcome.rewritten_bytes += total - taken.bytes
        await asyncio.sleep(0)
    if markers:
        await parts.worker.add(markers, made)
    gate = asyncio.Semaphore(READS_IN_FLIGHT_MAX)
    reads = []
    for named, pieces in wanted.items():
        ranges = [(ref.position, ref.length) for _, ref in pieces]
        for span in coalesce(ranges, GAP_BYTES_MAX, SPAN_BYTES_MAX):
            reads.append((named, span, [pieces[member] for member in span.members]))
        await asyncio.sleep(0)
    outcome.gets += len(reads)
    await _all(_read_span(parts, gate, *each) for each in reads)
    for work, refs in hurt:
        await _read_around(parts, work, refs)


async def _read_around(parts: Parts, work: Work, refs: Sequence[SliceRef]) -> None:
    """Give the helper what is sound of pieces whose damage is passed over, empty batches for the rest."""
    handle, reader = work.partition.handle, ChunkReader(parts.store, 0)
    try:
        for group in groups(refs):
            found = await _salvaged(parts, work, reader, group)
            await parts.worker.add([(handle, ref) for ref, _ in found], [data for _, data in found])
    finally:
        await reader.close()


async def _salvaged(parts: Parts, work: Work, reader: ChunkReader, group: Sequence[SliceRef]) -> list[Piece]:
    """What the pieces hold around damage. Raises Unreadable where that is nobody's decision."""
    handle = work.partition.handle
    try:
        return await parts.salvage(work.decided).read(reader, group)
    except CorruptSlice as error:
        raise Unreadable(str(error), [(handle, error.wanted)]) from error
    except ChunkMissing as error:
        gone = [(handle, ref) for ref in group if ref.chunk == error.chunk]
        raise Unreadable(str(error), gone, gone=True) from error


async def _read_span(
    parts: Parts,
    gate: asyncio.Semaphore,
    named: ChunkId | SegmentId,
    span: Span,
    pieces: Sequence[tuple[int, SliceRef]],
) -> None:
    async with gate:
        try:
            data = await parts.store.get_range(object_key(named), span.start, span.length)
        except NotFound:
            raise Unreadable(str(ChunkMissing(named)), pieces, gone=True) from None
        except (Denied, Retryable) as error:
            raise await _withheld(parts.store, named, span, pieces, error) from error
        view = memoryview(data)
        cuts = [view[ref.position - span.start :][: ref.length] for _, ref in pieces]
        await parts.worker.add(pieces, cuts)


async def _withheld(
    store: ObjectStore,
    named: ChunkId | SegmentId,
    span: Span,
    pieces: Sequence[tuple[int, SliceRef]],
    first: StoreError,
) -> Unreadable:
    """What of a span is cut off, or all of it where this object is refused and its metadata is not.

    Raises `first` where the store fails as it may for any object.
    """
    key = object_key(named)
    try:
        size = (await store.head(key)).size
    except NotFound:
        return Unreadable(str(ChunkMissing(named)), pieces, gone=True)
    except StoreError:
        raise first from None
    if isinstance(first, Denied):  # moved to an archive class, say: whose keys are wrong is refused both
        return Unreadable(str(first), pieces)
    if size >= span.start + span.length:
        raise first
    beyond = [(handle, ref) for handle, ref in pieces if ref.position + ref.length > size]
    return Unreadable(f"{key}: it ends at byte {size}; the read: {first}", beyond)


async def _store(parts: Parts, work: Work, gate: asyncio.Semaphore) -> None:
    """Write a partition's segment and the manifest that names it."""
    async with gate:
        aborted = work.step.taken.aborted
        info, content = await parts.worker.finish(parts.cluster_id, work.segment, aborted)
        if info is not None:
            await parts.swapping.put_segment(work.segment, [content])
        after, released = work.step.after(info, work.partition.held_start)
        size = await parts.swapping.put_manifest(work.name, after)
        last = work.step.taken.last_chunk
        judged_ms = work.now_ms if work.decided.final else 0
        work.swap = Swap(work.name, after, size, work.expected, last, released, work.keys, judged_ms)


async def _swap(parts: Parts, works: Sequence[Work], incarnation: int, outcome: Outcome) -> None:
    """Propose the swaps, entry by entry, and delete what was written for refused ones."""
    entry: list[Work] = []
    room = SWAP_ROWS_MAX
    for work in works:
        room -= len(work.step.taken.refs)
        if entry and room < 0:
            await _swap_at_once(parts, entry, incarnation, outcome)
            entry, room = [], SWAP_ROWS_MAX - len(work.step.taken.refs)
        entry.append(work)
    if entry:
        await _swap_at_once(parts, entry, incarnation, outcome)


async def _swap_at_once(parts: Parts, works: Sequence[Work], incarnation: int, outcome: Outcome) -> None:
    """The swaps of one log entry."""
    swaps = [work.swap for work in works if work.swap is not None]
    assert len(swaps) == len(works), "their objects are stored"
    results = await parts.swapping.swap(swaps, incarnation)
    for work, swap, result in zip(works, swaps, results, strict=True):
        handle = swap.after.partition
        if isinstance(result, Done):
            outcome.swapped.append(handle)
            continue
        assert isinstance(result, Refused), "a swap is made or refused"
        if result.code in OUTRUN:
            topic, index = work.partition.topic.name, work.partition.index
            _log.info("a merge was refused", topic=topic, partition=index, reason=str(result))
            outcome.refused.append(handle)
        else:
            outcome.failed[handle] = SwapRefused(result)


async def _all(coroutines: Iterable[object]) -> None:
    """Run side by side; when one fails the others end before its error is raised."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for each in coroutines:
                assert asyncio.iscoroutine(each), "only coroutines are run"
                tasks.create_task(each)
    except ExceptionGroup as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
