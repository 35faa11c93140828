"""DuckDB, with its extension from the installed wheels."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
from plain import main


def connected(url: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    spec = find_spec("duckdb_ext")
    assert spec is not None
    assert spec.submodule_search_locations
    (where,) = spec.submodule_search_locations
    for name in ("avro", "httpfs", "iceberg"):
        (found,) = Path(where).glob(f"**/v{duckdb.__version__}/*/{name}.duckdb_extension")
        connection.execute(f"LOAD '{found}'")
    connection.execute(f"ATTACH 'floe' AS lake (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')")
    return connection


def ask(url: str, question: dict[str, Any]) -> list[Any]:
    query = f"SELECT * FROM lake.floe.{question['table']}"
    if question["snapshot"]:
        query += f" AT (VERSION => {question['snapshot']})"
    if question["where"]:
        query += " WHERE {} >= {}".format(*question["where"])
    with connected(url) as connection:
        rows: list[Any] = connection.execute(query).fetch_arrow_table().to_pylist()
    return rows


main(ask)
