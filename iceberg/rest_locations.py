"""Where tables of other engines may lie: below the warehouse, and in no folder of another table."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from coordination.state.table_names import NAMESPACE
from iceberg.folders import folder_of, neighbour
from iceberg.rest_errors import bad_request
from iceberg.warehouse import OutsideWarehouse, Warehouse
from objectstore.naming import check_key

if TYPE_CHECKING:
    from coordination.replica import Replica
    from coordination.state.types import Table

Key = tuple[str, str]

NONE: Mapping[Key, Table] = {}

PATHS = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
"""Properties that say where engines put files, wherever the table's location is."""


class Locations:
    """Raises CatalogError 400 for what may not be."""

    def __init__(self, replica: Replica, warehouse: Warehouse) -> None:
        self._replica = replica
        self._warehouse = warehouse

    def require_below(self, location: str) -> str:
        """The key of a location, which lies below the warehouse."""
        warehouse = self._warehouse
        try:
            key = warehouse.key(location).rstrip("/")
        except OutsideWarehouse:
            key = ""
        if not key.startswith(f"{warehouse.folder}/"):
            raise bad_request(f"location {location} is not below the warehouse {warehouse.location}")
        return key

    def require_free(self, location: str, own: Key, beside: Mapping[Key, Table] = NONE) -> None:
        """A table `own` may lie there: no other one does, none of `beside`, nor will one of a namespace's."""
        key = self.require_below(location)
        try:
            check_key(key)
        except ValueError as error:
            raise bad_request(f"location {location}: {error}") from error
        namespaces = {NAMESPACE, *self._replica.state.namespaces}
        if key.removeprefix(f"{self._warehouse.folder}/") in namespaces:
            raise bad_request(
                f"location {location} is the folder of a namespace, whose tables have folders of their own "
                "there: name a folder below it, or none and the catalog chooses one"
            )
        self._require_alone(f"location {location}", location, own, beside)

    def require_changes(
        self,
        own: Key,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any],
        beside: Mapping[Key, Table] = NONE,
    ) -> None:
        """A table `own` may have the metadata `after`. What it had `before` is not asked for again.

        `beside`: tables as they will be when this one is.
        """
        location = after["location"]
        if before is None or before["location"] != location:
            self.require_free(location, own, beside)
        else:
            self.require_below(location)
        had = (before or {}).get("properties") or {}
        has = after.get("properties") or {}
        for name in PATHS:
            path = has.get(name)
            if path and path != had.get(name):
                with suppress(OutsideWarehouse):  # files of other engines may lie anywhere else
                    self._require_alone(f"{name} {path}", path, own, beside)

    def require_registrable(self, metadata_location: str, metadata: Mapping[str, Any], own: Key) -> None:
        """A table whose metadata is there already may be taken over: it lies where it says, and alone."""
        location = str(metadata.get("location", ""))
        if self.require_below(location) != self.require_below(folder_of(metadata_location)):
            raise bad_request(
                f"metadata {metadata_location} says that its table is at {location}: other tables would not "
                f"be kept from there. Register metadata that lies in {location.rstrip('/')}/metadata"
            )
        self.require_changes(own, None, metadata)

    def require_purgeable(self, location: str, own: Key | None) -> None:
        """Everything below the location is of the table `own` (None: of one that was dropped)."""
        self.require_below(location)
        found = self.neighbour(location, own)
        if found is not None:
            raise bad_request(
                f"the files at {location} cannot be purged: table {found.namespace}.{found.name} at "
                f"{folder_of(found.metadata_location)} has files there too. Drop the table without purge, "
                "and remove its files by hand"
            )

    def _require_alone(self, what: str, location: str, own: Key, beside: Mapping[Key, Table]) -> None:
        found = self.neighbour(location, own) or neighbour(beside, self._warehouse, location, own)
        if found is not None:
            raise bad_request(
                f"{what} overlaps {folder_of(found.metadata_location)}, the folder of table "
                f"{found.namespace}.{found.name}: removing the files of one would remove the other's. Name "
                "another folder, or none and the catalog chooses one"
            )

    def folder(self, location: str) -> str:
        """A location as the store's URL has it, with a slash at its end. Raises OutsideWarehouse."""
        key = self._warehouse.key(location).rstrip("/")
        if not key.startswith(f"{self._warehouse.folder}/"):
            raise OutsideWarehouse(f"{location} is not below {self._warehouse.location}")
        return f"{self._warehouse.locate(key)}/"

    def neighbour(self, location: str, own: Key | None) -> Table | None:
        """A table other than `own` that has files there. Raises OutsideWarehouse."""
        return neighbour(self._replica.state.tables, self._warehouse, location, own)
