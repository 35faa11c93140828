"""New segments and manifests on their way into partitions: stored, swapped in by a command, or taken back.

Until its swap is applied nothing refers to what was written: whoever dies before leaves objects that
collection finds once the author is fenced. What a refused swap leaves is deleted here, since nobody has seen
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from coordination.commands import ChunkId as ChunkIdMessage
from coordination.commands import MergedRange, SwapSegments, command
from coordination.commands import SegmentId as SegmentIdMessage
from coordination.kafka_codes import Code
from coordination.replica import Replica
from coordination.state.types import Done, Merged, Refused, Result
from coordination.steps import reach
from objectstore.manifest import Manifest
from objectstore.merged import MergedRanges
from objectstore.naming import (
    ChunkId,
    ManifestId,
    MarkerId,
    SegmentId,
    manifest_key,
    marker_as_chunk,
    segment_key,
)
from objectstore.store import CREATE, Buffer, ObjectStore, StoreError

OUTRUN = frozenset((Code.INVALID_UPDATE_VERSION, Code.OFFSET_OUT_OF_RANGE, Code.UNKNOWN_TOPIC_OR_PARTITION))
"""With these a swap is refused that something else came before: nobody's fault, and the next may be taken."""


class SwapRefused(Exception):
    """The log will not take this swap, and would not the next time."""

    def __init__(self, refusal: Refused) -> None:
        super().__init__(f"{Code(refusal.code).name}: {refusal.message}")


@dataclass(frozen=True, slots=True)
class Swap:
    """Put `after`, stored under `name` (of this agent's incarnation), where the partition has `expected`.

    `last_chunk`: the chunk of the last row of the tail that moves into segments, None when none does.
    `released`: what the expected manifest names and the new one does not. `size`: of the stored manifest,
    bytes. `written`: objects that are of no use when the swap is refused.
    """

    name: ManifestId
    after: Manifest
    size: int
    expected: Merged | None
    last_chunk: ChunkId | MarkerId | None
    released: Sequence[SegmentId]
    written: Sequence[str]
    judged_ms: int = 0
    """By which time tombstones went, or what is damaged was given up, Unix ms; 0: nothing was."""

    def command(self) -> SwapSegments:
        """The command that does it, or is refused when something changed (coordination/state/segments.py)."""
        message = SwapSegments(
            partition=self.after.partition, number=self.name.number, judged_ms=self.judged_ms
        )
        summary = self.after.summary()._asdict()
        message.merged.MergeFrom(MergedRange(manifest_bytes=self.size, **summary))
        if self.expected is not None:
            message.expected.incarnation = self.expected.manifest.incarnation
            message.expected.number = self.expected.manifest.number
        last = self.last_chunk
        if isinstance(last, MarkerId):
            last = marker_as_chunk(last)
        if last is not None:
            message.last_chunk.MergeFrom(ChunkIdMessage(incarnation=last.incarnation, number=last.number))
        message.released.extend(
            SegmentIdMessage(incarnation=each.incarnation, number=each.number) for each in self.released
        )
        return message


class Swapping:
    """Stores and swaps for one kind of rewriting. `path` names its steps: "merge" or "compact"."""

    def __init__(self, path: str, replica: Replica, store: ObjectStore, ranges: MergedRanges) -> None:
        self._path = path
        self._replica = replica
        self._store = store
        self._ranges = ranges

    async def put_segment(self, name: SegmentId, parts: Sequence[Buffer]) -> None:
        """Store a segment. Raises StoreError."""
        reach(f"{self._path}/put-segment")
        await self._store.put(segment_key(name), parts, CREATE)

    async def put_manifest(self, name: ManifestId, manifest: Manifest) -> int:
        """Store a manifest; gives its length in bytes. Raises StoreError."""
        encoded = await asyncio.to_thread(manifest.encode, name)
        reach(f"{self._path}/put-manifest")
        await self._store.put(manifest_key(name), [encoded], CREATE)
        return len(encoded)

    async def swap(self, swaps: Sequence[Swap], incarnation: int) -> list[Result]:
        """Propose swaps in one entry of the log; what refused ones wrote is deleted. Raises LogError."""
        reach(f"{self._path}/swap")
        commands = [command(each.command()) for each in swaps]
        results = await self._replica.submit(commands, incarnation=incarnation)
        reach(f"{self._path}/swapped")
        useless: list[str] = []
        for each, result in zip(swaps, results, strict=True):
            if isinstance(result, Done):
                self._ranges.remember(each.name, each.after)
            else:
                useless += each.written
        await self.take_back(useless)
        return list(results)

    async def take_back(self, keys: Sequence[str]) -> None:
        """Delete what nothing refers to; what the store does not take now, collection finds."""
        if keys:
            with suppress(StoreError):
                await self._store.delete(list(keys))
