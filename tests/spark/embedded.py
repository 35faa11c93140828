"""An agent of one process for jobs that run in processes of their own, and what is asked of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError

from deploy.run.stages import Embedded

TABLE_SECONDS_MAX = 120


def command(floe: Embedded, *words: str, stdin: str = "") -> None:
    """The `floe` command line."""
    where = {"FLOE_BOOTSTRAP": floe.bootstrap, "FLOE_HTTP": floe.http[0]}
    line = [sys.executable, "-m", "agent", *words]
    subprocess.run(line, input=stdin, env={**os.environ, **where}, check=True, capture_output=True, text=True)


def produce(floe: Embedded, partition: int, count: int, total: int) -> None:
    """Records of one partition, until the table has `total` of all."""
    command(floe, "produce", "t", "--partition", str(partition), stdin="\n".join(map(str, range(count))))
    until = time.monotonic() + TABLE_SECONDS_MAX
    while len(rows(floe, "floe.t")) < total:
        assert time.monotonic() < until, "the table does not get on"
        time.sleep(0.5)


def rows(floe: Embedded, table: str) -> list[dict[str, object]]:
    """Every row of a table, by another engine than the one that wrote it."""
    catalog = RestCatalog("floe", uri=f"{floe.http[0]}/iceberg")
    try:
        found: list[dict[str, object]] = catalog.load_table(table).scan().to_arrow().to_pylist()
    except NoSuchTableError:
        return []
    finally:
        catalog.close()
    return found
