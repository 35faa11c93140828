"""Merged ranges that a state names: whether the bucket has their manifests and segments. Changes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import chain

from coordination.state import State
from objectstore import manifest
from objectstore.manifest import CorruptManifest
from objectstore.naming import (
    MANIFESTS,
    SEGMENTS,
    ManifestId,
    SegmentId,
    manifest_key,
    parse_manifest_key,
    parse_segment_key,
    segment_key,
)
from objectstore.store import NotFound, ObjectStore

MANIFESTS_READ_MAX = 10_000
"""Of so many partitions is it looked at whether their segments are there: each is a GET, and clients wait."""
READS_AT_ONCE = 16


@dataclass(slots=True)
class Merged:
    """What of them is `missing`, by key, or `damaged`, with why. `unread`: manifests behind the bound."""

    missing: list[str] = field(default_factory=list)
    damaged: list[tuple[str, str]] = field(default_factory=list)
    unread: int = 0


async def merged_of(store: ObjectStore, state: State) -> Merged:
    """Of partitions that exist, and of those whose deleted topic can come back. Raises StoreError."""
    partitions = chain(state.partitions, state.deleted_partitions.values())
    named = sorted(
        {each.merged.manifest for each in partitions if each is not None and each.merged is not None}
    )
    if not named:
        return Merged()
    manifests, segments = set[ManifestId | None](), set[SegmentId | None]()
    async for page in store.list(MANIFESTS):
        manifests.update(parse_manifest_key(meta.key) for meta in page)
    async for page in store.list(SEGMENTS):
        segments.update(parse_segment_key(meta.key) for meta in page)
    found = Merged([manifest_key(each) for each in named if each not in manifests])
    there = [each for each in named if each in manifests]
    found.unread = max(0, len(there) - MANIFESTS_READ_MAX)
    for at in range(0, len(there) - found.unread, READS_AT_ONCE):
        some = there[at : min(at + READS_AT_ONCE, MANIFESTS_READ_MAX)]
        await asyncio.gather(*(_look(store, each, segments, found) for each in some))
    found.missing.sort()
    return found


async def _look(store: ObjectStore, named: ManifestId, there: set[SegmentId | None], found: Merged) -> None:
    key = manifest_key(named)
    try:
        listed = manifest.decode(await store.get(key), named)
    except NotFound:
        found.missing.append(key)
    except CorruptManifest as error:
        found.damaged.append((key, str(error)))
    else:
        segments = listed.segments(0, len(listed))
        found.missing += [segment_key(each) for each in segments if each not in there]
