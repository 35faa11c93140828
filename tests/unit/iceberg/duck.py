"""DuckDB with its extensions from the installed wheels: no network."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import duckdb


def connect(*extensions: str) -> duckdb.DuckDBPyConnection:
    """A connection with the extensions loaded by file."""
    spec = find_spec("duckdb_ext")
    assert spec is not None
    assert spec.submodule_search_locations, "the duckdb-ext-* packages are not installed"
    root = Path(next(iter(spec.submodule_search_locations)), "extensions")
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    connection.execute("SET autoload_known_extensions = false")
    for name in extensions:
        (found,) = root.glob(f"v{duckdb.__version__}/*/{name}.duckdb_extension")
        connection.execute(f"LOAD '{found}'")
    return connection
