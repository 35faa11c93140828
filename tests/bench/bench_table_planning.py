"""Files that a query for one value of a decoded column reads, of a table of 10,000 files. Metadata only.

The bounds are those of real files of 20 rows each; the files themselves are not kept, and pyiceberg plans.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from pyiceberg.table import StaticTable

from iceberg import layout, ledger, manifests, metadata, writer
from iceberg.layout import Layout
from iceberg.manifests import AddedFile
from iceberg.snapshots import SnapshotBuilder
from iceberg.steps import Steps
from objectstore import batch
from schema.descriptors import load
from tests.bench.figure import Figure
from tests.unit.iceberg import rig as rigs
from tests.unit.schema import samples

FILES = 10_000
ROWS = 20
PER_SNAPSHOT = 1_000
ORDERS = (
    b'syntax = "proto3"; package shop; message Order { int64 number = 1; int64 user = 2; string page = 3; }'
)


def files(table: Layout, location: str) -> Iterable[AddedFile]:
    """Data files as a committer makes them: numbers ascend, users are drawn."""
    draw = random.Random(7)
    kind = load(samples.descriptor_set(ORDERS), "shop.Order").message_class
    for number in range(FILES):
        start = number * ROWS
        orders = (kind(number=start + at, user=draw.randrange(10**9), page="/") for at in range(ROWS))
        records = [batch.NewRecord(start, None, each.SerializeToString()) for each in orders]
        content = memoryview(batch.build(records, base_offset=start))
        made = writer.write_file(table, 0, [content], start, start + ROWS)
        assert made is not None
        yield manifests.added_file(f"{location}/data/{number}.parquet", made)


async def table_of(folder: Path) -> str:
    """Where the metadata is of a table with so many files."""
    async with rigs.running(folder) as rig:
        topic = await rig.create_topic(partitions=1)
        await rig.bind(ORDERS, "shop.Order")
        committer = rig.committer()
        await committer.run_once()
        head = await rig.head()
        bound = next(iter(rig.replica.state.schemas.values()))
        table = layout.build(None, bound)
        builder = SnapshotBuilder(rig.store, rig.warehouse, Steps())
        added = [*files(table, head.metadata["location"])]
        for first in range(0, FILES, PER_SNAPSHOT):
            some = added[first : first + PER_SNAPSHOT]
            ends = [(first + len(some)) * ROWS]
            summary = ledger.summary(topic.topic_id, ends, (), "bench")
            head = await builder.append(head.metadata, head.manifests, some, 1 + first, summary, 0)
        location = f"{head.metadata['location']}/metadata/bench.metadata.json"
        await rig.store.put(rig.warehouse.key(location), [metadata.encode(head.metadata)])
        return location


def figures() -> Iterable[Figure]:
    """Share of files read by a column that ascends and by one that is drawn, and what planning takes."""
    with tempfile.TemporaryDirectory() as folder:
        table = StaticTable.from_metadata(asyncio.run(table_of(Path(folder))))
        for column, value, goal in (("number", FILES * ROWS // 2, 1.0), ("user", 5 * 10**8, None)):
            begun = time.perf_counter()
            read = sum(1 for _ in table.scan(row_filter=f"value.{column} = {value}").plan_files())
            took = time.perf_counter() - begun
            how = "that ascends" if goal else "that is drawn at random"
            title = f"one value of a decoded column {how}, of {FILES:,} files"
            yield Figure(f"{title}: read", 100 * read / FILES, "%", goal=goal, better="less")
            yield Figure(f"{title}: planned by pyiceberg in", took, "s", better="less")
