"""Views of the REST catalog: list, load, create, replace, register, drop, rename.

Their pointers stand among those of tables and move by the same compare-and-swap (view_metadata.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iceberg import metadata as table_metadata
from iceberg import view_metadata, view_names
from iceberg.head import taken
from iceberg.rest_errors import (
    already_exists,
    bad_request,
    commit_failed,
    no_such_namespace,
    no_such_view,
)
from iceberg.rest_locations import Locations
from iceberg.rest_pointers import COMMIT_ATTEMPTS_MAX, Key, Pointers, name_of
from iceberg.rest_redacted import RedactedViews
from iceberg.sealed import sealed
from iceberg.view_metadata import View

if TYPE_CHECKING:
    from iceberg.rest_pointers import CatalogParts

VIEWS = 2
"""The feature level from which on no agent is so old that it takes a view for a table."""
METADATA_BYTES_MAX = 4 << 20
"""Of one view."""


class Views:
    """One method per operation; each raises CatalogError."""

    def __init__(self, parts: CatalogParts) -> None:
        self._parts = parts
        self._locations = Locations(parts.replica, parts.warehouse)
        self._pointers = Pointers(parts, self._locations)
        self.redacted = RedactedViews(parts.replica, self._pointers)

    def require(self, key: Key) -> None:
        """Raises 404 where there is no such view, stored or made by Floe."""
        if not self.redacted.is_one(key):
            self.location_of(key)

    def location_of(self, key: Key) -> str:
        """The view's current metadata location. Raises 404."""
        found = self._parts.replica.state.tables.get(key)
        if found is None or not view_names.is_view(found.metadata_location):
            raise no_such_view(*key)
        return found.metadata_location

    def list(self, namespace: str) -> list[str]:
        """Names of the namespace's views."""
        tables = self._parts.replica.state.tables.items()
        own = [
            name
            for (found, name), each in tables
            if found == namespace and view_names.is_view(each.metadata_location)
        ]
        return sorted([*own, *self.redacted.names(namespace)])

    async def load(self, key: Key) -> dict[str, Any]:
        """LoadViewResult. Of a view that Floe makes itself the location names no file."""
        made = await self.redacted.load(key)
        if made is not None:
            return _loaded(f"{made['location']}/{view_names.metadata_name(0, made['view-uuid'])}", made)
        location = self.location_of(key)
        return _loaded(location, await self._pointers.read(location))

    async def create(self, namespace: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a view."""
        key = (namespace, name_of(body.get("name")))
        self._require_free(key)
        location = str(body.get("location") or self._pointers.new_location(key)).rstrip("/")
        self._locations.require_free(location, key)
        made = view_metadata.created(body, location, self._uuid(), self._parts.replica.wall_ms())
        stored = await self._store(made, 0)
        await self._pointers.move(key, "", stored, "View")
        return _loaded(stored, made)

    async def commit(self, key: Key, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace a view, or its properties or location. 409 where a requirement does not hold."""
        self.redacted.require_none(key)
        updates, requirements = _list(body, "updates"), _list(body, "requirements")
        for attempt in range(COMMIT_ATTEMPTS_MAX):
            location = self.location_of(key)
            base = await self._pointers.read(location)
            view_metadata.require(base, requirements)
            made = view_metadata.changed(base, updates, self._parts.replica.wall_ms())
            if made["location"] != base["location"]:
                self._locations.require_free(made["location"], key)
            stored = await self._store(made, table_metadata.version_of(location) + 1)
            if await self._pointers.moved(key, location, stored, last=attempt == COMMIT_ATTEMPTS_MAX - 1):
                return _loaded(stored, made)
        raise AssertionError("unreachable")

    async def register(self, namespace: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Take over a view whose metadata is in the warehouse already."""
        key, location = (namespace, name_of(body.get("name"))), body.get("metadata-location")
        if not isinstance(location, str):
            raise bad_request("register: metadata-location is missing")
        self._require_free(key)
        found = await self._pointers.read(location)
        if "view-uuid" not in found:
            raise bad_request(f"{location} is no view's metadata: register it as a table")
        view_metadata.changed(found, [], self._parts.replica.wall_ms())
        self._locations.require_registrable(location, found, key)
        if not view_names.is_view(location):  # of another catalog: the name has to tell
            location = await self._store(found, table_metadata.version_of(location) + 1)
        await self._pointers.move(key, "", location, "View")
        return _loaded(location, found)

    async def drop(self, key: Key) -> None:
        """Forget a view."""
        self.redacted.require_none(key)
        await self._take(key, None)

    async def rename(self, source: Key, target: Key) -> None:
        """Give a view another name."""
        self._need_namespace(target[0])
        self.redacted.require_none(source)
        self.location_of(source)
        name_of(target[1])
        there = self._parts.replica.state.tables.get(target)
        if self.redacted.is_one(target):
            raise already_exists("View", ".".join(target), f"Cannot rename {'.'.join(source)} to ")
        if there is not None:
            kind = "View" if view_names.is_view(there.metadata_location) else "Table"
            raise already_exists(kind, ".".join(target), f"Cannot rename {'.'.join(source)} to ")
        await self._take(source, target)

    async def _take(self, key: Key, target: Key | None) -> None:
        for attempt in range(COMMIT_ATTEMPTS_MAX):
            location = self.location_of(key)
            message = taken(self._parts.replica.state, key, location, target)
            if message is None:
                raise commit_failed(f"view {'.'.join(key)} is not at {location} any more: try again")
            if await self._pointers.proposed(
                message, target or key, "View", last=attempt == COMMIT_ATTEMPTS_MAX - 1
            ):
                return

    def _require_free(self, key: Key) -> None:
        """Raises 404 without the namespace, 409 where a view or a table has the name."""
        if self._parts.replica.state.feature_level < VIEWS:
            raise bad_request(f"views need feature level {VIEWS}: once no older agent runs, raise it")
        self._need_namespace(key[0])
        there = self._parts.replica.state.tables.get(key)
        if self.redacted.is_one(key) or (there is not None and view_names.is_view(there.metadata_location)):
            raise already_exists("View", ".".join(key))
        if there is not None:
            raise already_exists("Table with same name", ".".join(key))

    def _need_namespace(self, namespace: str) -> None:
        if namespace not in self._parts.replica.state.namespaces:
            raise no_such_namespace(namespace)

    def _uuid(self) -> str:
        text = self._parts.clock.random_bytes(16).hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    async def _store(self, view: View, version: int) -> str:
        name = view_names.metadata_name(version, self._uuid())
        content = await asyncio.to_thread(table_metadata.encode, view)
        if len(content) > METADATA_BYTES_MAX:
            raise bad_request(
                f"the view's metadata would have {len(content)} bytes, over {METADATA_BYTES_MAX}: set "
                f"{view_metadata.VERSIONS_PROPERTY} lower, or make its query shorter"
            )
        location = sealed(f"{view['location'].rstrip('/')}/{name}", content)
        await self._parts.store.put(self._parts.warehouse.key(location), [content])
        return location


def _loaded(location: str, view: View) -> dict[str, Any]:
    return {"metadata-location": location, "metadata": view, "config": {}}


def _list(body: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = body.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise bad_request(f"{name}: a list of objects is needed")
    return found
