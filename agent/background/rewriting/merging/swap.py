"""The command that puts a new manifest into a partition. Merging and compaction both rewrite ranges by it."""

from __future__ import annotations

from collections.abc import Sequence

from coordination.commands import ChunkId as ChunkIdMessage
from coordination.commands import MergedRange, SwapSegments
from coordination.commands import SegmentId as SegmentIdMessage
from coordination.state.types import Merged
from objectstore.manifest import Manifest
from objectstore.naming import ChunkId, ManifestId, MarkerId, SegmentId, marker_as_chunk


def swap_command(
    name: ManifestId,
    manifest: Manifest,
    manifest_bytes: int,
    *,
    expected: Merged | None,
    last_chunk: ChunkId | MarkerId | None,
    released: Sequence[SegmentId],
) -> SwapSegments:
    """Put `manifest`, stored under `name` (of this agent's incarnation), where the partition has `expected`.

    `last_chunk`: the chunk of the last row of the tail that moves into segments, None when none does.
    `released`: what the expected manifest names and the new one does not.
    """
    message = SwapSegments(partition=manifest.partition, number=name.number)
    message.merged.MergeFrom(MergedRange(manifest_bytes=manifest_bytes, **manifest.summary()._asdict()))
    if expected is not None:
        message.expected.incarnation = expected.manifest.incarnation
        message.expected.number = expected.manifest.number
    if isinstance(last_chunk, MarkerId):
        last_chunk = marker_as_chunk(last_chunk)
    if last_chunk is not None:
        message.last_chunk.MergeFrom(
            ChunkIdMessage(incarnation=last_chunk.incarnation, number=last_chunk.number)
        )
    message.released.extend(
        SegmentIdMessage(incarnation=each.incarnation, number=each.number) for each in released
    )
    return message
