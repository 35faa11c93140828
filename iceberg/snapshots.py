"""Builds the manifests, the manifest list and the metadata of a snapshot that adds or removes files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from pyiceberg.manifest import ManifestFile

from iceberg import ledger, lineage, manifest_avro, manifests, metadata
from iceberg.head import Head
from iceberg.manifests import AddedFile, Extent, Removed, Written
from iceberg.metadata import Metadata
from iceberg.options import MANIFESTS_MERGED_AT
from iceberg.sealed import read
from iceberg.steps import Steps
from iceberg.warehouse import Warehouse
from objectstore.store import ObjectStore

MERGED_BYTES_MAX = 8 << 20
"""A manifest of this size is not merged again."""


class SnapshotBuilder:
    """Stores a snapshot's manifests and manifest list. Readers see them once the table's pointer moves."""

    def __init__(
        self,
        store: ObjectStore,
        warehouse: Warehouse,
        steps: Steps,
        merged_at: int = MANIFESTS_MERGED_AT,
    ) -> None:
        self._store = store
        self._warehouse = warehouse
        self._steps = steps
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
        prefix = _prefix(base, snapshot_id)
        listed = await self._merge(base, [*filter(manifests.live, before)], snapshot_id, prefix)
        listed = [*await self._added(base, files, snapshot_id, prefix, None), *listed]
        counts = _appended(ledger.current_snapshot(base), files)
        return await self._finish(base, listed, snapshot_id, {**counts, **summary}, now_ms)

    async def remove(
        self,
        base: Metadata,
        before: Sequence[ManifestFile],
        goes: Callable[[Extent], bool],
        snapshot_id: int,
        summary: Mapping[str, str],
        now_ms: int,
    ) -> tuple[Head, Removed] | None:
        """The table without the files that go, in a snapshot of operation `delete`; None when none does.

        Manifests are read one by one, and only those that name such a file are written anew.
        """
        prefix = _prefix(base, snapshot_id)
        listed: list[ManifestFile] = []
        removed = Removed()
        for number, manifest in enumerate(filter(manifests.live, before)):
            content = await self._read(manifest)
            written = await asyncio.to_thread(
                manifests.write_without,
                f"{prefix}-d{number}.avro", _form(base, manifest), snapshot_id, manifest, content, goes,
            )  # fmt: skip
            if written is None:
                listed.append(manifest)
                continue
            await self._store_manifest(written[0])
            listed.append(written[0].manifest)
            removed = removed.plus(written[1])
        if not removed.files:
            return None
        counts = _removed(ledger.current_snapshot(base), removed)
        return await self._finish(base, listed, snapshot_id, {**counts, **summary}, now_ms), removed

    async def replace(
        self,
        base: Metadata,
        before: Sequence[ManifestFile],
        files: Sequence[AddedFile],
        gone: Set[str],
        snapshot_id: int,
        summary: Mapping[str, str],
        now_ms: int,
    ) -> Head:
        """The table with `files` for those at the locations `gone`: the same rows, in a snapshot of operation
        `replace`. Raises ValueError when the table does not name each of those once, or rows would differ.

        The rows keep the data sequence number of the table as it was (the spec's and Spark's rule for
        rewrites), and their ids where they have some: then it is in the files. Manifests are read one by one;
        those that name such a file become one.
        """
        prefix = _prefix(base, snapshot_id)
        parent = ledger.current_snapshot(base)
        assert parent is not None, "a table of files has a snapshot"
        rewritten, listed, removed = await self._without(base, before, gone, snapshot_id, prefix)
        rows = sum(each.rows for each in files)
        if (removed.files, removed.rows) != (len(gone), rows):
            raise ValueError(
                f"{removed.files} files of {removed.rows} rows would leave {base['location']} for {rows} "
                f"rows in {len(files)} files: it should be {len(gone)} files and as many rows"
            )
        added = await self._added(base, files, snapshot_id, prefix, parent["sequence-number"])
        counts = _replaced(parent, files, removed)
        listed = [*added, *rewritten, *listed]
        return await self._finish(base, listed, snapshot_id, {**counts, **summary}, now_ms)

    async def overwrite(
        self,
        base: Metadata,
        before: Sequence[ManifestFile],
        files: Sequence[AddedFile],
        gone: Set[str],
        snapshot_id: int,
        summary: Mapping[str, str],
        now_ms: int,
    ) -> Head:
        """The table with `files`, of which rows are new, for those at the locations `gone`: operation
        `overwrite`, or `append` where none goes. Raises ValueError when the table does not name each of those
        once. Manifests are read one by one; those that name such a file become one.
        """
        prefix = _prefix(base, snapshot_id)
        rewritten: list[ManifestFile] = []
        listed, removed = [*filter(manifests.live, before)], None
        if gone:
            rewritten, listed, removed = await self._without(base, before, gone, snapshot_id, prefix)
            if removed.files != len(gone):
                raise ValueError(f"{base['location']} names {removed.files} of {len(gone)} files that go")
        listed = await self._merge(base, listed, snapshot_id, prefix)
        added = await self._added(base, files, snapshot_id, prefix, None)
        counts = _counts(ledger.current_snapshot(base), files, removed)
        told = {"operation": "overwrite" if gone else "append", **counts, **summary}
        return await self._finish(base, [*added, *rewritten, *listed], snapshot_id, told, now_ms)

    async def regroup(
        self,
        base: Metadata,
        before: Sequence[ManifestFile],
        snapshot_id: int,
        summary: Mapping[str, str],
        now_ms: int,
    ) -> Head:
        """The table with the same files named in as few manifests as may be, in a snapshot `replace`."""
        prefix = _prefix(base, snapshot_id)
        listed: list[ManifestFile] = []
        for number, some in enumerate(_in_groups([*filter(manifests.live, before)])):
            if len(some) == 1:
                listed += some
                continue
            written = await self._in_one(base, some, snapshot_id, f"{prefix}-r{number}.avro")
            await self._store_manifest(written)
            listed.append(written.manifest)
        counts = _replaced(ledger.current_snapshot(base), (), Removed())
        return await self._finish(base, listed, snapshot_id, {**counts, **summary}, now_ms)

    async def _added(
        self,
        base: Metadata,
        files: Sequence[AddedFile],
        snapshot_id: int,
        prefix: str,
        sequence_number: int | None,
    ) -> list[ManifestFile]:
        """Manifests of files that a snapshot adds, one for each partition spec that they have."""
        found = []
        for number, spec_id in enumerate(sorted({each.group.spec_id for each in files})):
            some = [each for each in files if each.group.spec_id == spec_id]
            form = manifests.form(base, spec_id)
            written = await asyncio.to_thread(
                manifests.write_added, f"{prefix}-m{number}.avro", form, snapshot_id, some, sequence_number
            )
            await self._store_manifest(written)
            found.append(written.manifest)
        return found

    async def _without(
        self,
        base: Metadata,
        before: Sequence[ManifestFile],
        gone: Set[str],
        snapshot_id: int,
        prefix: str,
    ) -> tuple[list[ManifestFile], list[ManifestFile], Removed]:
        """The manifests that replace those which name files that go, those that stay, and what goes."""
        listed: list[ManifestFile] = []
        named: dict[str, bytes] = {}
        by_path = {each.manifest_path: each for each in before if manifests.live(each)}
        for path, manifest in by_path.items():
            content = await self._read(manifest)
            if not await asyncio.to_thread(manifests.names_any, manifest, content, gone):
                listed.append(manifest)
                continue
            named[path] = content
        rewritten, removed = [], Removed()
        for number, some in enumerate(_in_groups([by_path[path] for path in named])):
            contents = {each.manifest_path: named.pop(each.manifest_path) for each in some}
            written, part = await asyncio.to_thread(
                manifests.write_replaced,
                f"{prefix}-r{number}.avro", _form(base, some[0]), snapshot_id, some, contents, gone,
            )  # fmt: skip
            await self._store_manifest(written)
            rewritten.append(written.manifest)
            removed = removed.plus(part)
        return rewritten, listed, removed

    async def _finish(
        self,
        base: Metadata,
        listed: Sequence[ManifestFile],
        snapshot_id: int,
        summary: Mapping[str, str],
        now_ms: int,
    ) -> Head:
        """The table with a snapshot of these manifests."""
        prefix = _prefix(base, snapshot_id)
        parent = ledger.current_snapshot(base)
        sequence, row_id = base["last-sequence-number"] + 1, lineage.next_row_id(base)
        location, content, end = await asyncio.to_thread(
            manifests.write_list,
            f"{prefix}-snap.avro",
            snapshot_id,
            None if parent is None else parent["snapshot-id"],
            sequence,
            listed,
            row_id,
        )
        await self._steps.before("store-manifest-list")
        await self._store.put(self._warehouse.key(location), [content])
        snapshot = {
            "snapshot-id": snapshot_id,
            **({} if parent is None else {"parent-snapshot-id": parent["snapshot-id"]}),
            "sequence-number": sequence,
            "timestamp-ms": max(now_ms, metadata.newest_ms(base)),
            "manifest-list": location,
            "schema-id": base["current-schema-id"],
            "summary": dict(summary),
            **lineage.given(row_id, end),
        }
        final = metadata.with_snapshot(base, snapshot)
        return Head("", final, await asyncio.to_thread(manifest_avro.read_list, location, content))

    async def _merge(
        self, base: Metadata, before: Sequence[ManifestFile], snapshot_id: int, prefix: str
    ) -> list[ManifestFile]:
        """The table's manifests, the small ones made one when there are many (Iceberg's MergeAppend)."""
        small = [each for each in before if each.manifest_length < MERGED_BYTES_MAX]
        if len(small) < self._merged_at:
            return list(before)
        await self._steps.before("merge-manifests")
        merged, left = [], list(before)
        for spec_id in sorted({each.partition_spec_id for each in small}):
            some = _alike([each for each in small if each.partition_spec_id == spec_id])
            if len(some) < 2:
                continue
            written = await self._in_one(base, some, snapshot_id, f"{prefix}-a{spec_id}.avro")
            await self._put(written)
            merged.append(written.manifest)
            gone = {each.manifest_path for each in some}
            left = [each for each in left if each.manifest_path not in gone]
        return [*merged, *left]

    async def _read(self, manifest: ManifestFile) -> bytes:
        return await read(self._store, self._warehouse, manifest.manifest_path, manifest.manifest_length)

    async def _store_manifest(self, written: Written) -> None:
        await self._steps.before("store-manifests")
        await self._put(written)

    async def _in_one(
        self, base: Metadata, some: Sequence[ManifestFile], snapshot_id: int, location: str
    ) -> Written:
        """Manifests of one spec as one, not stored yet."""
        contents = {each.manifest_path: await self._read(each) for each in some}
        form = _form(base, some[0])
        return await asyncio.to_thread(manifests.write_merged, location, form, snapshot_id, some, contents)

    async def _put(self, written: Written) -> None:
        await self._store.put(self._warehouse.key(written.manifest.manifest_path), [written.content])


def _form(base: Metadata, like: ManifestFile) -> manifests.Form:
    """The form of a manifest that has the files of one like this."""
    return manifests.form(base, like.partition_spec_id)


def _alike(small: Sequence[ManifestFile]) -> list[ManifestFile]:
    """Of manifests, in their order, those that become one: not the few that are larger than twice all smaller
    ones together, as what was made of many before. With them each merge would write anew what the table has.
    """
    left = sum(each.manifest_length for each in small)
    for each in sorted(small, key=lambda each: each.manifest_length, reverse=True):
        left -= each.manifest_length
        if each.manifest_length <= 2 * left:
            return [one for one in small if one.manifest_length <= each.manifest_length]
    return []


def _in_groups(some: Sequence[ManifestFile]) -> Iterator[list[ManifestFile]]:
    """Manifests of one partition spec each, in their order, that become one of a bounded size."""
    for spec_id in sorted({each.partition_spec_id for each in some}):
        group: list[ManifestFile] = []
        for each in (one for one in some if one.partition_spec_id == spec_id):
            if group and sum(one.manifest_length for one in group) + each.manifest_length > MERGED_BYTES_MAX:
                yield group
                group = []
            group.append(each)
        yield group


def _prefix(base: Metadata, snapshot_id: int) -> str:
    """How the names begin of what is made for a snapshot (maintenance.py knows it by that)."""
    return f"{base['location']}/metadata/{snapshot_id:016x}"


def _appended(parent: Mapping[str, Any] | None, files: Sequence[AddedFile]) -> dict[str, str]:
    """Operation and counts of a snapshot that adds files, as Iceberg's readers expect them in a summary."""
    return {"operation": "append", **_counts(parent, files, None)}


def _removed(parent: Mapping[str, Any] | None, removed: Removed) -> dict[str, str]:
    """The same of one that removes files."""
    return {"operation": "delete", **_counts(parent, (), removed)}


def _replaced(
    parent: Mapping[str, Any] | None, files: Sequence[AddedFile], removed: Removed
) -> dict[str, str]:
    """The same of one that has the rows of some files in others."""
    return {"operation": "replace", **_counts(parent, files, removed)}


def _counts(
    parent: Mapping[str, Any] | None, files: Sequence[AddedFile], removed: Removed | None
) -> dict[str, str]:
    """What comes and goes, and what there is then."""
    added = {
        "data-files": len(files),
        "records": sum(each.rows for each in files),
        "files-size": sum(each.size for each in files),
    }
    told = {f"added-{name}": str(count) for name, count in added.items()} if files or not removed else {}
    if removed is None:
        return {**told, **_totals(parent, added)}
    told["deleted-data-files"] = str(removed.files)
    told["deleted-records"] = str(removed.rows)
    told["removed-files-size"] = str(removed.size)
    gone = {"data-files": removed.files, "records": removed.rows, "files-size": removed.size}
    return {**told, **_totals(parent, {name: count - gone[name] for name, count in added.items()})}


def _totals(parent: Mapping[str, Any] | None, changes: Mapping[str, int]) -> dict[str, str]:
    before = parent["summary"] if parent is not None else {}
    totals = {f"total-{name}": int(before.get(f"total-{name}", 0)) + count for name, count in changes.items()}
    return {
        **{name: str(count) for name, count in totals.items()},
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }
