"""One merge of a group of partitions: read their oldest rows, write a segment each, swap the references.

    read           each chunk's span once for all partitions of the group, and segments that are taken along
    put-segment    one per partition: its rows behind the segments that it takes along
    put-manifest   one per partition, naming the new segment in place of those
    swap           one log entry for the group, one decision per partition (coordination/state/segments.py)

Until the swap nothing is visible: whoever dies before leaves objects that nothing refers to, which collection
finds once the author is fenced. What a refused swap leaves is deleted here, since nobody has seen it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agent.logs import logger
from agent.merging.planner import Due, MergeRules, Take, absorbed_from, span_ms, take
from agent.merging.swap import swap_command
from agent.merging.worker import Worker
from coordination.clock import Clock
from coordination.commands import command
from coordination.replica import Replica
from coordination.state.types import Done, Merged, Partition
from objectstore.manifest import Manifest
from objectstore.merged import MergedRanges
from objectstore.naming import ManifestId, SegmentId, SliceRef, manifest_key, object_key, segment_key
from objectstore.ranges import Span, coalesce
from objectstore.reader import ChunkMissing
from objectstore.steps import reach
from objectstore.store import CREATE, NotFound, ObjectStore

_log = logger("merging")

GAP_BYTES_MAX = 64 * 1024  # slices nearer than this are read together …
SPAN_BYTES_MAX = 8 << 20  # … up to this size
READS_IN_FLIGHT_MAX = 4  # spans held at once, beside what the helper holds
PUTS_IN_FLIGHT_MAX = 4


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


@dataclass(slots=True)
class Outcome:
    """What a merge of a group did. Bytes are record bytes."""

    swapped: list[int] = field(default_factory=list)  # handles
    refused: list[int] = field(default_factory=list)
    rows: int = 0
    read_bytes: int = 0
    rewritten_bytes: int = 0  # of those, from segments that were taken along
    gets: int = 0


@dataclass(slots=True)
class _Work:
    """One partition's merge, fixed when it was planned."""

    partition: Partition
    expected: Merged | None
    manifest: Manifest
    absorbed: int  # number of the first segment that is taken along
    taken: Take
    refs: list[SliceRef]  # everything to be read, in order
    segment: SegmentId
    name: ManifestId
    after: Manifest | None = None
    manifest_bytes: int = 0
    released: Sequence[SegmentId] = ()


async def merge(parts: Parts, group: Sequence[Due], incarnation: int) -> Outcome:
    """Merge the group's partitions. Raises LogError, StoreError, Corrupt and HelperDied.

    Memory: what the group has been limited to, in the helper; a few spans and segments here.
    """
    outcome = Outcome()
    works = [work for each in group if (work := await _plan(parts, each, incarnation)) is not None]
    try:
        reach("merge/read")
        await _read(parts, works, outcome)
        gate = asyncio.Semaphore(PUTS_IN_FLIGHT_MAX)
        await _all(_store(parts, work, gate) for work in works)
    finally:
        await parts.worker.clear()
    await _swap(parts, works, incarnation, outcome)
    return outcome


async def _plan(parts: Parts, due: Due, incarnation: int) -> _Work | None:
    """What to read and to write for one partition; None when there is nothing left to do."""
    state = parts.replica.state
    partition = state.partitions[due.handle]
    expected = partition.merged if partition is not None else None
    manifest = await parts.ranges.manifest(expected.manifest) if expected is not None else None
    partition = state.partitions[due.handle]
    if partition is None or partition.merged is not expected:
        return None
    taken = take(partition, due.rows, parts.rules.segment_bytes)
    if taken is None:
        return None
    if manifest is None:
        manifest = Manifest.empty(due.handle, partition.slices.first_offset)
    elif not len(manifest):  # compaction left nothing: the new segment answers for all from the log start on
        bare = Manifest.empty(due.handle, min(manifest.end_offset, partition.log_start))
        manifest = bare.with_first_dirty(manifest.first_dirty_offset)
    newest_ms = max(ref.max_timestamp_ms for ref in taken.refs)
    spread_ms = span_ms(partition.topic, state.cluster_configs)
    absorbed = absorbed_from(manifest, taken.bytes, parts.rules.segment_bytes, spread_ms, newest_ms)
    absorbed = max(absorbed, manifest.find(partition.log_start))
    older = [
        block
        for number in range(absorbed, len(manifest))
        for block in (await parts.ranges.index(manifest[number])).blocks
    ]
    number = parts.clock.random_bits(64)
    return _Work(
        partition,
        expected,
        manifest,
        absorbed,
        taken,
        [*older, *taken.refs],
        SegmentId(incarnation, due.handle, number),
        ManifestId(incarnation, due.handle, number),
    )


async def _read(parts: Parts, works: Sequence[_Work], outcome: Outcome) -> None:
    """Give the helper every piece, each object's spans read once for all partitions."""
    wanted: dict[str, list[tuple[int, SliceRef]]] = {}
    for work in works:
        for ref in work.refs:
            wanted.setdefault(object_key(ref.chunk), []).append((work.partition.handle, ref))
        outcome.rows += len(work.taken.refs)
        total = sum(ref.length for ref in work.refs)
        outcome.read_bytes += total
        outcome.rewritten_bytes += total - work.taken.bytes
    gate = asyncio.Semaphore(READS_IN_FLIGHT_MAX)
    reads = []
    for key, pieces in wanted.items():
        ranges = [(ref.position, ref.length) for _, ref in pieces]
        for span in coalesce(ranges, GAP_BYTES_MAX, SPAN_BYTES_MAX):
            reads.append((key, span, [pieces[member] for member in span.members]))
    outcome.gets += len(reads)
    await _all(_read_span(parts, gate, *each) for each in reads)


async def _read_span(
    parts: Parts, gate: asyncio.Semaphore, key: str, span: Span, pieces: Sequence[tuple[int, SliceRef]]
) -> None:
    async with gate:
        try:
            data = await parts.store.get_range(key, span.start, span.length)
        except NotFound:
            raise ChunkMissing(pieces[0][1].chunk) from None
        view = memoryview(data)
        cuts = [view[ref.position - span.start :][: ref.length] for _, ref in pieces]
        await parts.worker.add(pieces, cuts)


async def _store(parts: Parts, work: _Work, gate: asyncio.Semaphore) -> None:
    """Write a partition's segment and the manifest that names it."""
    async with gate:
        info, content = await parts.worker.finish(parts.cluster_id, work.segment)
        reach("merge/put-segment")
        await parts.store.put(segment_key(work.segment), [content], CREATE)
        before, end_offset = work.manifest, work.taken.end_offset
        kept = before.without_from(work.absorbed)
        dead = kept.find(work.partition.log_start)
        work.after = kept.appended([info], end_offset).without_below(work.partition.log_start)
        work.released = before.segments(0, dead) + before.segments(work.absorbed, len(before))
        encoded = await asyncio.to_thread(work.after.encode, work.name)
        work.manifest_bytes = len(encoded)
        reach("merge/put-manifest")
        await parts.store.put(manifest_key(work.name), [encoded], CREATE)


async def _swap(parts: Parts, works: Sequence[_Work], incarnation: int, outcome: Outcome) -> None:
    """Propose all swaps as one entry, keep what took effect, delete what did not."""
    if not works:
        return
    swaps = []
    for work in works:
        assert work.after is not None, "its manifest was stored"
        swap = swap_command(
            work.name,
            work.after,
            work.manifest_bytes,
            expected=work.expected,
            last_chunk=work.taken.last_chunk,
            released=work.released,
        )
        swaps.append(command(swap))
    reach("merge/swap")
    results = await parts.replica.submit(swaps, incarnation=incarnation)
    reach("merge/swapped")
    orphans: list[str] = []
    for work, result in zip(works, results, strict=True):
        handle = work.partition.handle
        if isinstance(result, Done):
            assert work.after is not None, "its manifest was stored"
            outcome.swapped.append(handle)
            parts.ranges.remember(work.name, work.after)
            continue
        _log.info("a merge was refused", partition=handle, reason=str(result))
        outcome.refused.append(handle)
        orphans += [segment_key(work.segment), manifest_key(work.name)]
    if orphans:
        await parts.store.delete(orphans)


async def _all(coroutines: Iterable[object]) -> None:
    """Run side by side; when one fails the others end before its error is raised."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for each in coroutines:
                assert asyncio.iscoroutine(each), "only coroutines are run"
                tasks.create_task(each)
    except* Exception as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
