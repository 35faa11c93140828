"""Commits of several tables at once (the specification's `transactions/commit`): all of them, or none.

Each table is looked at as in a commit of its own (rest_tables.py). No metadata is stored before all of them
may be changed, and no pointer moves by itself: one command moves all, and apply refuses it where one is
elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coordination.commands import CommitTables
from coordination.state.levels import TABLES_TOGETHER
from coordination.state.tables import MOVES_MAX
from coordination.state.types import Table
from iceberg import rest_commit
from iceberg.rest_errors import CatalogError, bad_request
from iceberg.rest_locations import Locations
from iceberg.rest_pointers import COMMIT_ATTEMPTS_MAX, CatalogParts, Key, Pointers, identifier, name_of

if TYPE_CHECKING:
    from pyiceberg.table import CommitTableRequest

    from iceberg.rest_access import Gate
    from iceberg.rest_tables import Tables

METADATA_BYTES_MAX = 64 << 20
"""Of all metadata files that one commit makes: they are in memory together until the first is stored."""

Changes = Mapping[Key, "CommitTableRequest"]


@dataclass(frozen=True, slots=True)
class Made:
    """A table's next metadata file: `content` at `location`, in place of `expected` (empty: it is new)."""

    expected: str
    location: str
    content: bytes


class Transactions:
    """Commits to the tables of `tables`."""

    def __init__(self, parts: CatalogParts, tables: Tables) -> None:
        self._parts = parts
        self._tables = tables
        self._pointers = Pointers(parts, Locations(parts.replica, parts.warehouse))

    async def commit(self, body: Mapping[str, Any], gate: Gate) -> None:
        """Make all changes or none. Raises CatalogError, which names the table that is in the way."""
        changes = parse(body)
        if self._parts.replica.state.feature_level < TABLES_TOGETHER:
            raise bad_request(
                f"a commit of several tables needs feature level {TABLES_TOGETHER}: once no older agent "
                "runs, raise it"
            )
        made: dict[Key, Made] = {}
        for attempt in range(COMMIT_ATTEMPTS_MAX if changes else 0):
            for key, request in changes.items():
                gate.commit(key, creates=rest_commit.is_creation(request))
            made = await self._stored(changes, made)
            try:
                await self._pointers.move_together(_moves(made))
            except CatalogError as error:
                if error.kind != "CommitFailedException" or attempt == COMMIT_ATTEMPTS_MAX - 1:
                    raise
            else:
                return

    async def _stored(self, changes: Changes, before: Mapping[Key, Made]) -> dict[Key, Made]:
        """The tables' next metadata files. Those `before` whose tables are where they were are used again."""
        made: dict[Key, Made] = {}
        for key, request in changes.items():
            try:
                made[key] = await self._made(key, request, before.get(key), made)
            except CatalogError as error:
                raise _naming(key, error) from error
            size = sum(len(each.content) for each in made.values())
            if size > METADATA_BYTES_MAX:
                raise bad_request(
                    f"the metadata of {len(made)} of the {len(changes)} tables has {size} bytes, over "
                    f"{METADATA_BYTES_MAX}: commit fewer tables at once, or expire snapshots of theirs"
                )
        for key, each in made.items():
            if each is not before.get(key):
                await self._tables.put(each.location, each.content)
        return made

    async def _made(
        self, key: Key, request: CommitTableRequest, before: Made | None, others: Mapping[Key, Made]
    ) -> Made:
        expected = self._tables.base_of(key, request)
        if before is not None and before.expected == expected:
            return before
        beside = {other: Table(*other, each.location, 0, "", ()) for other, each in others.items()}
        metadata = await self._tables.changed(key, expected, request, beside)
        return Made(expected, *await self._tables.encoded(metadata, expected))


def parse(body: Mapping[str, Any]) -> dict[Key, CommitTableRequest]:
    """The changes of a CommitTransactionRequest by table, in its order. Raises CatalogError 400."""
    listed = body.get("table-changes")
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise bad_request("table-changes: a list of objects is needed, one for each table")
    if len(listed) > MOVES_MAX:
        raise bad_request(f"table-changes: {len(listed)} tables, {MOVES_MAX} at most in one commit")
    found: dict[Key, CommitTableRequest] = {}
    for number, each in enumerate(listed):
        try:
            namespace, name = identifier(each, "identifier")
            key = (namespace, name_of(name))
            if key in found:
                raise bad_request(
                    f"table {'.'.join(key)} is named twice: put all its updates into one change"
                )
            found[key] = rest_commit.parse_commit({n: v for n, v in each.items() if n != "identifier"})
        except CatalogError as error:
            raise bad_request(f"table-changes[{number}]: {error}") from error
    return found


def _moves(made: Mapping[Key, Made]) -> Sequence[CommitTables.Move]:
    return [
        CommitTables.Move(
            namespace=namespace, name=name, expected=each.expected, metadata_location=each.location
        )
        for (namespace, name), each in made.items()
    ]


def _naming(key: Key, error: CatalogError) -> CatalogError:
    """The error with the table's name in its words."""
    title = ".".join(key)
    if title in str(error):
        return error
    return CatalogError(error.status, error.kind, f"table {title}: {error}")
