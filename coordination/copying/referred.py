"""The objects that a state names: chunks and manifests by itself, segments by the manifests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain

from coordination.state import State
from coordination.state.deleted import existing
from objectstore import manifest
from objectstore.manifest import CorruptManifest
from objectstore.naming import (
    ManifestId,
    chunk_key,
    manifest_key,
    parse_chunk_key,
    parse_manifest_key,
    parse_segment_key,
    segment_key,
)
from objectstore.store import NotFound, ObjectStore

READS_AT_ONCE = 16
"""Manifests that are read and held at a time."""


class Referred:
    """What must be at the destination. Manifests whose segments were seen there once are not read again."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._seen: set[ManifestId] = set()
        self._looked_at: list[ManifestId] = []

    async def wanted(self, state: State) -> set[str]:
        """Keys of all that the state names, but for segments that were seen. Raises StoreError."""
        found = {chunk_key(chunk) for chunk in state.chunks.serials}
        manifests = _manifests(state)
        found.update(map(manifest_key, manifests))
        self._seen &= manifests
        self._looked_at = []
        unseen = sorted(manifests - self._seen)
        for at in range(0, len(unseen), READS_AT_ONCE):
            some = unseen[at : at + READS_AT_ONCE]
            for keys in await asyncio.gather(*(self._segments(each) for each in some)):
                found.update(keys)
        return found

    def all_seen(self) -> None:
        """All that `wanted` said is at the destination."""
        self._seen.update(self._looked_at)

    async def names(self, state: State, key: str) -> bool:
        """Whether the state names this object. What is no chunk, segment or manifest it never does."""
        if (chunk := parse_chunk_key(key)) is not None:
            return chunk in state.chunks.serials
        if (listed := parse_manifest_key(key)) is not None:
            return listed in _manifests(state)
        if (segment := parse_segment_key(key)) is None or segment.partition >= len(state.partitions):
            return False
        partition = existing(state, segment.partition)
        if partition is None or partition.merged is None:
            return False
        return key in await self._segments(partition.merged.manifest)

    async def _segments(self, wanted: ManifestId) -> Sequence[str]:
        """None of a manifest that is gone or damaged: that one is then told of itself."""
        try:
            found = manifest.decode(await self._store.get(manifest_key(wanted)), wanted)
        except (NotFound, CorruptManifest):
            return ()
        self._looked_at.append(wanted)
        return [segment_key(each) for each in found.segments(0, len(found))]


def _manifests(state: State) -> set[ManifestId]:
    """Of partitions that exist, and of those whose deleted topic can come back."""
    partitions = chain(state.partitions, state.deleted_partitions.values())
    return {each.merged.manifest for each in partitions if each is not None and each.merged is not None}
