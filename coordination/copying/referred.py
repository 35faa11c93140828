"""The objects that a state names: chunks, manifests, tables' metadata by itself, segments by the manifests.

Manifests are read at the source, and at the destination where the source has lost them: what the copy has of
such a partition is all there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain

from coordination.state import State
from coordination.state.deleted import existing
from objectstore import manifest
from objectstore.manifest import CorruptManifest, Manifest
from objectstore.naming import (
    TABLES,
    ManifestId,
    chunk_key,
    key_below,
    manifest_key,
    parse_chunk_key,
    parse_manifest_key,
    parse_segment_key,
    segment_key,
)
from objectstore.store import NotFound, ObjectStore, is_there

READS_AT_ONCE = 16
"""Manifests that are read and held at a time."""


class Referred:
    """What must be at the destination. Manifests whose segments were seen there once are not read again.

    `url`: the source's, by which tables' files are called; `tables`: the folder that is copied of them.
    """

    def __init__(self, source: ObjectStore, target: ObjectStore, url: str, tables: str = TABLES) -> None:
        self._source, self._target, self._url, self._tables = source, target, url, tables
        self._seen: set[ManifestId] = set()
        self._looked_at: list[ManifestId] = []

    async def wanted(self, state: State) -> set[str]:
        """Keys of all that the state names, but for segments that were seen. Raises StoreError."""
        found = {chunk_key(chunk) for chunk in state.chunks.serials}
        found.update(self._metadata(state))
        manifests = _manifests(state)
        found.update(map(manifest_key, manifests))
        self._seen &= manifests
        self._looked_at = []
        unseen = sorted(manifests - self._seen)
        for at in range(0, len(unseen), READS_AT_ONCE):
            some = unseen[at : at + READS_AT_ONCE]
            for keys in await asyncio.gather(*(self._segments(each) for each in some)):
                found.update(keys or ())
        return found

    def all_seen(self) -> None:
        """All that `wanted` said is at the destination."""
        self._seen.update(self._looked_at)

    async def names(self, state: State, key: str) -> bool:
        """Whether the state names this object: no segment of a partition whose manifest nobody has."""
        if (segment := parse_segment_key(key)) is not None:
            listed = _manifest_of(state, segment.partition)
            return listed is not None and key in (await self._segments(listed) or ())
        return self._by_itself(state, key) or key in self._metadata(state)

    async def deletable(self, state: State, keys: Sequence[str]) -> list[str]:
        """Those of these that the state cannot name. Raises StoreError.

        Where neither side has a partition's manifest, nothing says which segments are its; and where the
        source lacks a table's metadata, which files are the table's. Then all of them stay.
        """
        tables = {_folder_of(key): key for key in self._metadata(state)}
        lacking: dict[str, bool] = {}
        segments: Sequence[str] | None = ()
        last: ManifestId | None = None  # whose these are: keys of one partition follow each other
        found: list[str] = []
        for key in keys:
            if (segment := parse_segment_key(key)) is not None:
                listed = _manifest_of(state, segment.partition)
                if listed != last:
                    last, segments = listed, () if listed is None else await self._segments(listed)
                stays = segments is None or key in segments
            elif (table := _above(tables, key)) is not None:
                if table not in lacking:
                    lacking[table] = not await is_there(self._source, table)
                stays = key == table or lacking[table]
            else:
                stays = self._by_itself(state, key)
            if not stays:
                found.append(key)
        return found

    async def manifest(self, wanted: ManifestId) -> Manifest | None:
        """The source's, else the destination's; None where both lack it, or have it damaged."""
        for store in (self._source, self._target):
            try:
                return manifest.decode(await store.get(manifest_key(wanted)), wanted)
            except (NotFound, CorruptManifest):
                continue
        return None

    async def _segments(self, wanted: ManifestId) -> Sequence[str] | None:
        """None of a manifest that nobody has whole: that one is then told of itself."""
        found = await self.manifest(wanted)
        if found is None:
            return None
        self._looked_at.append(wanted)
        return [segment_key(each) for each in found.segments(0, len(found))]

    def _by_itself(self, state: State, key: str) -> bool:
        if (chunk := parse_chunk_key(key)) is not None:
            return chunk in state.chunks.serials
        return (listed := parse_manifest_key(key)) is not None and listed in _manifests(state)

    def _metadata(self, state: State) -> set[str]:
        """Keys of tables' current metadata, of those that are copied: others are called by another URL."""
        keys = (key_below(self._url, table.metadata_location) for table in state.tables.values())
        return {key for key in keys if key is not None and key.startswith(self._tables)}


def _manifests(state: State) -> set[ManifestId]:
    """Of partitions that exist, and of those whose deleted topic can come back."""
    partitions = chain(state.partitions, state.deleted_partitions.values())
    return {each.merged.manifest for each in partitions if each is not None and each.merged is not None}


def _manifest_of(state: State, handle: int) -> ManifestId | None:
    partition = existing(state, handle) if handle < len(state.partitions) else None
    return partition.merged.manifest if partition is not None and partition.merged is not None else None


def _folder_of(metadata: str) -> str:
    """A table's folder, as everybody writes it: `<folder>/metadata/<file>`."""
    return metadata.rpartition("/metadata/")[0] or metadata.rpartition("/")[0]


def _above(tables: dict[str, str], key: str) -> str | None:
    """The current metadata of the table below whose folder a file lies."""
    folder = key
    while folder:
        if folder in tables:
            return tables[folder]
        folder = folder.rpartition("/")[0]
    return None
