"""The tables' part of a round: from each table's current metadata to all that it leads to.

Marks are `namespace/name` with the last manifest that was gone through, or an end where the table is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.background.scrub.needs import Look, Need
from coordination.places import Place
from coordination.replica import Replica
from coordination.state.types import Table
from iceberg import history
from iceberg.head import load
from iceberg.metadata import decode_steps
from iceberg.sealed import Damaged
from iceberg.warehouse import OutsideWarehouse, Warehouse
from objectstore.late import ready
from objectstore.store import NotFound, ObjectStore
from objectstore.turns import in_order, in_turns

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile

    from iceberg.manifests import Extent

SEEN_MAX = 200_000  # files of one table that are remembered as looked at; beyond, some are read twice
_END = "\uffff"


class TableWalk:
    """Goes through all tables of the state, one after another."""

    def __init__(self, replica: Replica, store: ObjectStore, warehouse: Warehouse) -> None:
        self._replica = replica
        self._store = store
        self._warehouse = warehouse

    async def __call__(self, after: str, look: Look) -> AsyncIterator[str]:
        """See walks.py."""
        done, _, manifest = after.partition("\n")
        for namespace, name in await in_turns(in_order(list(self._replica.state.tables))):
            mark = f"{namespace}/{name}"
            if mark < done or (mark == done and manifest == _END):
                continue
            table = self._replica.state.tables.get((namespace, name))
            if table is None:
                continue
            await ready("iceberg.maintenance")
            async for each in self._table(table, manifest if mark == done else "", look):
                yield f"{mark}\n{each}"
            yield f"{mark}\n{_END}"

    async def _table(self, table: Table, after: str, look: Look) -> AsyncIterator[str]:
        """The files of a table; marks are manifests that are done."""
        content = await look(self._need(table, table.metadata_location))
        if content is None:
            return
        try:
            metadata = await in_turns(decode_steps(content))
        except ValueError:
            return
        for each in metadata["metadata-log"]:
            await look(self._need(table, each["metadata-file"]))
        named: dict[str, ManifestFile] = {}
        for snapshot in await self._snapshots(table, metadata, look):
            listed = await look(self._need(table, snapshot["manifest-list"]))
            if listed is not None:
                found = await asyncio.to_thread(_listed, snapshot["manifest-list"], listed)
                named.update((each.manifest_path, each) for each in found)
        seen: set[int] = set()
        for path in sorted(named):
            if path > after:
                await self._manifest(table, named[path], seen, look)
                yield path

    async def _snapshots(
        self, table: Table, metadata: Mapping[str, Any], look: Look
    ) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = list(metadata["snapshots"])
        for segment in history.of(metadata).segments:
            content = await look(self._need(table, f"{metadata['location']}/{segment.name}"))
            if content is not None:
                found += await in_turns(history.decode_steps(history.from_bytes(content)))
        return found

    async def _manifest(self, table: Table, manifest: ManifestFile, seen: set[int], look: Look) -> None:
        content = await look(self._need(table, manifest.manifest_path, manifest.manifest_length))
        if content is None:
            return
        from iceberg import manifests

        try:
            entries = await asyncio.to_thread(manifests.entries, manifest, content)
        except (Damaged, ValueError):
            return
        for each in entries:
            file = each.data_file
            known = hash(file.file_path)
            if known in seen:
                continue
            if len(seen) < SEEN_MAX:
                seen.add(known)
            places = self._places(table, manifests.extent_of(file))
            need = self._need(table, file.file_path, file.file_size_in_bytes, places)
            await look(replace(need, leads=False))

    def _need(self, table: Table, location: str, size: int = 0, places: tuple[Place, ...] = ()) -> Need:
        key, mark = (table.namespace, table.name), table.metadata_location

        def needed() -> bool:
            return key in self._replica.state.tables

        async def still() -> bool:
            now = self._replica.state.tables.get(key)
            return now is not None and (now.metadata_location == mark or await self._reached(now, at))

        def problem(content: bytes) -> str:
            return f"{len(content)} bytes, its manifest says {size}" if size and len(content) != size else ""

        try:
            at = self._warehouse.key(location)
        except OutsideWarehouse:
            at = location
        return Need(at, needed, size, None, problem, f"{table.namespace}.{table.name}", places, still)

    async def _reached(self, table: Table, key: str) -> bool:
        """Whether the table as it is now leads to a file; where that cannot be told it may."""
        from iceberg import maintenance

        try:
            head = await load(self._store, self._warehouse, table.metadata_location)
            return key in await maintenance.reachable(self._store, self._warehouse, head)
        except (NotFound, Damaged, ValueError):
            return True

    @staticmethod
    def _places(table: Table, extent: Extent | None) -> tuple[Place, ...]:
        """The offsets whose rows a file holds: of the table, not of the topic."""
        if extent is None or not table.topic:
            return ()
        return (Place(table.topic, extent.partition, extent.first_offset, extent.last_offset + 1),)


def _listed(location: str, content: bytes) -> list[ManifestFile]:
    from iceberg import manifest_avro

    return list(manifest_avro.read_list(location, content))
