"""pyiceberg."""

from typing import Any

from plain import main
from pyiceberg.catalog.rest import RestCatalog


def ask(url: str, question: dict[str, Any]) -> list[Any]:
    table = RestCatalog("floe", uri=url).load_table(f"floe.{question['table']}")
    options = {} if question["snapshot"] is None else {"snapshot_id": question["snapshot"]}
    if question["where"]:
        options["row_filter"] = "{} >= {}".format(*question["where"])
    rows: list[Any] = table.scan(**options).to_arrow().to_pylist()
    return rows


main(ask)
