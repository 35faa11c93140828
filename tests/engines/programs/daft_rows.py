"""Daft."""

from typing import Any

import daft
from plain import main
from pyiceberg.catalog.rest import RestCatalog


def ask(url: str, question: dict[str, Any]) -> list[Any]:
    table = RestCatalog("floe", uri=url).load_table(f"floe.{question['table']}")
    frame = daft.read_iceberg(table, snapshot_id=question["snapshot"])
    if question["where"]:
        path, least = question["where"]
        first, *others = path.split(".")
        column = daft.col(first)
        for name in others:
            column = column.get(name)
        frame = frame.where(column >= least)
    rows: list[Any] = frame.to_arrow().to_pylist()
    return rows


main(ask)
