"""What it costs to make large files of a table's small ones, and how many files are left after a week."""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from iceberg.committer import Committer, CommitterOptions
from iceberg.small_files import FileSizes
from iceberg.writers import ProcessWriter
from objectstore import batch
from tests.bench.bench_schema import flight_values
from tests.bench.bench_tables import raw_values
from tests.bench.figure import ROUNDS, Figure
from tests.bench.load import cpu_seconds
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.test_tables_small_files import DAYS_7, HOUR, simulate
from tests.unit.schema import samples

FILES = 16
FLIGHTS, FEW_FLIGHTS = 40_000, 500
RAW_RECORDS = 8_000
BATCH_RECORDS = 1_000
MB = 1e6
GB = 1e9


async def compacted(values: Sequence[bytes], *, flights: bool, helper: bool) -> tuple[float, float]:
    """CPU seconds, of all threads, for each GB of files read: FILES commits of these values made one file.

    And the MB of one such file. Reading, merging, storing and the commit; log in memory, a local folder.
    `helper`: merged in a helper process, as agents do, whose CPU time is counted too; else in a thread.
    """
    writer = ProcessWriter()
    options = CommitterOptions(files=FileSizes(merged_at=FILES, busy_percent_max=100))
    with tempfile.TemporaryDirectory() as folder:
        async with rigs.running(Path(folder, "rig"), options) as rig:
            await rig.create_topic(partitions=1)
            if flights:
                await rig.bind(samples.FLIGHTS, "nyc.Flight")
            parts = replace(rig.parts, writer=writer) if helper else rig.parts
            committer = Committer(parts, "t")
            await commits(rig, committer, values[:1])
            assert await committer.compact(), "what is done once only is not measured"
            before = await commits(rig, committer, values)
            start = cpu_s(writer)
            done = await committer.compact()
            used = cpu_s(writer) - start
            await writer.close()
            assert done is not None
            assert done.files == 1
            assert done.files_read >= FILES
    return used / (before / GB), before / FILES / MB


def cpu_s(writer: ProcessWriter) -> float:
    """CPU seconds of this process and its helper."""
    return time.process_time() + (cpu_seconds(writer.pid) if writer.pid is not None else 0)


async def commits(rig: rigs.Rig, committer: Committer, values: Sequence[bytes]) -> int:
    """FILES commits of these values; the table's bytes."""
    for _ in range(FILES):
        for start in range(0, len(values), BATCH_RECORDS):
            some = values[start : start + BATCH_RECORDS]
            records = [batch.NewRecord(1_700_000_000_000, b"key", value) for value in some]
            await rig.store_batch(batch.build(records))
        await rig.drain(committer)
    assert committer.head is not None
    return committer.head.size[1]


def costs(
    name: str, values: Sequence[bytes], *, flights: bool, goal: float | None, helper: bool = False
) -> Figure:
    """The median of some runs."""
    runs = [asyncio.run(compacted(values, flights=flights, helper=helper)) for _ in range(ROUNDS)]
    size = runs[0][1]
    unit = f"CPU-s/GB of files of {size:.2g} MB"
    value = statistics.median(cost for cost, _ in runs)
    return Figure(f"compaction of a table, {name}", value, unit, goal=goal, better="less")


def figures() -> Iterable[Figure]:
    """CPU seconds per GB of three kinds of files, and the files of one partition after a week."""
    pa.set_cpu_count(1)
    raw, many = raw_values(RAW_RECORDS), flight_values(FLIGHTS)
    for told, helper in (("", False), (", helper process", True)):
        yield costs(f"1 kB raw records{told}", raw, flights=False, goal=10, helper=helper)
        yield costs(f"flights{told}", many, flights=True, goal=10, helper=helper)
    yield costs(f"{FEW_FLIGHTS} flights a file", flight_values(FEW_FLIGHTS), flights=True, goal=None)
    for name, draw in (("1 row", _one), ("500 rows", _many)):
        most, factor = simulate(DAYS_7, draw, 100, HOUR)
        title = f"a week at a commit of {name} each 5 s"
        yield Figure(f"{title}, most files of a partition", most, "files", goal=200, better="less")
        yield Figure(f"{title}, a row is written anew", factor, "times", better="less")


def _one(_: random.Random) -> int:
    return 1


def _many(_: random.Random) -> int:
    return 500
