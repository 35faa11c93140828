"""What one commit of a table stores beside its rows: objects and bytes, after many commits."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.bench.figure import Figure
from tests.unit.iceberg.metadata_cost import Spent, busy

COMMITS = 250
MEASURED = 64  # four compactions of a partition, and as many moves of snapshots into segments
TABLES = ((1, 0), (16, 0), (100, 0), (1, 100), (16, 100))


async def spent(partitions: int, columns: int) -> Spent:
    """The commits behind the first COMMITS, compactions between them included; log and store in memory."""
    with tempfile.TemporaryDirectory() as folder:
        async with busy(Path(folder), partitions, columns) as table:
            await table.commits(COMMITS)
            return await table.commits(MEASURED)


def figures() -> Iterable[Figure]:
    """By partitions and columns of the message; each partition gets a file with each commit."""
    for partitions, columns in TABLES:
        found = asyncio.run(spent(partitions, columns))
        title = f"metadata of a commit after {COMMITS}, {partitions} partitions, {columns} columns"
        yield Figure(f"{title}: bytes", found.bytes_per_commit / 1e3, "kB", better="less")
        yield Figure(f"{title}: objects", found.objects_per_commit, "PUTs", better="less")
