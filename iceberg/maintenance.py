"""Removes files that no table names: what dead committers left behind and what expired.

Safe by order and by claim: a file is garbage only when the current head does not reach it, as a read barrier
shows that finds the claim still held. Nobody without the claim can make it reachable any more, and what the
next holder makes is younger than the head's own metadata: by the store's clock, which stamped both. The grace
period, by the agents' clocks, is for readers that planned with a snapshot which has expired since, and for
metadata that a catalog is about to commit. A file leaves the table before its object is deleted. What says
which files are reached is verified first (sealed.py): a damaged list must not make a live file look like
garbage.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass

from iceberg import history, ledger, manifest_avro, manifests
from iceberg.head import Head
from iceberg.sealed import read
from iceberg.segments import SegmentReader
from iceberg.steps import Steps
from iceberg.warehouse import Warehouse
from objectstore.removal import DELETE_KEYS_MAX, Removal
from objectstore.store import ObjectStore

_logger = logging.getLogger("floe.iceberg.maintenance")


@dataclass(frozen=True, slots=True)
class Reached:
    """What a head leads to: keys, and every file that one of these snapshots made."""

    keys: Set[str]
    snapshots: Set[int]

    def __contains__(self, key: str) -> bool:
        made_by = _MADE_BY.match(key.rsplit("/", 1)[-1])
        return key in self.keys or (made_by is not None and int(made_by[1], 16) in self.snapshots)


_MADE_BY = re.compile(r"([0-9a-f]{16})-")
"""How names of data files, manifests and lists begin: with the snapshot that they were made for."""


async def reachable(store: ObjectStore, warehouse: Warehouse, head: Head, since_ms: int = 0) -> Reached:
    """Everything that the head's metadata leads to, itself and its kept history included, and what the base
    led to before the present one, if that was made since `since_ms` (Unix ms).

    Of a day's snapshots a few are looked into. A snapshot of the committer's reaches what its parent does and
    what was made for it, and names begin with whom they were made for. So what all reach was made for one of
    them, or is reached by one whose parent is gone; the current one is read too, and those for which another
    engine made files, under names of its own.
    """
    metadata = head.metadata
    segments = [f"{metadata['location']}/{each.name}" for each in history.of(metadata).segments]
    snapshots = [*metadata["snapshots"], *await SegmentReader(store, warehouse, 0).snapshots(metadata)]
    kept = {each["snapshot-id"] for each in snapshots}
    keys = {warehouse.key(each) for each in (head.location, *segments)}
    keys.update(warehouse.key(each["metadata-file"]) for each in metadata["metadata-log"])
    keys.update(warehouse.key(each["manifest-list"]) for each in snapshots)
    chain = kept - {history.of(metadata).base}  # what is behind the base was the child of one that it took in
    read_already: set[str] = set()
    for snapshot in snapshots:
        current = snapshot["snapshot-id"] == metadata["current-snapshot-id"]
        plain = ledger.BY not in snapshot["summary"]
        if plain and not current and snapshot.get("parent-snapshot-id") in chain:
            continue
        lists = [snapshot["manifest-list"]]
        former = snapshot["summary"].get(history.FORMER)
        if former and int(snapshot["summary"].get(history.MADE, 0)) >= since_ms:
            keys.add(warehouse.key(former))
            lists.append(former)
        for each in lists:
            keys |= await _of_one(store, warehouse, each, read_already)
    return Reached(keys, chain)


async def _of_one(store: ObjectStore, warehouse: Warehouse, location: str, seen: set[str]) -> set[str]:
    """Keys of the manifests of one snapshot and of their files, without those manifests that were `seen`."""
    keys: set[str] = set()
    listed = await read(store, warehouse, location)
    for manifest in await asyncio.to_thread(manifest_avro.read_list, location, listed):
        key = warehouse.key(manifest.manifest_path)
        keys.add(key)
        if key in seen:
            continue
        seen.add(key)
        content = await read(store, warehouse, manifest.manifest_path, manifest.manifest_length)
        files = await asyncio.to_thread(manifests.data_files, manifest, content)
        keys.update(warehouse.key(each) for each in files)
    return keys


async def orphans(
    store: ObjectStore, warehouse: Warehouse, head: Head, now_ms: int, grace_s: float
) -> list[str]:
    """Keys below the table's location that the head does not reach, in order: older than the grace period and
    than the head, so that what failed since it was made waits for the next one.
    """
    since_ms = now_ms - int(grace_s * 1000)
    kept = await reachable(store, warehouse, head, since_ms)
    made_ms = (await store.head(warehouse.key(head.location))).modified_ms
    limit = min(since_ms, made_ms - 1)
    found: list[str] = []
    async for page in store.list(f"{warehouse.key(head.metadata['location'])}/"):
        found += [each.key for each in page if each.key not in kept and each.modified_ms <= limit]
    return found


async def collect(
    store: ObjectStore,
    warehouse: Warehouse,
    head: Head,
    now_ms: int,
    grace_s: float,
    steps: Steps,
    removal: Removal | None = None,
) -> int:
    """Delete the orphans of a table whose claim the caller holds; returns how many went. `removal`: of this
    store; who calls again and again keeps it, since it remembers what the store did not let go of.
    """
    await steps.before("list-orphans")
    keys = await orphans(store, warehouse, head, now_ms, grace_s)
    removal, kept, gone = removal or Removal(store.delete), list[str](), 0
    for start in range(0, len(keys), DELETE_KEYS_MAX):
        await steps.before("delete-orphans")
        gone += len(await removal(keys[start : start + DELETE_KEYS_MAX], kept.append))
    _tell(kept)
    return gone


def _tell(kept: Sequence[str]) -> None:
    if kept:
        _logger.warning("%d files that no table names cannot be deleted; one is %s", len(kept), kept[0])


async def purge(store: ObjectStore, warehouse: Warehouse, location: str, last: str) -> int:
    """Delete the files of a table that was dropped: all below its location that are not younger than its last
    metadata, at `last`. Returns how many are younger, and stay: since the drop the folder may be another's.
    """
    made_ms, left = await _listed_ms(store, warehouse.key(last)), 0
    removal, kept = Removal(store.delete), list[str]()
    async for page in store.list(f"{warehouse.key(location.rstrip('/'))}/"):
        own = [each.key for each in page if each.modified_ms <= made_ms]
        left += len(page) - len(own)
        await removal(own, kept.append)
    _tell(kept)
    return left


async def _listed_ms(store: ObjectStore, key: str) -> int:
    """When the store says that the object was written, in lists (Unix ms; alone it may be told by the second
    only); -1 when it is gone.
    """
    async for page in store.list(key):
        for each in page:
            if each.key == key:
                return each.modified_ms
    return -1
