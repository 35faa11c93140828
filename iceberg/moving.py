"""Tables whose files came to another bucket: everything that names a file by its full location, written anew.

Data files stay as they are. Metadata, kept history, manifest lists and manifests get new names, with their
contents' checksums, beside the old ones, which table maintenance takes away as nothing names them.
Snapshots, their ids and sequence numbers, statistics and row ids stay, so streams and time travel go on.
What cannot be kept is a table with position deletes in Parquet files: those name data files within their rows.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, NamedTuple

from coordination.restore.report import Left, Moved
from coordination.restore.tables import TableMoves
from coordination.state import State
from iceberg import history, metadata
from iceberg.avro_paths import NotKnown, rewritten
from iceberg.sealed import Damaged, read, sealed
from iceberg.view_metadata import is_view
from iceberg.warehouse import OutsideWarehouse, Warehouse
from objectstore.store import NotFound, ObjectStore

READS_AT_ONCE = 8
"""Manifests that are held at a time."""
POSITION_DELETES = 1
_SEAL = re.compile(r"\.x[0-9a-f]{16}(?=\.(?:avro|metadata\.json|history)$)")
_LOCATION = re.compile(r"[a-z0-9]+:/")


class CannotKeep(Exception):
    """Why a table cannot be moved as it is."""


class _Written(NamedTuple):
    location: str
    size: int


class MovingTables:
    """Tables that the state has below `source`, the URL of a store, while they lie below `target` now."""

    def __init__(self, store: ObjectStore, source: str, target: str) -> None:
        self._store = store
        self._old, self._new = Warehouse(source.rstrip("/")), Warehouse(target.rstrip("/"))

    async def moved(self, state: State, *, write: bool) -> TableMoves:
        """Where the pointers of tables are to be. Without `write` only which ones, and nothing is written.

        Raises StoreError.
        """
        found = TableMoves()
        if self._old.root == self._new.root:
            return found
        for table in list(state.tables.values()):
            at = table.metadata_location
            if self._inside(self._new, at):
                continue
            try:
                if not self._inside(self._old, at):
                    raise CannotKeep(f"its metadata {at} lies neither in {self._old.root} nor here")
                new = await _Table(self._store, self._old, self._new).written(at) if write else ""
            except (CannotKeep, NotKnown, OutsideWarehouse, Damaged, NotFound, ValueError, KeyError) as error:
                found.left.append(Left(table.namespace, table.name, str(error)))
            else:
                found.moved.append(Moved(table.namespace, table.name, at, new))
        return found

    @staticmethod
    def _inside(warehouse: Warehouse, location: str) -> bool:
        try:
            warehouse.key(location)
        except OutsideWarehouse:
            return False
        return True


class _Table:
    """One table, or view."""

    def __init__(self, store: ObjectStore, old: Warehouse, new: Warehouse) -> None:
        self._store, self._old, self._new = store, old, new
        self._manifests: dict[str, _Written] = {}
        self._lists: dict[str, str] = {}

    async def written(self, location: str) -> str:
        """Write all that the metadata leads to, then it; its new location."""
        if not location.endswith(".metadata.json"):
            raise CannotKeep(f"its metadata {location} is not plain JSON")
        found = json.loads(await read(self._store, self._old, location))
        if not is_view(location):
            await self._snapshots(found["snapshots"])
            if history.PROPERTY in found.get("properties", {}):
                found = await self._history(found)
        made = metadata.encode(self._everywhere(found))
        return await self._put(location, made)

    async def _history(self, found: dict[str, Any]) -> dict[str, Any]:
        """The metadata with its segments written anew."""
        told, segments = history.of(found), list[history.Segment]()
        for each in told.segments:
            location = f"{found['location']}/{each.name}"
            texts = history.from_bytes(await read(self._store, self._old, location))
            snapshots, log = json.loads(f"[{texts.snapshots}]"), json.loads(f"[{texts.log}]")
            await self._snapshots(snapshots)
            content = history.to_bytes(history.encode(self._everywhere(snapshots), self._everywhere(log)))
            new = await self._put(location, content)
            folder = f"{self._moved(str(found['location']))}/"
            segments.append(each._replace(name=new.removeprefix(folder)))
        return history.with_history(found, history.History(told.base, tuple(segments), told.through))

    async def _snapshots(self, snapshots: list[dict[str, Any]]) -> None:
        for each in snapshots:
            if "manifest-list" not in each:
                raise CannotKeep(
                    f"snapshot {each.get('snapshot-id')} names no manifest list (format version 1)"
                )
            await self._list(each["manifest-list"])
            former = each.get("summary", {}).get(history.FORMER)
            if former:
                try:
                    await self._list(former)
                except NotFound:
                    continue  # of a base before, whose time is over

    async def _list(self, location: str) -> None:
        if location in self._lists:
            return
        content = await read(self._store, self._old, location)
        named: dict[str, int] = {}
        last = ""

        def note(path: str) -> str:
            nonlocal last
            last = path
            return path

        def size(number: int) -> int:
            named[last] = number
            return number

        await asyncio.to_thread(rewritten, content, {"manifest_path": note}, {"manifest_length": size})
        unknown = [each for each in named if each not in self._manifests]
        for at in range(0, len(unknown), READS_AT_ONCE):
            some = unknown[at : at + READS_AT_ONCE]
            await asyncio.gather(*(self._manifest(each, named[each]) for each in some))

        def path_of(path: str) -> str:
            note(path)
            return self._manifests[path].location

        made = await asyncio.to_thread(
            rewritten,
            content,
            {"manifest_path": path_of},
            {"manifest_length": lambda number: self._manifests[last].size},
        )
        self._lists[location] = await self._put(location, made)

    async def _manifest(self, location: str, length: int) -> None:
        content = await read(self._store, self._old, location, length)
        kind = 0

        def of_kind(number: int) -> int:
            nonlocal kind
            kind = number
            return number

        def in_format(text: str) -> str:
            if kind == POSITION_DELETES and text.upper() != "PUFFIN":
                raise CannotKeep(
                    f"manifest {location} has position deletes in {text} files, which name data files within "
                    "their rows: apply them (Spark: rewrite_data_files) and copy again"
                )
            return text

        texts = {"file_path": self._moved, "referenced_data_file": self._moved, "file_format": in_format}
        made = await asyncio.to_thread(rewritten, content, texts, {"content": of_kind})
        self._manifests[location] = _Written(await self._put(location, made), len(made))

    async def _put(self, location: str, content: bytes) -> str:
        """Under the file's name with another checksum in it: again and again the same."""
        new = sealed(_SEAL.sub("", self._moved(location)), content)
        await self._store.put(self._new.key(new), [content])
        return new

    def _moved(self, location: str) -> str:
        return self._new.locate(self._old.key(location))

    def _everywhere(self, value: Any) -> Any:
        """JSON with every string that is a location below the old root as it is now."""
        if isinstance(value, dict):
            return {name: self._everywhere(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._everywhere(each) for each in value]
        if not isinstance(value, str) or not _LOCATION.match(value):
            return value
        if value in self._lists:
            return self._lists[value]
        try:
            return self._moved(value)
        except OutsideWarehouse:
            return value
