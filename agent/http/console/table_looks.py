"""What the console reads of tables in the store: bounded by `console.table_*`, so many looks at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.http.console.words import moment
from iceberg.warehouse import Warehouse
from objectstore.late import ready

if TYPE_CHECKING:
    from agent.http.parts import Parts
    from iceberg.peeking import Peeking
    from iceberg.small_files import LiveFile


class RowPlace(NamedTuple):
    """Where a record is in a table. `file` None: in none of those that `looked_at` of `of` manifests name."""

    snapshot: Mapping[str, Any] | None
    file: LiveFile | None
    position: int | None
    looked_at: int
    of: int


class TableLooks:
    """Looks at tables, of one agent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def peeking(self) -> Peeking:
        """What looks. Raises ValueError where the warehouse is elsewhere."""
        config, console = self._parts.config, self._parts.config.console
        warehouse = Warehouse.of(config.store.url, config.warehouse)
        await ready("iceberg.peeking")
        from iceberg.peeking import Bounds, Peeking

        bounds = Bounds(
            console.table_metadata_bytes_max,
            console.table_manifests_max,
            console.table_file_bytes_max,
            console.search_ms_max / 1000,
        )
        return Peeking(self._parts.store, warehouse, bounds)

    async def row(self, location: str, partition: int, offset: int) -> RowPlace:
        """Where a topic's record is in its table. Raises StoreError and ValueError."""
        peeking = await self.peeking()
        from iceberg.peeking import added

        head = await peeking.head(location)

        def wanted(file: LiveFile) -> bool:
            return file.partition == partition and file.first <= offset <= file.last

        found = await peeking.files(head, wanted, 1)
        file = next(iter(found.files), None)
        position = None if file is None else await peeking.position(head, file, offset)
        snapshot = added(head.metadata, partition, offset)
        return RowPlace(snapshot, file, position, found.looked_at, found.of)


def snapshot_of(snapshot: Mapping[str, Any]) -> str:
    """Its id and when it was made."""
    return f"{snapshot['snapshot-id']}, {moment(int(snapshot.get('timestamp-ms', -1)))}"
