"""Latest tables as engines see them: their rows, their history, and what the catalog lets others do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.expressions import EqualTo

from coordination.commands import AlterTopicConfigs
from iceberg import maintenance
from iceberg.committer import CommitterOptions
from iceberg.latest_ids import latest_id
from iceberg.publish.plan import Rules, published
from iceberg.steps import Steps
from iceberg.upsert import history
from objectstore.store import NotFound
from tests.unit.iceberg import latest, serving
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.duck import connect
from tests.unit.iceberg.latest import UPSERT, Oracle
from tests.unit.iceberg.rig import Rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path, CommitterOptions(latest_file_bytes=400)) as found:
        yield found


async def with_table(rig: Rig) -> Oracle:
    """A topic whose latest table was written several times."""
    chance, oracle = random.Random(2), Oracle()
    await rig.create_topic(partitions=2, **UPSERT)
    for _ in range(4):
        await latest.random_batch(rig, chance, oracle, 2, keys=20)
        await latest.catch_up(rig)
    return oracle


async def test_pyiceberg_and_duckdb_read_the_newest_rows_and_those_of_before(rig: Rig) -> None:
    oracle = await with_table(rig)
    wanted = sorted((partition, key, *row) for (partition, key), row in oracle.newest.items())
    one = sorted(oracle.newest)[len(oracle.newest) // 2][1]

    def by_pyiceberg(url: str) -> None:
        table = serving.client(url).load_table("floe.t__latest")
        assert told(table.scan().to_arrow()) == wanted
        found = told(table.scan(row_filter=EqualTo("key.__raw__", one)).to_arrow())
        assert found == [each for each in wanted if each[1] == one], "bounds of keys hide nothing"
        first = table.metadata.snapshots[0]
        assert len(table.scan(snapshot_id=first.snapshot_id).to_arrow()) == int(
            first.summary["total-records"]
        )

    def by_duckdb(url: str) -> None:
        connection = connect("avro", "httpfs", "iceberg")
        connection.execute(
            f"ATTACH 'floe' AS lake (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')"
        )
        found = connection.execute(
            'SELECT kafka."partition", key.__raw__, kafka."offset", "value".__raw__ '
            "FROM lake.floe.t__latest ORDER BY 1, 2"
        ).fetchall()
        assert found == wanted

    async with serving.served(serving.catalog_of(rig)) as url:
        await asyncio.to_thread(by_pyiceberg, url)
        await asyncio.to_thread(by_duckdb, url)


def told(rows: pa.Table) -> list[tuple[int, bytes, int, bytes]]:
    """Partition, key, offset and value."""
    return sorted(
        (
            each["kafka"]["partition"],
            each["key"]["__raw__"],
            each["kafka"]["offset"],
            each["value"]["__raw__"],
        )
        for each in rows.to_pylist()
    )


async def test_others_set_properties_and_may_drop_it_and_nothing_else(rig: Rig) -> None:
    oracle = await with_table(rig)

    def refused(url: str) -> None:
        catalog = serving.client(url)
        table = catalog.load_table("floe.t__latest")
        with pytest.raises(ForbiddenError, match="written by Floe alone"):
            table.append(table.scan().to_arrow())
        with pytest.raises(ForbiddenError, match="written by Floe alone"):
            table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, "tag").commit()
        with pytest.raises(ForbiddenError, match=r"set its floe\.table\.name"):
            catalog.rename_table("floe.t__latest", "floe.mine")
        with pytest.raises(ForbiddenError, match="Floe's own"):
            table.transaction().set_properties({"floe.latest-of": ""}).commit_transaction()
        table.transaction().set_properties({"mine": "1"}).commit_transaction()

    def dropped(url: str) -> None:
        serving.client(url).drop_table("floe.t__latest")

    async with serving.served(serving.catalog_of(rig)) as url:
        await asyncio.to_thread(refused, url)
        oracle.take(0, await rig.produce([b"x"], keys=[b"x"]), [b"x"], [b"x"])
        await latest.catch_up(rig)
        await oracle.assert_is(rig)
        assert (await latest.head(rig)).metadata["properties"]["mine"] == "1"
        await asyncio.to_thread(dropped, url)
    await latest.catch_up(rig)
    await oracle.assert_is(rig)
    assert "mine" not in (await latest.head(rig)).metadata["properties"], "it was made anew, from all rows"


async def test_what_left_the_table_is_removed_once_no_snapshot_names_it(rig: Rig) -> None:
    oracle = await with_table(rig)
    before, head = await latest.live_locations(rig), await latest.head(rig)
    later_ms = rig.parts.clock.now_ms() + 9_000
    known = [each["manifest-list"] for each in head.metadata["snapshots"]]
    assert len(known) == 4
    await maintenance.collect(rig.store, rig.warehouse, head, later_ms, 0, Steps())
    assert all([await rig.store.get(rig.warehouse.key(each)) for each in known])
    change = AlterTopicConfigs.Change(
        name="floe.table.history.ms", operation=AlterTopicConfigs.Change.SET, value="0"
    )
    await rig.replica.propose(AlterTopicConfigs(topic="t", changes=[change]))
    for number in range(2):
        key = sorted(key for partition, key in oracle.newest if partition == 0)[0]
        value = b"%d" % number
        oracle.take(0, await rig.produce([value], keys=[key]), [key], [value])
        await latest.catch_up(rig)
    head = await latest.head(rig)
    assert [each["snapshot-id"] for each in head.metadata["snapshots"]] == [
        head.metadata["current-snapshot-id"]
    ]
    gone = before - await latest.live_locations(rig)
    assert gone
    await asyncio.sleep(0.01)  # files of before must be older than the head, by the store's clock
    await maintenance.collect(rig.store, rig.warehouse, head, later_ms + 9_000, 0, Steps())
    for each in gone:
        with pytest.raises(NotFound):
            await rig.store.get(rig.warehouse.key(each))
    await oracle.assert_is(rig)


async def test_other_catalogs_and_no_audit_get_it(rig: Rig) -> None:
    await with_table(rig)
    state = rig.replica.state
    key = state.tables_by_topic[latest_id(state.topics["t"].topic_id)]
    found = published(state, state.tables[key], Rules())
    assert found is not None
    assert (found.table, found.topic, found.wanted) == ("floe.t__latest", "t", True)
    await rig.delete_topic()
    found = published(rig.replica.state, state.tables[key], Rules())
    assert found is not None
    assert found.wanted is None, "that of a topic that is gone stays as it is"


def test_snapshots_are_kept_by_time_and_number_and_as_refs_name_them() -> None:
    snapshots = [{"snapshot-id": at, "timestamp-ms": at} for at in range(1, 501)]
    table = {
        "snapshots": snapshots,
        "refs": {"main": {"snapshot-id": 500}, "tag": {"snapshot-id": 3}},
        "current-snapshot-id": 500,
        "snapshot-log": snapshots,
    }

    def numbers(age_ms: int, now_ms: int) -> list[int]:
        found = history.kept(table, age_ms, now_ms)
        assert found["snapshots"] == found["snapshot-log"]
        return [each["snapshot-id"] for each in found["snapshots"]]

    assert numbers(1_000, 500) == [3, *range(301, 501)]
    assert numbers(10, 500) == [3, *range(490, 501)]
    assert numbers(0, 9_000) == [3, 500]
