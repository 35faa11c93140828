"""All tables and views of a copied bucket, as `floe restore cluster` has them moved."""

from __future__ import annotations

from google.protobuf.message import Message

from coordination.commands import CommitTable, ConfigEntry, PutNamespace
from coordination.restore.report import TableMoved
from coordination.restore.tables import Moves
from coordination.state import State
from coordination.state.tables import NAME_LENGTH_MAX, NAMESPACE_BYTES_MAX
from iceberg.moving.table import CannotMove, TableMove
from iceberg.moving.urls import Prefix
from objectstore import copied
from objectstore.store import ObjectStore


async def mover_of(store: ObjectStore, url: str, source: str = "") -> TablesMover | None:
    """What moves the tables of the bucket at `url`; None where its files are called as they were.

    `source`: by which URL they are called; empty: as copy.json says. Raises NotOurCopy, StoreError.
    """
    mark = None if source else await copied.marked(store)
    prefix = Prefix.of(source or (mark.source if mark is not None else url), url)
    return None if prefix.source == prefix.target else TablesMover(store, prefix)


class TablesMover:
    """Makes the commands that name tables' metadata in the copy, behind all that these lead to."""

    def __init__(self, store: ObjectStore, prefix: Prefix) -> None:
        self._store, self._prefix = store, prefix

    async def moves(self, state: State, *, write: bool) -> Moves:
        """Of a state: tables one after the other. A table that cannot be moved is told of, and stays.

        With `write` off everything is read and judged, and nothing stored. Raises StoreError.
        """
        found = Moves(self._namespaces(state))
        for key in sorted(state.tables):
            table = state.tables[key]
            if (
                self._prefix.there(table.metadata_location)
                and self._prefix.moved(table.metadata_location) is None
            ):
                continue
            told = TableMoved(*key, table.metadata_location)
            found.tables.append(told)
            if self._prefix.moved(table.metadata_location) is None:
                told.error = f"it is below neither {self._prefix.source} nor {self._prefix.target}"
                continue
            try:
                await TableMove(self._store, self._prefix, told, write=write).run()
                if len(told.metadata) > NAME_LENGTH_MAX:
                    raise CannotMove(f"its metadata's URL would have over {NAME_LENGTH_MAX} characters")
            except CannotMove as error:
                found.tables[-1] = TableMoved(*key, table.metadata_location, error=str(error))
                continue
            command = CommitTable(namespace=key[0], name=key[1], expected=told.former)
            command.metadata_location = told.metadata
            found.commands.append(command)
        return found

    def _namespaces(self, state: State) -> list[Message]:
        """Of namespaces whose properties name the source, as `location` does."""
        found: list[Message] = []
        for name, before in sorted(state.namespaces.items()):
            after = self._prefix.everywhere(dict(before), {})
            pairs = [ConfigEntry(name=key, value=value) for key, value in after.items()]
            command = PutNamespace(name=name, properties=pairs)
            if after != before and command.ByteSize() <= NAMESPACE_BYTES_MAX:
                found.append(command)
        return found
