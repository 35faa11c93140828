"""How long queries of a table take that was committed bit by bit and compacted, beside a copy in large files.

Flights in two partitions, 4,000 of each in a commit, compacted whenever its agent would. The copy is made as
CREATE TABLE AS SELECT would make it: an Iceberg table of one append by pyiceberg, of the same rows.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

from iceberg.committer import CommitterOptions
from iceberg.small_files import FileSizes
from objectstore import batch
from tests.bench.bench_schema import flight_values
from tests.bench.figure import Figure, interleaved
from tests.unit.iceberg import duck
from tests.unit.iceberg import rig as rigs
from tests.unit.schema import samples

COMMITS, PARTITIONS, RECORDS = 400, 2, 4_000
FLIGHTS = 200_000  # different ones, over and over: more than a row group has
SUMS = "SELECT count(*), sum(value.distance), sum(value.arr_delay), max(value.tailnum) FROM iceberg_scan(?)"
WHOLE = "SELECT count(*), sum(octet_length(value.__raw__)), sum(value.distance) FROM iceberg_scan(?)"
SCAN_GOAL, PLAN_GOAL_S = 1.3, 1.0


async def table_of(folder: Path) -> tuple[str, int]:
    """Where the metadata is of such a table, and how many files it has."""
    flights = cycle(flight_values(FLIGHTS))
    options = CommitterOptions(files=FileSizes(busy_percent_max=100))
    async with rigs.running(folder, options) as rig:
        await rig.create_topic(partitions=PARTITIONS)
        await rig.bind(samples.FLIGHTS, "nyc.Flight")
        committer = rig.committer()
        for _ in range(COMMITS):
            for partition in range(PARTITIONS):
                some = islice(flights, RECORDS)
                records = [batch.NewRecord(1_700_000_000_000, None, each) for each in some]
                await rig.store_batch(batch.build(records), partition)
            await rig.drain(committer)
            await committer.compact()
        head = await rig.head()
        return str(rig.warehouse.key(head.location)), head.size[0]


def copy_of(table: StaticTable, folder: Path) -> str:
    """Where the metadata of the copy is."""
    catalog = SqlCatalog("copy", uri=f"sqlite:///{folder}/copy.db", warehouse=f"file://{folder}/copy")
    catalog.create_namespace("copy")
    rows: pa.Table = table.scan().to_arrow()
    made = catalog.create_table("copy.flights", rows.schema)
    made.append(rows)
    return made.metadata_location


def timed(location: str, query: str) -> float:
    """CPU seconds of one query, on one thread."""
    with duck.connect("avro", "iceberg") as lake:
        lake.execute("SET threads = 1")
        begun = time.process_time()
        lake.execute(query, [location]).fetchall()
        return time.process_time() - begun


def figures() -> Iterable[Figure]:
    """Both queries of both tables in turns, and what planning takes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        key, files = asyncio.run(table_of(folder / "rig"))
        (location,) = [str(each) for each in folder.rglob(Path(key).name)]
        table = StaticTable.from_metadata(location)
        copy = copy_of(table, folder)
        title = f"table of {COMMITS} commits, {COMMITS * PARTITIONS * RECORDS:,} flights, {files} files"
        for what, query in (("three of its columns", SUMS), ("the records' bytes too", WHOLE)):
            own, other = interleaved([partial(timed, location, query), partial(timed, copy, query)])
            yield Figure(
                f"{title}: DuckDB reads {what}",
                own * 1e3,
                "ms",
                "copy in one file",
                other * 1e3,
                SCAN_GOAL,
                "less",
            )
        begun = time.process_time()
        planned = sum(1 for _ in table.scan().plan_files())
        assert planned == files, (planned, files)
        yield Figure(
            f"{title}: planned by pyiceberg",
            time.process_time() - begun,
            "s",
            goal=PLAN_GOAL_S,
            better="less",
        )


if __name__ == "__main__":
    for figure in figures():
        print(figure.line(), flush=True)
