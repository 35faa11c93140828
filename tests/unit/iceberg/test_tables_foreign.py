"""Another engine's rewrite of a topic's table: taken over where it has the same rows, refused where not."""

from __future__ import annotations

import io
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg import ledger, maintenance, manifest_avro, manifests
from iceberg.evolution import OFFSET_ID, PARTITION_ID
from iceberg.head import Head
from iceberg.manifests import AddedFile
from iceberg.small_files import FileSizes
from iceberg.writer import Bounds
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig

PATH = "/v1/namespaces/floe/tables/t"
NUMBER = 4711


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent whose table has three files of two rows in each of two partitions."""
    async with rigs.running(tmp_path) as found:
        await found.create_topic(partitions=2)
        committer = found.committer()
        for number in range(3):
            for partition in (0, 1):
                await found.produce([b"%d" % number, None], partition=partition)
            await found.drain(committer)
        yield found


@dataclass
class Rewrite:
    """What an engine makes of a table's files: one file of those of partition 0."""

    rig: Rig
    head: Head
    rows: pa.Table
    bounds: dict[int, Bounds]
    gone: list[str]
    parent: int
    number: int = NUMBER
    order_id: int = 0
    row_id: int | None = None
    """From which on the engine numbers rows, of a table of format version 3."""

    async def commit(self, operation: str = "replace") -> tuple[int, Any]:
        """Store it and ask the catalog to make it the table; its answer."""
        location = f"{self.head.metadata['location']}/data/00000-7-{uuid.uuid4()}-0-00001.parquet"
        sink = io.BytesIO()
        pq.write_table(self.rows, sink)
        await self.put(location, sink.getvalue())
        made = AddedFile(location, sink.tell(), len(self.rows), self.bounds, [4], order_id=self.order_id)
        listed = await self.listed([made] if self.gone else [])
        snapshot = {
            "snapshot-id": self.number,
            "parent-snapshot-id": self.parent,
            "sequence-number": self.head.metadata["last-sequence-number"] + 1,
            "timestamp-ms": self.head.metadata["last-updated-ms"],
            "manifest-list": listed,
            "schema-id": self.head.metadata["current-schema-id"],
            "summary": {"operation": operation, "engine-name": "spark", "total-records": "1"},
        }
        updates = [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": self.number},
        ]
        current = self.head.metadata["current-snapshot-id"]
        requirements = [
            {"type": "assert-table-uuid", "uuid": self.head.metadata["table-uuid"]},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": current},
        ]
        body = {"updates": updates, "requirements": requirements}
        return await serving.ask(serving.catalog_of(self.rig), "POST", PATH, body)

    async def listed(self, made: Sequence[AddedFile]) -> str:
        """Where the engine's manifest list is: its file, and all that stays."""
        form = manifests.form(self.head.metadata, 0)
        prefix = f"{self.head.metadata['location']}/metadata/{uuid.uuid4()}"
        contents = {
            each.manifest_path: await self.rig.store.get(self.rig.warehouse.key(each.manifest_path))
            for each in self.head.manifests
        }
        rest, _ = manifests.write_replaced(
            f"{prefix}-m1.avro", form, NUMBER, self.head.manifests, contents, set(self.gone)
        )
        written = [rest]
        if made:
            written.append(manifests.write_added(f"{prefix}-m0.avro", form, NUMBER, made))
        for each in written:
            await self.put(each.manifest.manifest_path, each.content)
        number = self.head.metadata["last-sequence-number"] + 1
        location, content, _ = manifests.write_list(
            f"{prefix}-snap.avro",
            NUMBER,
            self.parent,
            number,
            [each.manifest for each in written],
            self.row_id,
        )
        await self.put(location, content)
        return location

    async def put(self, location: str, content: bytes) -> None:
        """Store a file."""
        await self.rig.store.put(self.rig.warehouse.key(location), [content])


async def rewrite(rig: Rig, partitions: Sequence[int] = (0,)) -> Rewrite:
    """All rows of these partitions in one file."""
    head = await rig.head()
    gone, rows = [], []
    for manifest in head.manifests:
        content = await rig.store.get(rig.warehouse.key(manifest.manifest_path))
        for file in sorted(manifests.live_files(manifest, content)):
            if file.partition in partitions:
                gone.append(file.location)
                rows.append(pq.read_table(io.BytesIO(await rig.store.get(rig.warehouse.key(file.location)))))
    table = pa.concat_tables(rows)
    order = [(row["partition"], row["offset"]) for row in table.column("kafka").to_pylist()]
    table = table.take(sorted(range(len(order)), key=order.__getitem__))
    bounds = {PARTITION_ID: Bounds(partitions[0], partitions[-1]), OFFSET_ID: Bounds(0, 5)}
    return Rewrite(rig, head, table, bounds, gone, head.metadata["current-snapshot-id"])


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["kafka"]["partition"], row["kafka"]["offset"]))


async def test_a_rewrite_with_the_same_rows_is_taken_over(rig: Rig) -> None:
    before = await rig.rows()
    given = await rewrite(rig)
    status, answer = await given.commit()
    assert status == 200, answer
    head = await rig.head()
    assert head.metadata["current-snapshot-id"] == NUMBER, "engines look for their own snapshot"
    summary = head.metadata["snapshots"][-1]["summary"]
    assert (summary["operation"], summary["total-records"], summary["total-data-files"]) == (
        "replace",
        "12",
        "4",
    )
    assert summary[ledger.BY] == "spark"
    assert ordered(await rig.rows()) == ordered(before)
    committer = rig.committer()
    await rig.produce([b"later"])
    assert await rig.drain(committer) == 1
    assert len(await rig.rows()) == 13


async def test_manifests_alone_may_be_rewritten(rig: Rig) -> None:
    before = await rig.rows()
    assert len((await rig.head()).manifests) == 3
    status, answer = await replace(await rewrite(rig), gone=[]).commit()
    assert status == 200, answer
    head = await rig.head()
    assert (len(head.manifests), head.metadata["current-snapshot-id"]) == (1, NUMBER)
    assert ordered(await rig.rows()) == ordered(before)
    await rig.produce([b"later"])
    assert await rig.drain(rig.committer()) == 1


async def test_files_of_an_engine_stay_while_a_kept_snapshot_has_them(rig: Rig) -> None:
    """Their names do not say for which snapshot they were made, which files of the committer's do."""
    given = await rewrite(rig)
    assert (await given.commit())[0] == 200
    rig.options = replace(rig.options, files=FileSizes(merged_at=2, busy_percent_max=100))
    committer = rig.committer()
    await rig.produce([b"%d" % number for number in range(9)])
    await rig.drain(committer)
    head = await rig.head()
    theirs = [each["manifest-list"] for each in head.metadata["snapshots"] if each["snapshot-id"] == NUMBER]
    listed = manifest_avro.read_list(theirs[0], await rig.store.get(rig.warehouse.key(theirs[0])))
    files = set()
    for manifest in listed:
        content = await rig.store.get(rig.warehouse.key(manifest.manifest_path))
        files |= {each for each in manifests.data_files(manifest, content) if "/00000-7-" in each}
    assert len(files) == 1
    assert await committer.compact()
    head = await rig.head()
    live = set()
    for manifest in head.manifests:
        content = await rig.store.get(rig.warehouse.key(manifest.manifest_path))
        live |= set(manifests.data_files(manifest, content))
    assert not files & live, "else it is reached by the current snapshot"
    reached = await maintenance.reachable(rig.store, rig.warehouse, head)
    assert all(rig.warehouse.key(each) in reached for each in files)


def a_row_lost(given: Rewrite) -> Rewrite:
    return replace(given, rows=given.rows.slice(0, 5), bounds={**given.bounds, OFFSET_ID: Bounds(0, 4)})


def a_row_twice(given: Rewrite) -> Rewrite:
    return replace(given, rows=pa.concat_tables([given.rows.slice(0, 5), given.rows.slice(4, 1)]))


def rows_moved(given: Rewrite) -> Rewrite:
    return replace(given, rows=given.rows.take([1, 0, 2, 3, 4, 5]))


def rows_moved_inside(given: Rewrite) -> Rewrite:
    return replace(given, rows=given.rows.take([0, 2, 1, 3, 4, 5]))


def rows_of_a_file_that_stays(given: Rewrite) -> Rewrite:
    return replace(given, rows=given.rows.take([0, 1, 4, 5]), gone=given.gone[:2])


def bounds_too_wide(given: Rewrite) -> Rewrite:
    return replace(given, bounds={**given.bounds, OFFSET_ID: Bounds(0, 6)})


def nowhere(given: Rewrite) -> Rewrite:
    kafka = given.rows.column("kafka").combine_chunks()
    partitions = pa.array([None, *kafka.field("partition").to_pylist()[1:]], pa.int32())
    children = [partitions, *(kafka.field(at) for at in range(1, kafka.type.num_fields))]
    kind = [each.with_nullable(True) for each in kafka.type]
    found = pa.StructArray.from_arrays(children, fields=kind)
    place = given.rows.schema.get_field_index("kafka")
    field = given.rows.schema.field(place).with_type(found.type)
    return replace(given, rows=given.rows.set_column(place, field, found))


def a_column_lost(given: Rewrite) -> Rewrite:
    return replace(given, rows=given.rows.drop_columns(["value"]))


def one_file_kept(given: Rewrite) -> Rewrite:
    return replace(given, gone=given.gone[1:])


@pytest.mark.parametrize(
    ("damaged", "says"),
    [
        (a_row_lost, "6 rows would go and 5 come"),
        (a_row_twice, "offsets are not those of its bounds|do not ascend"),
        (rows_moved, "not those of its bounds|do not ascend"),
        (rows_moved_inside, "do not ascend"),
        (rows_of_a_file_that_stays, "hold other offsets than those that go"),
        (bounds_too_wide, "not those of its bounds"),
        (nowhere, "rows without a partition or an offset"),
        (a_column_lost, "lacks columns of files that go: field ids"),
        (one_file_kept, "4 rows would go and 6 come"),
    ],
)
async def test_other_rows_are_refused_and_nothing_changes(
    rig: Rig, damaged: Callable[[Rewrite], Rewrite], says: str
) -> None:
    before = (await rig.head()).location
    status, answer = await damaged(await rewrite(rig)).commit()
    assert status == 403
    assert any(each in answer["error"]["message"] for each in says.split("|")), answer
    assert (await rig.head()).location == before


async def test_a_file_of_several_partitions_is_refused_with_what_to_do(rig: Rig) -> None:
    status, answer = await (await rewrite(rig, (0, 1))).commit()
    assert status == 403
    assert "where => 'kafka.partition = 0'" in answer["error"]["message"]


@pytest.mark.parametrize("number", [0, -1, 1 << 63])
async def test_a_snapshots_id_has_bounds(rig: Rig, number: int) -> None:
    before = (await rig.head()).location
    status, answer = await replace(await rewrite(rig), number=number).commit()
    assert (status, "snapshot-id" in answer["error"]["message"]) == (403, True)
    assert (await rig.head()).location == before


async def test_a_snapshots_id_is_new(rig: Rig) -> None:
    given = await rewrite(rig)
    status, answer = await replace(given, number=given.head.metadata["snapshots"][0]["snapshot-id"]).commit()
    assert (status, "has such a snapshot already" in answer["error"]["message"]) == (400, True)


@pytest.mark.parametrize("operation", ["append", "overwrite", "delete"])
async def test_what_is_no_replacement_is_refused(rig: Rig, operation: str) -> None:
    status, answer = await (await rewrite(rig)).commit(operation)
    assert status == 403
    assert "belongs into the topic" in answer["error"]["message"]


async def test_a_rewrite_of_a_table_that_moved_on_is_refused_as_stale(rig: Rig) -> None:
    given = await rewrite(rig)
    await rig.produce([b"meanwhile"])
    await rig.drain(rig.committer())
    status, answer = await given.commit()
    assert (status, answer["error"]["type"]) == (409, "CommitFailedException")
    status, answer = await replace(await rewrite(rig), parent=1).commit()
    assert (status, "the snapshot's parent" in answer["error"]["message"]) == (409, True)
    assert len(await rig.rows()) == 13
