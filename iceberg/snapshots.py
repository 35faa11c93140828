"""Builds the manifests, the manifest list and the metadata of an appended snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.manifest import ManifestFile

from iceberg import ledger, manifests, metadata
from iceberg.head import Head
from iceberg.manifests import AddedFile, Written
from iceberg.metadata import Metadata, Retention
from iceberg.steps import Steps
from iceberg.warehouse import Warehouse
from objectstore.store import ObjectStore

MERGED_BYTES_MAX = 8 << 20
"""A manifest of this size is not merged again."""


class SnapshotBuilder:
    """Stores what a snapshot needs. Nothing of it is visible before the table's pointer moves."""

    def __init__(
        self,
        store: ObjectStore,
        warehouse: Warehouse,
        steps: Steps,
        retention: Retention,
        merged_at: int,
    ) -> None:
        self._store = store
        self._warehouse = warehouse
        self._steps = steps
        self._retention = retention
        self._merged_at = merged_at

    async def append(
        self,
        base: Metadata,
        before: Sequence[ManifestFile],
        files: Sequence[AddedFile],
        snapshot_id: int,
        summary: Mapping[str, str],
        now_ms: int,
    ) -> Head:
        """The table `base`, whose manifests are `before`, with a snapshot of `files`. No location yet."""
        schema = next(each for each in base["schemas"] if each["schema-id"] == base["current-schema-id"])
        prefix = f"{base['location']}/metadata/{snapshot_id:016x}"
        listed = await self._merge(schema, before, snapshot_id, prefix)
        if files:
            added = await asyncio.to_thread(
                manifests.write_added, f"{prefix}-m0.avro", schema, snapshot_id, files
            )
            await self._steps.before("store-manifests")
            await self._put(added)
            listed = [added.manifest, *listed]
        parent = ledger.current_snapshot(base)
        sequence = base["last-sequence-number"] + 1
        location = f"{prefix}-snap.avro"
        content = await asyncio.to_thread(
            manifests.write_list,
            location,
            snapshot_id,
            None if parent is None else parent["snapshot-id"],
            sequence,
            listed,
        )
        await self._steps.before("store-manifest-list")
        await self._store.put(self._warehouse.key(location), [content])
        snapshot = {
            "snapshot-id": snapshot_id,
            **({} if parent is None else {"parent-snapshot-id": parent["snapshot-id"]}),
            "sequence-number": sequence,
            "timestamp-ms": max(now_ms, base["last-updated-ms"]),
            "manifest-list": location,
            "schema-id": base["current-schema-id"],
            "summary": {"operation": "append", **_totals(parent, files), **summary},
        }
        final = metadata.with_snapshot(base, snapshot, self._retention)
        return Head("", final, await asyncio.to_thread(manifests.read_list, location, content))

    async def _merge(
        self, schema: Mapping[str, Any], before: Sequence[ManifestFile], snapshot_id: int, prefix: str
    ) -> list[ManifestFile]:
        """The table's manifests, the small ones made one when there are many (Iceberg's MergeAppend)."""
        small = [each for each in before if each.manifest_length < MERGED_BYTES_MAX]
        if len(small) < self._merged_at:
            return list(before)
        await self._steps.before("merge-manifests")
        contents = {
            each.manifest_path: await self._store.get(self._warehouse.key(each.manifest_path))
            for each in small
        }
        merged = await asyncio.to_thread(
            manifests.write_merged, f"{prefix}-m1.avro", schema, snapshot_id, small, contents
        )
        await self._put(merged)
        large = [each for each in before if each.manifest_length >= MERGED_BYTES_MAX]
        return [merged.manifest, *large]

    async def _put(self, written: Written) -> None:
        await self._store.put(self._warehouse.key(written.manifest.manifest_path), [written.content])


def _totals(parent: Mapping[str, Any] | None, files: Sequence[AddedFile]) -> dict[str, str]:
    """The counts that Iceberg's readers expect in a summary."""
    before = parent["summary"] if parent is not None else {}
    added = {
        "data-files": len(files),
        "records": sum(each.rows for each in files),
        "files-size": sum(each.size for each in files),
    }
    totals = {f"total-{name}": int(before.get(f"total-{name}", 0)) + count for name, count in added.items()}
    return {
        **{f"added-{name}": str(count) for name, count in added.items()},
        **{name: str(count) for name, count in totals.items()},
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }
