"""An object goes only once a restore would come to a log that names it no more: each deletion is judged.

At its moment the names in the bucket say how far a restore would come; what the log said there is told by the
archive in the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from agent.background.collection import StateView
from coordination.archive import shelf
from coordination.archive.backed import through
from coordination.archive.head import Stored
from coordination.archive.shelf import Survey
from coordination.snapshot import decode
from coordination.state import State
from objectstore import manifest
from objectstore.adapters.memory import MemoryStore
from objectstore.naming import (
    CHUNKS,
    MANIFESTS,
    SEGMENTS,
    SNAPSHOTS,
    manifest_key,
    parse_chunk_key,
    parse_manifest_key,
    parse_piece_key,
    parse_segment_key,
    parse_snapshot_key,
)
from objectstore.store import NotFound
from tests.checker.findings import Finding

OF_RECORDS = (CHUNKS, SEGMENTS, MANIFESTS)


@dataclass(frozen=True, slots=True)
class Gone:
    """An object that an agent deleted, and how far a restore would have come then."""

    key: str
    through: int


def gone(keys: Sequence[str], bucket: Iterable[str]) -> list[Gone]:
    """Of what is deleted, where the bucket has, or had, these keys."""
    records = [key for key in keys if key.startswith(OF_RECORDS)]
    if not records:
        return []
    all_of_it = list(bucket)
    snapshots = [name.revision for key in all_of_it if (name := parse_snapshot_key(key))]
    pieces = [Stored(each, 0, 0) for key in all_of_it if (each := parse_piece_key(key))]
    reached = through(max(snapshots, default=0), pieces)
    return [Gone(key, reached) for key in records]


async def judged(
    whole: MemoryStore, found: Survey, begun: Iterable[int], deleted: Iterable[Gone]
) -> list[Finding]:
    """What went too early. `whole`: the bucket with all that was deleted; `begun`: where its lines begin."""
    findings: list[Finding] = []
    due = deque(sorted(deleted, key=lambda each: each.through))
    for revision in sorted(begun):
        state = await snapshot_of(whole, revision)
        while due and due[0].through < revision:
            due.popleft()  # nobody knows what the log said there
        async for entry in shelf.entries_after(whole, found, revision):
            while due and due[0].through < entry.revision:
                findings += await _named(whole, state, due.popleft())
            state.apply(entry)
    for each in due:
        findings += await _named(whole, state, each)
    return findings


async def snapshot_of(whole: MemoryStore, revision: int) -> State:
    """The state of the snapshot of a revision; an empty one where there is none."""
    for key in [key for key in whole._objects if key.startswith(f"{SNAPSHOTS}{revision:016x}")]:
        return decode(await whole.get(key))
    return State()


async def _named(whole: MemoryStore, state: State, each: Gone) -> list[Finding]:
    """A finding where a log with this state names what went."""
    view = StateView(cast(Any, SimpleNamespace(state=state)))  # as the collector looks at it
    chunk, named = parse_chunk_key(each.key), False
    if chunk is not None:
        named = view.is_referenced(chunk)
    elif (of := parse_manifest_key(each.key)) is not None:
        named = view.manifest_of(of.partition) == of
    elif (segment := parse_segment_key(each.key)) is not None:
        pointer = view.manifest_of(segment.partition)
        try:
            content = await whole.get(manifest_key(pointer)) if pointer is not None else b""
        except NotFound:
            content = b""
        named = bool(content) and pointer is not None and manifest.decode(content, pointer).names(segment)
    if not named:
        return []
    told = f"{each.key} went when a restore would have come to {each.through}, which names it"
    return [Finding("deleted-too-early", "", told, ())]
