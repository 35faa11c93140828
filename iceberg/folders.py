"""Which folder a table's files lie in, and whose else it is: no two tables may have one, or one in the other.

Whoever removes the files of one would remove the other's: a purge, and the collection of files that a topic's
table does not reach. The state knows of every table where its current metadata is, and with it the folder.
"""

from __future__ import annotations

from collections.abc import Mapping

from coordination.state.types import Table
from iceberg.warehouse import OutsideWarehouse, Warehouse

METADATA = "/metadata/"


def folder_of(metadata_location: str) -> str:
    """The folder of the table whose metadata this is: `<folder>/metadata/<file>`, as everybody writes it."""
    folder, found, _ = metadata_location.rpartition(METADATA)
    return folder if found else metadata_location.rpartition("/")[0]


def neighbour(
    tables: Mapping[tuple[str, str], Table],
    warehouse: Warehouse,
    location: str,
    own: tuple[str, str] | None = None,
) -> Table | None:
    """A table other than `own` whose folder is `location`, lies below it, or has it below itself.

    Time: all tables. Raises OutsideWarehouse for a location that no table here can be at.
    """
    wanted = warehouse.key(location).rstrip("/") + "/"
    for key, table in tables.items():
        if key == own:
            continue
        try:
            folder = warehouse.key(folder_of(table.metadata_location)) + "/"
        except OutsideWarehouse:
            continue
        if folder.startswith(wanted) or wanted.startswith(folder):
            return table
    return None
