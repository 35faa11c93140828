"""DataFusion with iceberg-rust's table provider."""

from typing import Any

from datafusion import SessionContext
from plain import main
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg_core.datafusion import IcebergDataFusionTable


def ask(url: str, question: dict[str, Any]) -> list[Any]:
    # Its provider has no such argument as yet, and says so.
    at = {"snapshot_id": question["snapshot"]} if question["snapshot"] else {}
    table = RestCatalog("floe", uri=url).load_table(f"floe.{question['table']}")
    provider = IcebergDataFusionTable(
        identifier=table.name(),
        metadata_location=table.metadata_location,
        file_io_properties={
            name: value for name, value in table.io.properties.items() if isinstance(value, str)
        },
        **at,
    )
    context = SessionContext()
    context.register_table("t", provider)
    query = "SELECT * FROM t"
    if question["where"]:
        path, least = question["where"]
        first, name = path.split(".")
        query += f" WHERE {first}['{name}'] >= {least}"
    rows: list[Any] = context.sql(query).to_arrow_table().to_pylist()
    return rows


main(ask)
