"""Polars, its own reader."""

from typing import Any

import polars
from plain import main
from pyiceberg.catalog.rest import RestCatalog


def ask(url: str, question: dict[str, Any]) -> list[Any]:
    table = RestCatalog("floe", uri=url).load_table(f"floe.{question['table']}")
    frame = polars.scan_iceberg(table, snapshot_id=question["snapshot"], reader_override="native")
    if question["where"]:
        path, least = question["where"]
        first, *others = path.split(".")
        column = polars.col(first)
        for name in others:
            column = column.struct.field(name)
        frame = frame.filter(column >= least)
    rows: list[Any] = frame.collect().to_dicts()
    return rows


main(ask)
