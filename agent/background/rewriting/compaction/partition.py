"""One compaction of one partition: learn the dirty range, rewrite what it supersedes, swap the references.

    learn   every key's newest offset in the dirty range, until its end or until the map is full
    clean   each segment from the first on, and the tail's rows: what stays goes into new segments
    swap    one command puts the new manifest where the partition has the old one (state/segments.py)

Until the swap nothing is visible, so whoever dies anywhere leaves objects that nothing refers to, and nothing
worse: `compact/…` in coordination/steps.py names the places. A segment of which all stays is kept as it is.
Memory: the key map in the worker, a segment read and one being written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.background.rewriting.compaction.choice import Rules, limit_of
from agent.background.rewriting.compaction.edit import Edit, Run, TailRun, edited, released
from agent.background.rewriting.compaction.sources import READ_BYTES, Bounds, Sources, groups
from agent.background.rewriting.compaction.worker import Begin, Worker
from agent.background.rewriting.decisions import Decisions
from agent.background.rewriting.salvage import Salvage
from agent.background.rewriting.spans import Span, parted
from agent.background.rewriting.swap import OUTRUN, Swap, Swapping, SwapRefused
from coordination.clock import Clock
from coordination.kafka_codes import Code
from coordination.replica import Replica
from coordination.replica.clock_watch import deletion_ms
from coordination.state.segments import RELEASED_MAX
from coordination.state.types import Done, Merged, Partition, Refused, Result
from coordination.steps import reach
from objectstore.compact import Counts
from objectstore.compact import Rules as BatchRules
from objectstore.manifest import Manifest
from objectstore.merged import MergedRanges
from objectstore.naming import ChunkId, ManifestId, MarkerId, SegmentId, SliceRef, manifest_key, segment_key
from objectstore.reader import ChunkMissing
from objectstore.segment import SegmentInfo, SegmentWriter
from objectstore.store import ObjectStore

REBASES_MAX = 8  # times that a swap is tried again because the manifest moved
KEPT_SHARE_MIN = 2  # a segment below the goal by more than this factor is joined with its neighbours


@dataclass(frozen=True, slots=True)
class Parts:
    """What compactions share. `segment_bytes`: of one to be written, at most; `tables`: see limit_of."""

    replica: Replica
    store: ObjectStore
    ranges: MergedRanges
    sources: Sources
    worker: Worker
    clock: Clock
    cluster_id: bytes
    decisions: Decisions
    segment_bytes: int
    tables: bool

    @property
    def swapping(self) -> Swapping:
        """Stores what was compacted and swaps it into the partition."""
        return Swapping("compact", self.replica, self.store, self.ranges)


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did. `swapped` False: the partition changed too much meanwhile; nothing happened."""

    counts: Counts
    cleaned_to: int
    full: bool
    swapped: bool


@dataclass(slots=True)
class _Writing:
    """New segments in the making: one open writer, and where finished ones go."""

    parts: Parts
    partition: int
    incarnation: int
    put: list[SegmentInfo] = field(default_factory=list)
    writer: SegmentWriter | None = None

    async def add(self, batches: memoryview) -> None:
        """Append batches; a segment that has reached its goal is stored."""
        if not batches.nbytes:
            return
        if self.writer is None:
            number = self.parts.clock.random_bits(64)
            name = SegmentId(self.incarnation, self.partition, number)
            self.writer = SegmentWriter(self.parts.cluster_id, name)
        await asyncio.to_thread(self.writer.add, batches)
        if self.writer.record_bytes >= self.parts.segment_bytes:
            await self.close()

    async def close(self) -> None:
        """Store the segment that is open, if any."""
        writer, self.writer = self.writer, None
        if writer is None:
            return
        encoded = writer.finish()
        self.put.append(encoded.info)
        await self.parts.swapping.put_segment(encoded.info.segment, encoded.parts)


class Outrun(Exception):
    """The partition changed while it was read: what a compaction was to read was taken away meanwhile."""


class PartitionCompaction:
    """Compacts one partition once. `incarnation` is the author's, `keys_max` bounds the key map."""

    def __init__(
        self, parts: Parts, partition: Partition, rules: Rules, incarnation: int, keys_max: int
    ) -> None:
        self._parts = parts
        self._partition = partition
        self._rules = rules
        self._incarnation = incarnation
        self._keys_max = keys_max
        self._now_ms = now_ms = deletion_ms(parts.replica.state, parts.clock.now_ms())
        passed = parts.decisions.of(partition)
        self._salvage = Salvage(parts.ranges, parts.replica.barrier, passed)
        limit = limit_of(parts.replica.state, partition, tables=parts.tables)
        limit = min(limit, passed.alone_from(0))
        self._bounds = Bounds(limit, rules.newest_ms(now_ms))
        self._span = Span.of(partition.topic.configs, parts.replica.state.cluster_configs)
        aborted = tuple(partition.aborted(partition.slices.first_offset, limit))
        self._begin = Begin(BatchRules(now_ms, rules.delete_retention_ms), keys_max, aborted)

    async def run(self) -> Compacted | None:
        """Compact what is due; None when there is nothing to do.

        Raises Outrun when the partition changed under the reader, ChunkMissing when it did not and refers to
        an object that is gone, SwapRefused, StoreError, LogError, HelperDied.
        """
        found = self._place()
        try:
            return await self._run()
        except ChunkMissing as error:
            await self._parts.replica.barrier()  # whoever took it may have been another agent
            if self._place() == found:
                raise
            raise Outrun(str(error)) from error

    def _place(self) -> tuple[object, ...]:
        """What changes when merging, retention or a deletion takes away something of the partition."""
        partition = self._partition
        known = self._parts.replica.state.partitions[partition.handle] is not None
        return known, partition.merged, partition.held_start, partition.slices.first_offset

    async def _run(self) -> Compacted | None:
        manifest = await self._manifest(self._partition.merged)
        rows = await self._parts.sources.tail(self._partition, manifest.end_offset, self._bounds)
        worker = self._parts.worker
        try:
            await worker.begin(self._begin)
            reach("compact/learn")
            latest, full = await self._learn(manifest, rows)
            edit: Edit | None = None
            if latest >= manifest.first_dirty_offset:
                reach("compact/clean")
                edit = await self._clean(manifest, rows, latest)
            counts = await worker.finish()
        except BaseException:
            await worker.close()  # with its memory
            raise
        if edit is None:
            return None
        return Compacted(counts, edit.cleaned_to, full, swapped=await self._swap(edit))

    async def _manifest(self, merged: Merged | None) -> Manifest:
        if merged is None:
            return Manifest.empty(self._partition.handle, self._partition.slices.first_offset)
        return await self._parts.ranges.manifest(merged.manifest)

    async def _learn(self, manifest: Manifest, rows: Sequence[SliceRef]) -> tuple[int, bool]:
        """The offset up to which keys are known, -1 for none, and whether there was no room for more."""
        start, latest = manifest.first_dirty_offset, -1
        worker = self._parts.worker
        for number in range(manifest.find(start), len(manifest)):
            blocks = [ref for ref in await self._salvage.blocks(manifest[number]) if ref.end_offset > start]
            admitted = [*self._admitted(blocks)]
            for group in groups(admitted):
                learned = await worker.learn(await self._read(group), start)
                latest = learned.latest
                if learned.full:
                    return latest, True
            if len(admitted) < len(blocks):
                return latest, False
        for group in groups(rows):
            learned = await worker.learn(await self._read(group), start)
            latest = learned.latest
            if learned.full:
                return latest, True
        return latest, False

    async def _read(self, refs: Sequence[SliceRef]) -> list[memoryview]:
        """The pieces' batches. Raises ChunkMissing, CorruptSlice and StoreError."""
        return await self._parts.sources.read(self._salvage, refs)

    def _admitted(self, refs: Sequence[SliceRef]) -> Sequence[SliceRef]:
        """The pieces before the first that may not be compacted."""
        for number, ref in enumerate(refs):
            if not self._bounds.admits(ref):
                return refs[:number]
        return refs

    async def _clean(self, manifest: Manifest, rows: Sequence[SliceRef], latest: int) -> Edit:
        """Write what stays of everything up to `latest`, and say what changes in the manifest.

        Ends before more segments would go than one swap may let go of: the rest is for the next compaction.
        """
        edit = Edit(latest + 1)
        writing = _Writing(self._parts, manifest.partition, self._incarnation)
        run: Run | None = None
        released = 0
        for number in range(manifest.find(self._partition.held_start), len(manifest)):
            info = manifest[number]
            if info.base_offset > latest:
                break
            if released == RELEASED_MAX:
                edit.cleaned_to, rows = info.base_offset, ()
                break
            kept, changed = await self._cleaned(await self._salvage.blocks(info))
            if not changed and info.record_bytes * KEPT_SHARE_MIN >= self._parts.segment_bytes:
                await writing.close()
                run = None
                continue
            if run is not None and not self._span.takes(info.begun_ms, info.max_timestamp_ms):
                await writing.close()
                run = None
            if run is None:
                self._span.begin(info.begun_ms)
                run = Run(info.base_offset)
                writing.put = run.put
                edit.runs.append(run)
            run.names.append(info.segment)
            released += 1
            for batches in kept:
                await writing.add(batches)
        await writing.close()
        await self._clean_tail(edit, writing, [row for row in rows if row.base_offset <= latest])
        return edit

    async def _clean_tail(self, edit: Edit, writing: _Writing, taken: Sequence[SliceRef]) -> None:
        """Write what stays of these rows of the tail."""
        if taken:
            assert isinstance(taken[-1].chunk, ChunkId | MarkerId), "a row of the tail lies in a chunk"
            edit.tail = TailRun(taken[0].base_offset, taken[-1].end_offset, taken[-1].chunk)
            writing.put = edit.tail.put
            for part in parted(taken, self._span):
                for group in groups(part, self._group_bytes):
                    await writing.add((await self._parts.worker.clean(await self._read(group)))[0])
                await writing.close()

    @property
    def _group_bytes(self) -> int:
        """What is read and written at once: never so much that a segment becomes far too large."""
        return min(READ_BYTES, self._parts.segment_bytes)

    async def _cleaned(self, blocks: Sequence[SliceRef]) -> tuple[list[memoryview], bool]:
        """What stays of a segment, and whether that is not all of it."""
        kept: list[memoryview] = []
        changed = False
        for group in groups(blocks, self._group_bytes):
            left, differs = await self._parts.worker.clean(await self._read(group))
            kept.append(left)
            changed = changed or differs
        return kept, changed

    async def _swap(self, edit: Edit) -> bool:
        """Make the edit true, on the manifest as it is by then; False when that is no longer possible."""
        for _ in range(REBASES_MAX):
            merged = self._partition.merged
            before = await self._manifest(merged)
            after = edited(before, edit)
            if after is None and edit.tail is not None and edit.runs:
                await self._parts.swapping.take_back([segment_key(each.segment) for each in edit.tail.put])
                edit = edit.without_tail()
                continue
            if after is None:
                break
            result = await self._propose(edit, merged, before, after)
            if isinstance(result, Done):
                return True
            assert isinstance(result, Refused), "a swap is made or refused"
            if result.code not in OUTRUN:
                await self._parts.swapping.take_back([segment_key(name) for name in edit.segments])
                raise SwapRefused(result)
            if result.code is not Code.INVALID_UPDATE_VERSION:
                break
            await self._parts.replica.barrier()
        await self._parts.swapping.take_back([segment_key(name) for name in edit.segments])
        return False

    async def _propose(self, edit: Edit, merged: Merged | None, before: Manifest, after: Manifest) -> Result:
        swapping = self._parts.swapping
        name = ManifestId(self._incarnation, after.partition, self._parts.clock.random_bits(64))
        size = await swapping.put_manifest(name, after)
        last = edit.tail.last_chunk if edit.tail is not None else None
        gone = released(before, after)
        swap = Swap(name, after, size, merged, last, gone, [manifest_key(name)], self._now_ms)
        (result,) = await swapping.swap([swap], self._incarnation)
        return result
