"""Tables in a restore: pointers that are to name other files, and commits that went with the log."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from coordination.restore.report import Left, Moved, TableFound
from coordination.state import State
from objectstore.naming import TABLES
from objectstore.store import NotFound, ObjectStore

_METADATA = re.compile(r"(.*/metadata/)(\d+)-[^/]*\.metadata\.json")


@dataclass(slots=True)
class TableMoves:
    """What became of tables that were in another bucket."""

    moved: list[Moved] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)


class Moving(Protocol):
    """Who knows how tables' files name each other (iceberg/moving.py)."""

    async def moved(self, state: State, *, write: bool) -> TableMoves: ...


async def ahead(store: ObjectStore, state: State) -> list[TableFound]:
    """Tables of which there is metadata newer than the restored pointer: commits that the lost log took."""
    found: list[TableFound] = []
    for table in state.tables.values():
        match = _METADATA.fullmatch(table.metadata_location)
        if match is None:
            continue
        folder, version = match[1], int(match[2])
        prefix = TABLES + folder.partition(f"/{TABLES}")[2]
        newer = 0
        with suppress(NotFound):
            async for page in store.list(prefix):
                names = [_METADATA.fullmatch(meta.key) for meta in page]
                newer += sum(name is not None and int(name[2]) > version for name in names)
        if newer:
            found.append(TableFound(table.namespace, table.name, table.metadata_location, newer))
    return found
