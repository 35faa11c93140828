"""Tables of the REST catalog: load, create, commit, register, drop, rename.

The pointer in the replicated state is the truth; it moves by compare-and-swap only (CommitTable; those
of several tables: rest_transaction.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iceberg import history, rest_commit, rest_refs
from iceberg import metadata as table_metadata
from iceberg.foreign import Replacement, Unlike
from iceberg.head import load, taken
from iceberg.latest_ids import topic_behind
from iceberg.maintenance import purge
from iceberg.metadata import Retention
from iceberg.rest_errors import (
    CatalogError,
    already_exists,
    bad_request,
    commit_failed,
    forbidden,
    no_such_namespace,
    no_such_table,
)
from iceberg.rest_locations import NONE, Locations
from iceberg.rest_pointers import COMMIT_ATTEMPTS_MAX, CatalogParts, Key, Pointers, name_of
from iceberg.rest_redacted import RedactedViews
from iceberg.sealed import Damaged, sealed
from iceberg.segments import SegmentReader
from iceberg.snapshots import SnapshotBuilder
from iceberg.steps import Steps
from iceberg.view_names import is_view
from objectstore.store import StoreError

if TYPE_CHECKING:
    from pyiceberg.table import CommitTableRequest
    from pyiceberg.table.snapshots import Snapshot

    from coordination.state.types import Table
    from iceberg.rest_access import Gate

_logger = logging.getLogger("floe.iceberg.catalog")


class Tables:
    """One method per operation; each raises CatalogError."""

    def __init__(self, parts: CatalogParts) -> None:
        self._parts = parts
        self._locations = Locations(parts.replica, parts.warehouse)
        self._pointers = Pointers(parts, self._locations)
        self._redacted = RedactedViews(parts.replica, self._pointers)
        self._segments = SegmentReader(parts.store, parts.warehouse)

    def location_of(self, key: Key) -> str:
        """The table's current metadata location. Raises 404."""
        found = self._parts.replica.state.tables.get(key)
        if found is None or is_view(found.metadata_location):
            raise no_such_table(*key)
        return found.metadata_location

    def list(self, namespace: str) -> list[str]:
        """Names of the namespace's tables."""
        tables = self._parts.replica.state.tables.items()
        return sorted(
            name
            for (found, name), each in tables
            if found == namespace and not is_view(each.metadata_location)
        )

    async def load(self, key: Key, *, all_snapshots: bool = True) -> dict[str, Any]:
        """LoadTableResult: the metadata with the table's whole history, and storage access.

        Without `all_snapshots` only those that a ref names (the specification's `snapshots=refs`).
        """
        location = self.location_of(key)
        found = await self._pointers.read(location)
        return self._loaded(
            location, await self._with_history(found) if all_snapshots else history.of_refs(found)
        )

    async def metadata(self, key: Key) -> dict[str, Any]:
        """The table's current metadata, without its older history."""
        return await self._pointers.read(self.location_of(key))

    async def create(self, namespace: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a table, or only say what it would be (stage-create)."""
        request = rest_commit.parse_create(body)
        key = (namespace, name_of(request.name))
        self._need_namespace(namespace)
        self._require_no_view(key)
        if key in self._parts.replica.state.tables:
            raise already_exists("Table", f"{namespace}.{request.name}")
        location = (request.location or self._pointers.new_location(key)).rstrip("/")
        self._locations.require_free(location, key)
        now_ms = self._parts.replica.wall_ms()
        metadata = await asyncio.to_thread(rest_commit.create, request, location, now_ms)
        self._locations.require_changes(key, None, metadata)
        if request.stage_create:
            return {"metadata": metadata, "config": dict(self._parts.table_config)}
        stored, content = await self.encoded(metadata, "")
        await self.put(stored, content)
        await self._pointers.move(key, "", stored)
        return self._loaded(stored, metadata)

    async def commit(self, key: Key, body: Mapping[str, Any], gate: Gate) -> dict[str, Any]:
        """Apply another engine's commit, or refuse it with 409 where a requirement does not hold."""
        request = rest_commit.parse_commit(body)
        for attempt in range(COMMIT_ATTEMPTS_MAX):
            gate.commit(key, creates=rest_commit.is_creation(request))
            location = self.base_of(key, request)
            updated = await self.changed(key, location, request)
            stored, content = await self.encoded(updated, location)
            await self.put(stored, content)
            if await self._pointers.moved(key, location, stored, last=attempt == COMMIT_ATTEMPTS_MAX - 1):
                return {"metadata-location": stored, "metadata": await self._with_history(updated)}
        raise AssertionError("unreachable")

    def base_of(self, key: Key, request: CommitTableRequest) -> str:
        """Where the table is that the commit is made to; empty for a creation where there is none yet."""
        if not rest_commit.is_creation(request):
            return self.location_of(key)
        self._require_no_view(key)
        self._need_namespace(key[0])
        found = self._parts.replica.state.tables.get(key)
        return found.metadata_location if found is not None else ""

    async def changed(
        self, key: Key, location: str, request: CommitTableRequest, beside: Mapping[Key, Table] = NONE
    ) -> dict[str, Any]:
        """What the table at `location` (empty: there is none) becomes by the commit.

        `beside`: other tables as they will be when the commit is made.
        """
        base = await self._pointers.read(location) if location else None
        updated = await self._updated(key, location, base, request)
        self._locations.require_changes(key, base, updated, beside)
        return updated

    async def _updated(
        self, key: Key, location: str, base: dict[str, Any] | None, request: CommitTableRequest
    ) -> dict[str, Any]:
        """The metadata after a commit to the table `base` at `location`, or to none."""
        now_ms = self._parts.replica.wall_ms()
        if base is None:
            return await asyncio.to_thread(rest_commit.apply, request, None, None, now_ms)
        if not self._guard(key, base, request):
            base = await self._segments.plain(base)
            return await asyncio.to_thread(rest_commit.apply, request, base, location, now_ms)
        given = rest_commit.replacement(request)
        if given is not None:
            return await self._replaced(location, base, request, given)
        base = await rest_refs.findable(self._segments, base, request)
        updated = await asyncio.to_thread(rest_commit.apply, request, base, location, now_ms)
        rest_refs.require_few(updated)
        return updated

    async def register(self, namespace: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Take over a table whose metadata is in the warehouse already."""
        name, location = name_of(body.get("name")), body.get("metadata-location")
        if not isinstance(location, str):
            raise bad_request("register: metadata-location is missing")
        self._need_namespace(namespace)
        self._require_no_view((namespace, name))
        if is_view(location):
            raise bad_request(f"{location} is called as a view's metadata is: it cannot be a table's")
        metadata = await self._pointers.read(location)
        topic_id, topic = rest_commit.topic_of(metadata)
        if topic_id and self._topic_lives(topic_id):
            raise forbidden(f"{location} is the table of topic {topic!r}, which has it already")
        self._locations.require_registrable(location, metadata, (namespace, name))
        await self._pointers.move((namespace, name), "", location)
        return self._loaded(location, metadata)

    async def drop(self, key: Key, *, purge_files: bool) -> None:
        """Forget a table; with purge its files go too, those below its own location."""
        last, metadata = await self._take(key, None, purge_files=purge_files)
        if not purge_files or metadata is None:
            return
        title, location = f"table {key[0]}.{key[1]}", metadata["location"]
        try:
            self._locations.require_purgeable(location, None)
        except CatalogError as error:  # one that was created at the same time
            raise bad_request(f"{title} was dropped, but {error}") from error
        left = await purge(self._parts.store, self._parts.warehouse, location, last)
        if left:
            _logger.warning("%s: %d files at %s are left, younger than its metadata", title, left, location)

    async def _replaced(
        self, location: str, base: Mapping[str, Any], request: CommitTableRequest, given: Snapshot
    ) -> dict[str, Any]:
        """The metadata of a topic's table whose rows another engine has written into other files."""
        await asyncio.to_thread(rest_commit.require, request, base)
        current = base.get("current-snapshot-id")
        if given.parent_snapshot_id != current:
            raise commit_failed(
                f"Requirement failed: the snapshot's parent is not the current one, {current}"
            )
        parts = self._parts
        head = await load(parts.store, parts.warehouse, location)
        builder = SnapshotBuilder(parts.store, parts.warehouse, Steps())
        known = [*head.metadata["snapshots"], *await self._segments.snapshots(head.metadata)]
        if any(each["snapshot-id"] == given.snapshot_id for each in known):
            raise bad_request(f"snapshot-id {given.snapshot_id}: the table has such a snapshot already")
        by = rest_commit.engine_of(given)
        replacement = Replacement(parts.store, parts.warehouse, head)
        now_ms = parts.replica.wall_ms()
        try:
            after = await replacement.made(builder, given.manifest_list, given.snapshot_id, by, now_ms)
        except Unlike as error:
            raise forbidden(f"replace refused: {error}") from error
        except ValueError as error:
            raise bad_request(f"replace refused: {error}") from error
        return table_metadata.following(after.metadata, location, head.metadata, now_ms, Retention())

    async def rename(self, source: Key, target: Key) -> None:
        """Give a table another name."""
        self._need_namespace(target[0])
        self.location_of(source)
        self._require_not_latest(source)
        there = self._parts.replica.state.tables.get(target)
        if self._redacted.is_one(target) or (there is not None and is_view(there.metadata_location)):
            raise already_exists("View", ".".join(target), f"Cannot rename {'.'.join(source)} to ")
        await self._take(source, (target[0], name_of(target[1])))

    def _require_not_latest(self, key: Key) -> None:
        """Raises 403 for a living topic's latest table, which is called as its topic's is."""
        state = self._parts.replica.state
        topic = topic_behind(state, state.tables[key])
        if topic is not None:
            raise forbidden(
                f"this is the table of the newest rows of topic {topic.name!r}: set its floe.table.name"
            )

    async def _take(
        self, key: Key, target: Key | None, *, purge_files: bool = False
    ) -> tuple[str, Mapping[str, Any] | None]:
        """Drop the table or rename it to `target`, if it may be: the one that was looked at, no other.

        Returns where its metadata is, and that; None for metadata that nobody can read: such a table can be
        dropped, also a living topic's, to which nothing would ever be committed otherwise.
        """
        for attempt in range(COMMIT_ATTEMPTS_MAX):
            location = self.location_of(key)
            metadata = await (self._readable(location) if target is None else self._pointers.read(location))
            if metadata is not None:
                self._guard(key, metadata, None)
            purged = metadata["location"] if purge_files and metadata is not None else ""
            try:
                await self._propose_taken(key, location, target, purged)
                return location, metadata
            except CatalogError as error:
                if error.kind != "CommitFailedException" or attempt == COMMIT_ATTEMPTS_MAX - 1:
                    raise
        raise AssertionError("unreachable")

    async def _readable(self, location: str) -> dict[str, Any] | None:
        """The metadata; None for what will not be there later either: it is gone, is outside of the warehouse
        (a copy's promotion did not move it), is none, or is damaged. Raises StoreError for a store that is
        away.
        """
        try:
            return await self._pointers.read(location)
        except (CatalogError, Damaged) as error:
            _logger.warning("a table is dropped whose metadata cannot be read: %s", error)
            return None

    async def _propose_taken(self, key: Key, location: str, target: Key | None, purged: str) -> None:
        message = taken(self._parts.replica.state, key, location, target)
        if message is None:
            raise commit_failed(f"table {key[0]}.{key[1]} is not at {location} any more: try again")
        if purged:
            self._locations.require_purgeable(purged, key)
        await self._pointers.propose(message, target or key)

    def _guard(self, key: Key, metadata: Mapping[str, Any], request: CommitTableRequest | None) -> bool:
        """A living topic's table is Floe's: it takes properties, nothing else. Whether it is such a table.

        Below TABLE_TOPIC_IDS a topic that was given another table name left a table behind: not its own now.
        """
        topic_id, topic = rest_commit.topic_of(metadata)
        if not topic_id or not self._topic_lives(topic_id):
            self._guard_latest(key, topic, request)
            return False
        if self._parts.replica.state.tables_by_topic.get(bytes.fromhex(topic_id), key) != key:
            return False
        if request is None:
            raise forbidden(
                f"this is the table of topic {topic!r}: delete the topic first, or set its floe.table.name"
            )
        rest_commit.guard_topic_table(request, topic)
        return True

    def _guard_latest(self, key: Key, topic: str, request: CommitTableRequest | None) -> None:
        """A living topic's latest table takes properties; it may be dropped, and is then made anew."""
        state = self._parts.replica.state
        table = state.tables.get(key)
        if table is not None and request is not None and topic_behind(state, table) is not None:
            rest_commit.guard_latest_table(request, topic)

    def _topic_lives(self, topic_id: str) -> bool:
        return bytes.fromhex(topic_id) in self._parts.replica.state.topics_by_id

    def _require_no_view(self, key: Key) -> None:
        """Raises 409 where a view has the name."""
        there = self._parts.replica.state.tables.get(key)
        if self._redacted.is_one(key) or (there is not None and is_view(there.metadata_location)):
            raise already_exists("View with same name", ".".join(key))

    def _need_namespace(self, namespace: str) -> None:
        if namespace not in self._parts.replica.state.namespaces:
            raise no_such_namespace(namespace)

    def _loaded(self, location: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "metadata-location": location,
            "metadata": metadata,
            "config": dict(self._parts.table_config),
        }

    async def _with_history(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """What engines shall see. Damage in its history is told, and what lies before it left out.

        No query of the rows needs that. Streams would miss rows: they cannot begin meanwhile.
        """
        try:
            return await self._segments.composed(metadata)
        except (StoreError, ValueError) as error:
            _logger.error("%s: no stream over it can begin now: %s", metadata["location"], error)
            return await self._segments.behind_gap(metadata)

    async def encoded(self, metadata: Mapping[str, Any], former: str) -> tuple[str, bytes]:
        """Where the metadata that follows the file at `former` (empty: none) goes, and its bytes."""
        version = table_metadata.version_of(former) + 1 if former else 0
        name = table_metadata.metadata_name(version, self._parts.clock.random_bytes(16))
        content = await asyncio.to_thread(table_metadata.encode, dict(metadata))
        return sealed(f"{metadata['location'].rstrip('/')}/{name}", content), content

    async def put(self, location: str, content: bytes) -> None:
        """Store a metadata file. Raises StoreError."""
        await self._parts.store.put(self._parts.warehouse.key(location), [content])
