"""chdb (ClickHouse)."""

from typing import Any

import chdb
import pyarrow
from plain import main
from pyiceberg.catalog.rest import RestCatalog

SETTINGS = "output_format_arrow_string_as_string=0, output_format_arrow_low_cardinality_as_dictionary=0"


def ask(url: str, question: dict[str, Any]) -> list[Any]:
    table = RestCatalog("floe", uri=url).load_table(f"floe.{question['table']}")
    folder = table.location().removeprefix("file://")
    query = f"SELECT * FROM icebergLocal('{folder}')"
    settings = SETTINGS
    if question["snapshot"]:
        settings += f", iceberg_snapshot_id={question['snapshot']}"
    if question["where"]:
        query += " WHERE {} >= {}".format(*question["where"])
    found = chdb.query(f"{query} SETTINGS {settings}", "ArrowTable")
    # ClickHouse's String is text and bytes alike: the table's schema says which.
    names = pyarrow.schema([table.schema().as_arrow().field(name) for name in found.column_names])
    rows: list[Any] = found.cast(names).to_pylist()
    return rows


main(ask)
