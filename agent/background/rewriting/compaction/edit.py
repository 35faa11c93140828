"""What a compaction changes in a partition's manifest, and how that fits one that changed meanwhile. Pure.

Merging appends segments behind the last one and takes expired ones away in front while a compaction reads and
writes. Neither touches what lies between: as long as the compaction's claim is held, merging joins none of
the older segments with a new one (agent/background/rewriting/merging/merge.py). So a compaction need not
begin anew: its edit is made on the manifest as it is now, as long as that still names what the compaction
read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from objectstore.manifest import Manifest
from objectstore.naming import ChunkId, MarkerId, SegmentId
from objectstore.segment import SegmentInfo


@dataclass(slots=True)
class Run:
    """Neighbouring segments that were read, from `base_offset` on, and what takes their place."""

    base_offset: int
    names: list[SegmentId] = field(default_factory=list)
    put: list[SegmentInfo] = field(default_factory=list)


@dataclass(slots=True)
class TailRun:
    """Rows of the tail that were read, [start, end), the chunk of the last, and what takes their place."""

    start_offset: int
    end_offset: int
    last_chunk: ChunkId | MarkerId
    put: list[SegmentInfo] = field(default_factory=list)


@dataclass(slots=True)
class Edit:
    """All of one compaction. Offsets below `cleaned_to` are compacted once it is made."""

    cleaned_to: int
    runs: list[Run] = field(default_factory=list)
    tail: TailRun | None = None

    @property
    def segments(self) -> list[SegmentId]:
        """Everything that was written for it."""
        tail = self.tail.put if self.tail is not None else []
        return [info.segment for run in self.runs for info in run.put] + [info.segment for info in tail]

    def without_tail(self) -> Edit:
        """The part that concerns merged segments alone."""
        assert self.tail is not None
        return Edit(min(self.cleaned_to, self.tail.start_offset), self.runs)


def edited(manifest: Manifest, edit: Edit) -> Manifest | None:
    """The manifest after the edit; None when it no longer is what the edit was made for."""
    if edit.tail is not None and manifest.end_offset != edit.tail.start_offset:
        return None
    places: list[tuple[int, Run]] = []
    for run in edit.runs:
        first = manifest.find(run.base_offset)
        if manifest.segments(first, first + len(run.names)) != run.names:
            return None
        places.append((first, run))
    if edit.tail is not None:  # first: it may have to answer for offsets of which nothing is left
        manifest = manifest.appended(edit.tail.put, edit.tail.end_offset)
    for first, run in reversed(places):
        manifest = manifest.replaced(first, first + len(run.names), run.put)
    return manifest.with_first_dirty(max(edit.cleaned_to, manifest.first_dirty_offset))


def released(before: Manifest, after: Manifest) -> Sequence[SegmentId]:
    """The segments that `before` names and `after` does not, in order."""
    kept = frozenset(after.segments(0, len(after)))
    return [name for name in before.segments(0, len(before)) if name not in kept]
