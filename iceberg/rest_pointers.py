"""Pointers of the REST catalog: metadata read by them, and their moves by compare-and-swap."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coordination.clock import Clock
from coordination.commands import CommitTable, CommitTables
from coordination.kafka_codes import Code
from coordination.log import LogError
from coordination.replica.errors import OutcomeUnknown
from coordination.state.types import Refused, Result
from iceberg import metadata as table_metadata
from iceberg.rest_errors import (
    CatalogError,
    already_exists,
    bad_request,
    commit_failed,
    commit_unknown,
    unavailable,
)
from iceberg.rest_locations import Locations
from iceberg.sealed import read
from iceberg.warehouse import Warehouse
from objectstore.store import NotFound, ObjectStore

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from coordination.replica import Replica
    from iceberg.rest_lending import Lender

COMMIT_ATTEMPTS_MAX = 4
"""Tries of one commit whose requirements still hold after another commit came first; of a drop too."""

_NOT_AS_EXPECTED = (Code.INVALID_UPDATE_VERSION, Code.DUPLICATE_RESOURCE, Code.RESOURCE_NOT_FOUND)

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class CatalogParts:
    """What the catalog works with. `table_config` goes to clients with every table (storage access).

    `lender`: who lends keys of the store for a table; None: nobody does.
    """

    replica: Replica
    store: ObjectStore
    warehouse: Warehouse
    clock: Clock
    table_config: Mapping[str, str] = field(default_factory=dict)
    lender: Lender | None = None
    propose: Callable[[Message], Awaitable[Result]] | None = None
    """Proposes a command, and tells who did; None: the replica alone."""

    async def proposed(self, message: Message) -> Result:
        """What apply decided. Raises LogError, OutcomeUnknown."""
        return await (self.propose or self.replica.propose)(message)


class Pointers:
    """Each method raises CatalogError. `kind` is Table or View."""

    def __init__(self, parts: CatalogParts, locations: Locations) -> None:
        self._parts = parts
        self._locations = locations

    def new_location(self, key: Key) -> str:
        """A folder that no other table or view has."""
        unique = self._parts.clock.random_bytes(6).hex()
        return f"{self._parts.warehouse.location}/{key[0]}/{key[1]}-{unique}"

    async def read(self, location: str) -> dict[str, Any]:
        """The metadata at a location. Raises 404 for a file that is gone, 400 for what is none."""
        try:
            self._locations.require_below(location)
            content = await read(self._parts.store, self._parts.warehouse, location)
            return await asyncio.to_thread(table_metadata.decode, content)
        except NotFound:
            raise CatalogError(
                404, "NotFoundException", f"Failed to open input stream for file: {location}: it is gone"
            ) from None
        except ValueError as error:
            raise bad_request(f"metadata {location}: {error}") from error

    async def move(self, key: Key, expected: str, location: str, kind: str = "Table") -> None:
        """Point to another location, from the one that is expected (empty: there is none)."""
        namespace, name = key
        message = CommitTable(namespace=namespace, name=name, expected=expected, metadata_location=location)
        try:
            await self.propose(message, key, kind)
        except CatalogError as error:
            if error.status == 504 and await self._landed(((key, location),)):
                return
            raise

    async def move_together(self, moves: Sequence[CommitTables.Move]) -> None:
        """Move pointers of several tables, all or none. 409 where one is not as expected: look again."""
        title = "tables " + ", ".join(f"{each.namespace}.{each.name}" for each in moves)
        try:
            result = await self._result(CommitTables(moves=moves), title)
        except CatalogError as error:
            places = [((each.namespace, each.name), each.metadata_location) for each in moves]
            if error.status == 504 and await self._landed(places):
                return
            raise
        if isinstance(result, Refused) and result.code in _NOT_AS_EXPECTED:
            raise commit_failed(result.message)
        if isinstance(result, Refused):
            raise bad_request(result.message)

    async def moved(self, key: Key, expected: str, location: str, *, last: bool) -> bool:
        """Whether it was moved; not, where another commit came first, unless this was the `last` try."""
        try:
            await self.move(key, expected, location)
        except CatalogError as error:
            if error.kind != "CommitFailedException" or last:
                raise
            return False
        return True

    async def proposed(self, message: Message, key: Key, kind: str, *, last: bool) -> bool:
        """Likewise for another command."""
        try:
            await self.propose(message, key, kind)
        except CatalogError as error:
            if error.kind != "CommitFailedException" or last:
                raise
            return False
        return True

    async def propose(self, message: Message, key: Key, kind: str = "Table") -> Result:
        """Submit the command about `key`."""
        title = ".".join(key)
        result = await self._result(message, f"{kind.lower()} {title}")
        if isinstance(result, Refused):
            raise refused(result, title, kind)
        return result

    async def _result(self, message: Message, title: str) -> Result:
        try:
            return await self._parts.proposed(message)
        except OutcomeUnknown as error:
            raise commit_unknown(f"{title}: {error}") from error
        except LogError as error:
            raise unavailable(f"{title}: {error}") from error

    async def _landed(self, places: Sequence[tuple[Key, str]]) -> bool:
        """Whether a table is where its commit moved it. One will do: they move together or not at all."""
        try:
            await self._parts.replica.barrier()
        except LogError:
            return False
        tables = self._parts.replica.state.tables
        found = ((tables.get(key), location) for key, location in places)
        return any(table is not None and table.metadata_location == location for table, location in found)


def refused(result: Refused, title: str, kind: str = "Table") -> CatalogError:
    """What the log refused, as the catalog says it."""
    if result.code is Code.DUPLICATE_RESOURCE:
        return already_exists(kind, title)
    if result.code is Code.INVALID_UPDATE_VERSION:
        return commit_failed(result.message)
    if result.code is Code.RESOURCE_NOT_FOUND:
        return CatalogError(404, f"NoSuch{kind}Exception", result.message)
    return bad_request(f"{kind.lower()} {title}: {result.message}")


def name_of(name: object) -> str:
    """A table's name as it may be. Raises 400."""
    if not isinstance(name, str) or not name or "/" in name or "\x1f" in name:
        raise bad_request(f"table name {name!r}: it has at least one character and no slash")
    return name


def identifier(body: Mapping[str, Any], name: str) -> Key:
    """The table or view that a field of a request names. Raises 400."""
    found = body.get(name)
    if not isinstance(found, dict) or not isinstance(found.get("namespace"), list):
        raise bad_request(f"{name}: an object with namespace and name is needed")
    return ".".join(str(each) for each in found["namespace"]), str(found.get("name", ""))
