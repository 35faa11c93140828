"""Other engines read a topic's table through the REST catalog: DuckDB and pyiceberg."""

import asyncio
from collections.abc import AsyncIterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from coordination.commands import MoveLogStart
from coordination.state.types import Done
from iceberg.committer import CommitterOptions
from iceberg.small_files import FileSizes
from tests.unit.iceberg import duck, serving
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig
from tests.unit.schema import samples

OLD = b'syntax = "proto3"; package p; message M { int32 a = 1; string b = 2; float gone = 3; }'
NEW = b'syntax = "proto3"; package p; message M { int64 renamed = 1; bytes b = 2; repeated string more = 4; }'


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


def in_duckdb(url: str, query: str) -> list[tuple[Any, ...]]:
    """Rows of a query over the attached catalog `lake`."""
    with duck.connect("avro", "httpfs", "iceberg") as connection:
        connection.execute(
            f"ATTACH 'floe' AS lake (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')"
        )
        rows: list[tuple[Any, ...]] = connection.execute(query).fetchall()
    return rows


async def test_duckdb_reads_a_topic(rig: Rig) -> None:
    await rig.create_topic()
    await rig.bind(samples.FLIGHTS, "nyc.Flight", tombstones=True)
    flight = samples.message_type(samples.FLIGHTS, "nyc.Flight").message_class
    committer = rig.committer()
    for start in (0, 100):
        for partition in (0, 1):
            values = [
                flight(year=2013, flight=number, dep_delay=0.5).SerializeToString()
                for number in range(start, start + 100)
            ]
            await rig.produce([*values, None], partition=partition)
        await rig.drain(committer)
    async with serving.served(serving.catalog_of(rig)) as url:
        totals = await asyncio.to_thread(
            in_duckdb,
            url,
            'SELECT kafka."partition", count(*), count(value), sum(value.flight), sum(value.dep_delay), '
            'max(kafka."offset") FROM lake.floe.t GROUP BY 1 ORDER BY 1',
        )
        one = await asyncio.to_thread(
            in_duckdb,
            url,
            'SELECT kafka."timestamp"::VARCHAR, key.__raw__, headers FROM lake.floe.t '
            'WHERE kafka."partition" = 1 AND kafka."offset" = 5',
        )
    assert totals == [(number, 202, 200, 19900, 100.0, 201) for number in (0, 1)]
    assert one[0][1:] == (b"k5", [{"key": "h", "value": b"5"}])


async def test_old_rows_stay_readable_after_the_message_changed(rig: Rig) -> None:
    await rig.create_topic()
    committer = rig.committer()
    await rig.bind(OLD, "p.M")
    old = samples.message_type(OLD, "p.M").message_class
    await rig.produce([old(a=1, b="text", gone=1.5).SerializeToString()])
    await rig.drain(committer)
    await rig.bind(NEW, "p.M")
    new = samples.message_type(NEW, "p.M").message_class
    await rig.produce([new(renamed=1 << 40, b=b"\xff", more=["x", "y"]).SerializeToString()])
    await rig.drain(committer)
    async with serving.served(serving.catalog_of(rig)) as url:

        def read() -> list[dict[str, Any]]:
            table = serving.client(url).load_table("floe.t").scan().to_arrow()
            return sorted(table.to_pylist(), key=lambda row: row["kafka"]["offset"])

        rows = [row["value"] for row in await asyncio.to_thread(read)]
    names = ("renamed", "b", "more", "b__16", "gone")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (1, None, None, "text", 1.5),
        (1 << 40, b"\xff", ["x", "y"], None, None),
    ]


@pytest.mark.parametrize(("retention", "left"), [("follow", [4, 5]), ("keep", [0, 1, 2, 3, 4, 5])])
async def test_readers_see_what_retention_leaves(rig: Rig, retention: str, left: list[int]) -> None:
    topic = await rig.create_topic(floe__table__retention=retention)
    committer = rig.committer()
    for number in range(3):
        await rig.produce([b"%d" % number] * 2)
        await rig.drain(committer)
    handle = topic.partitions[0].handle
    assert isinstance(await rig.replica.propose(MoveLogStart(partition=[handle], offset=[4])), Done)
    assert await committer.follow() == 6 - len(left)
    async with serving.served(serving.catalog_of(rig)) as url:

        def read() -> list[int]:
            table = serving.client(url).load_table("floe.t").scan().to_arrow()
            return sorted(row["kafka"]["offset"] for row in table.to_pylist())

        assert await asyncio.to_thread(read) == left
        query = 'SELECT kafka."offset" FROM lake.floe.t ORDER BY 1'
        assert await asyncio.to_thread(in_duckdb, url, query) == [(offset,) for offset in left]


async def test_readers_see_the_same_rows_of_small_files_and_of_large_ones(rig: Rig) -> None:
    rig.options = CommitterOptions(files=FileSizes(merged_at=3, busy_percent_max=100))
    await rig.create_topic()
    committer = rig.committer()
    for source, text in ((OLD, "old"), (NEW, b"\xff")):
        await rig.bind(source, "p.M", tombstones=True)
        message = samples.message_type(source, "p.M").message_class
        for _ in range(2):
            for partition in (0, 1):
                await rig.produce(
                    [message(b=text).SerializeToString(), None, b"\xff\xff"], partition=partition
                )
            await rig.drain(committer)
    columns = ", ".join(f"{name}::VARCHAR" for name in ("kafka", "key", "value", "headers"))
    query = f'SELECT {columns} FROM lake.floe.t ORDER BY kafka."partition", kafka."offset"'
    async with serving.served(serving.catalog_of(rig)) as url:

        def read() -> tuple[list[dict[str, Any]], int]:
            scan = serving.client(url).load_table("floe.t").scan()
            rows = scan.to_arrow().to_pylist()
            place = [(row["kafka"]["partition"], row["kafka"]["offset"]) for row in rows]
            rows = [row for _, row in sorted(zip(place, rows, strict=True), key=itemgetter(0))]
            return rows, len([*scan.plan_files()])

        before, small = await asyncio.to_thread(read)
        in_duck = await asyncio.to_thread(in_duckdb, url, query)
        assert await committer.compact()
        after, large = await asyncio.to_thread(read)
        assert (small, large) == (8, 2)
        assert after == before
        assert await asyncio.to_thread(in_duckdb, url, query) == in_duck
        assert len(after) == len(in_duck) == 24
