"""What a table says of itself: each damage to manifests, ledger and kept snapshots is found by its kind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyspark.sql import DataFrame, SparkSession

from iceberg import history, manifests
from iceberg.evolution import OFFSET_ID, PARTITION_ID, TIMESTAMP_ID
from iceberg.manifests import AddedFile
from iceberg.metadata import Metadata
from iceberg.spark.columns import TableColumns
from iceberg.spark.given import AuditInput
from iceberg.spark.one_pass import may_be_one, one_pass
from iceberg.spark.schemas import TopicSchemas
from iceberg.spark.seen import LOOKED_AT, Earlier
from iceberg.spark.shelf import (
    NEXT,
    RANGES,
    TOPIC_ID,
    Passed,
    ledger_problems,
    rows_of,
    shelf,
    shelved,
)
from iceberg.spark.tables import Pinned, pinned
from iceberg.spark.verdict import FILE, LEDGER, SNAPSHOT, Finding
from iceberg.writer import Bounds
from tests.equipment.thorough import asked, one_in
from tests.spark.catalogs import expect_little, keep_below
from tests.unit.iceberg import rig as rigs

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]  # its fixture: audits of many tables

HIGHS = {("t", 0): 6, ("t", 1): 2}
SIDE_BY_SIDE = 3
Change = Callable[[Metadata], object]
Damaged = Callable[[AddedFile], AddedFile]


@dataclass(frozen=True)
class Shelf:
    """A damage: to the table's metadata, or to what its newest manifest says of its file."""

    name: str
    kinds: set[str]
    text: str
    metadata: Change | None = None
    file: Damaged | None = None


def _summary(at: int, **values: str | None) -> Change:
    """Other values in the summary of a snapshot."""

    def change(metadata: Metadata) -> None:
        summary = metadata["snapshots"][at]["summary"]
        for name, value in values.items():
            key = name.replace("__", ".").replace("_", "-")
            if value is None:
                del summary[key]
            else:
                summary[key] = value

    return change


def _bound(end: str, column: int, by: int) -> Damaged:
    """A bound of the newest file is another."""

    def change(file: AddedFile) -> AddedFile:
        old = file.bounds[column]
        new = replace(old, **{end: getattr(old, end) + by})
        return replace(file, bounds={**file.bounds, column: new})

    return change


def _a_row_more(file: AddedFile) -> AddedFile:
    return replace(file, rows=file.rows + 1)


def _a_row_lost(file: AddedFile) -> AddedFile:
    """The file itself lacks its last row, under another name so that other damages have theirs."""
    path = Path(urlsplit(file.location).path)
    table = pq.read_table(path)
    other = path.with_name("lacking.parquet")
    pq.write_table(table.slice(0, len(table) - 1), other)
    return replace(file, location=f"file://{other}", size=other.stat().st_size, split_offsets=[4])


def _lists_exchanged(metadata: Metadata) -> None:
    first, second = metadata["snapshots"][1:3]
    first["manifest-list"], second["manifest-list"] = second["manifest-list"], first["manifest-list"]


SOUND = "nothing"
SHELVES = [
    Shelf(SOUND, set(), ""),
    Shelf("a ledger behind its rows", {LEDGER}, "there are rows up to 5",
          _summary(3, floe__next_offsets="5,2")),
    Shelf("no ledger", {LEDGER}, "has no ledger", _summary(3, floe__next_offsets=None)),
    Shelf("rows that an old snapshot did not add", {SNAPSHOT}, "says added-records 9, its manifests add 2",
          _summary(1, added_records="9")),
    Shelf("files that an old snapshot did not add", {SNAPSHOT}, "says added-data-files 4",
          _summary(2, added_data_files="4")),
    Shelf("an old snapshot's total", {SNAPSHOT}, "says total-records 7, with its parent's it is 6",
          _summary(2, total_records="7")),
    Shelf("the current snapshot's total", {SNAPSHOT}, "says total-data-files 9, it has 4",
          _summary(3, total_data_files="9")),
    Shelf("ranges that its files are not in", {SNAPSHOT}, "is outside the ranges",
          _summary(2, floe__ranges="1:1-2")),
    Shelf("ranges that another snapshot has", {SNAPSHOT}, "an earlier one up to 4",
          _summary(2, floe__ranges="0:3-4,1:0-2")),
    Shelf("the manifests of another snapshot", {SNAPSHOT}, "its manifest list names", _lists_exchanged),
    Shelf("a count of rows", {FILE, SNAPSHOT}, "the manifest says 3 rows, it has 2", file=_a_row_more),
    Shelf("a row lost in the file", {FILE}, "the manifest says 2 rows, it has 1", file=_a_row_lost),
    Shelf("a lowest offset", {FILE}, "lowest kafka.offset is 5, it is 4", file=_bound("lower", OFFSET_ID, 1)),
    Shelf("a highest offset", {FILE}, "highest kafka.offset is 4, it is 5",
          file=_bound("upper", OFFSET_ID, -1)),
    Shelf("bounds that are too wide", {FILE, SNAPSHOT}, "highest kafka.offset is 105, it is 5",
          file=_bound("upper", OFFSET_ID, 100)),
    Shelf("a partition", {FILE, SNAPSHOT}, "lowest kafka.partition is -1, it is 0",
          file=_bound("lower", PARTITION_ID, -1)),
    Shelf("a timestamp", {FILE}, "highest kafka.timestamp", file=_bound("upper", TIMESTAMP_ID, -1)),
]  # fmt: skip


@dataclass(frozen=True)
class Made:
    """A table of four snapshots as Floe's committer makes it; `manifests` are the newest one's."""

    metadata: Metadata
    manifests: list[ManifestFile]
    newest: bytes


async def make(folder: Path) -> Made:
    async with rigs.running(folder) as rig:
        await rig.create_topic()
        committer = rig.committer()
        for partition in (0, 0, 1, 0):
            await rig.produce([b"a", b"b"], partition=partition)
            await rig.drain(committer)
        head = await rig.head()
        newest = await rig.store.get(rig.warehouse.key(head.manifests[0].manifest_path))
        return Made(history.composed(head.metadata, []), list(head.manifests), newest)


def _damaged(made: Made, damage: Shelf, folder: Path) -> Metadata:
    """The table's metadata with the damage, and what that stands on in `folder`."""
    metadata = deepcopy(made.metadata)
    if damage.metadata is not None:
        damage.metadata(metadata)
    if damage.file is not None:
        current = metadata["snapshots"][-1]
        (entry,) = manifests.entries(made.manifests[0], made.newest)
        file = damage.file(_added(entry))
        number = current["snapshot-id"]
        written = manifests.write_added(
            f"file://{folder}/m.avro", manifests.form(metadata, 0), number, [file]
        )
        _put(written.manifest.manifest_path, written.content)
        current["manifest-list"], content, _ = manifests.write_list(
            f"file://{folder}/snap.avro", number, current["parent-snapshot-id"], current["sequence-number"],
            [written.manifest, *made.manifests[1:]],
        )  # fmt: skip
        _put(current["manifest-list"], content)
    return metadata


def _added(entry: ManifestEntry) -> AddedFile:
    of = entry.data_file
    bounds = {
        number: Bounds(
            *(
                int.from_bytes(each[number], "little", signed=True)
                for each in (of.lower_bounds, of.upper_bounds)
            )
        )
        for number in (PARTITION_ID, OFFSET_ID, TIMESTAMP_ID)
    }
    return AddedFile(of.file_path, of.file_size_in_bytes, of.record_count, bounds, of.split_offsets or [])


def in_one_pass(spark: SparkSession, of: Pinned, **known: Any) -> list[Finding]:
    """The same where the rows are read once for all that an audit asks of them."""
    given = AuditInput(tables={"t": of.table}, consumed=_nothing, schemas={"t": TopicSchemas()}, ends=HIGHS)
    given = replace(given, **known)
    assert may_be_one(given, of, HIGHS)
    earlier = given.earlier("t")
    on = shelved(spark, of, earlier)
    passed = Passed(on, one_pass(spark, of, on, given, HIGHS))
    return shelf(spark, of, HIGHS, earlier, HIGHS, passed=passed)


def _nothing(spark: SparkSession, *_: object) -> DataFrame:
    return spark.range(0)


def _lines(found: list[Finding]) -> list[str]:
    return sorted(map(str, found))


def _put(location: str, content: bytes) -> None:
    Path(urlsplit(location).path).write_bytes(content)


@pytest.fixture(scope="module")
def found(
    request: pytest.FixtureRequest, jvm: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Finding]]:
    """What is found of each damage that is asked for, all in one session; of none in any case."""
    names = {SOUND} | {damage.name for damage in asked(request, "damage")}
    wanted = [at for at, each in enumerate(SHELVES) if each.name in names]
    folder = tmp_path_factory.mktemp("shelves")
    spark = jvm.newSession()
    keep_below(spark, "shelves", folder / "warehouse")
    expect_little(spark)
    made = asyncio.run(make(folder))
    sound: Future[DataFrame] = Future()

    def judged(at: int) -> list[Finding]:
        where = folder / "warehouse" / "db" / f"t{at}" / "metadata"
        where.mkdir(parents=True)
        (where / "v1.metadata.json").write_text(json.dumps(_damaged(made, SHELVES[at], where)))
        (where / "version-hint.text").write_text("1")
        of = pinned(spark, "t", f"shelves.db.t{at}")
        saw: dict[str, DataFrame] = {}
        told = shelf(spark, of, HIGHS, ends=HIGHS, tell=saw.__setitem__)
        if SHELVES[at].file is not None:
            since_then = shelf(spark, of, HIGHS, Earlier(HIGHS, sound.result()))
            by_one = in_one_pass(spark, of, since=HIGHS, seen={"t": sound.result()})
            assert _lines(by_one) == _lines(since_then)
            assert {each.kind for each in since_then} == {each.kind for each in told}, since_then
            as_before = shelf(spark, of, HIGHS, Earlier(HIGHS, saw["t"]))
            assert not [each for each in as_before if each.kind == FILE], "files are not read again"
        if SHELVES[at].name == SOUND:
            assert _lines(in_one_pass(spark, of)) == _lines(told)
            sound.set_result(saw["t"])
        return told

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return {SHELVES[at].name: told for at, told in zip(wanted, pool.map(judged, wanted), strict=True)}


@pytest.mark.parametrize("damage", one_in(5, SHELVES), ids=lambda damage: damage.name)
def test_each_damage_is_found_by_its_kind_and_tells_what_it_is(
    found: dict[str, list[Finding]], damage: Shelf
) -> None:
    told = found[damage.name]
    assert {each.kind for each in told} == damage.kinds, [str(each) for each in told]
    assert not damage.kinds or any(damage.text in each.detail for each in told), [str(each) for each in told]


def test_rows_of_new_files_alone_are_read(jvm: SparkSession) -> None:
    """Each partition's files may lie in several places, with what was looked at before in between."""
    new = {(0, 0, 1), (0, 4, 5), (0, 6, 6), (2, 9, 9)}
    before = {(0, 2, 3), (1, 0, 9), (2, 0, 8)}
    files = [(place in new, place[0], place[0], *place[1:]) for place in new | before]
    ends = ", ".join(f"told_{name}_{end} long" for name in ("partition", "offset") for end in ("low", "high"))
    told = jvm.createDataFrame(files, f"{LOOKED_AT} boolean, {ends}")
    places = [(partition, offset) for partition in range(4) for offset in range(10)]
    rows = jvm.createDataFrame([(each,) for each in places], "kafka struct<partition: int, offset: long>")
    read = {tuple(row["kafka"]) for row in rows.where(rows_of(told)).collect()}
    assert read == {(partition, at) for partition, low, high in new for at in range(low, high + 1)}


LEDGERS: dict[str, tuple[dict[str, str], dict[int | None, int | None], str]] = {
    "of another topic": ({TOPIC_ID: "ff"}, {}, "of topic ff, the table of 11"),
    "no numbers": ({NEXT: "6,x"}, {}, "no list of numbers"),
    "ranges that are none": ({RANGES: "0:4"}, {}, "no list of numbers"),
    "behind its rows": ({}, {0: 7}, "the ledger says 6, there are rows up to 6"),
    "of a partition too few": (
        {NEXT: "6", RANGES: ""},
        {0: 6, 1: 2},
        "the ledger says 0, there are rows up to 1",
    ),
    "beyond the topic": ({NEXT: "6,3"}, {}, "the ledger says 3, the partition ends at 2"),
    "of a partition too many": ({NEXT: "6,2,1"}, {}, "the ledger says 1, the partition ends at 0"),
    "beyond what was added": ({RANGES: "0:4-5"}, {}, "the ledger says 6, what the snapshot added ends at 5"),
}


@pytest.mark.parametrize("name", LEDGERS)
def test_a_wrong_ledger_is_told(name: str) -> None:
    summary, held, text = LEDGERS[name]
    sound = Pinned(
        "t", "t", TableColumns("[]", ""), 1, {TOPIC_ID: "11"}, {TOPIC_ID: "11", NEXT: "6,2", RANGES: "0:4-6"}
    )
    assert list(ledger_problems(sound, {0: 6, 1: 2, None: None}, HIGHS)) == []
    (problem,) = ledger_problems(replace(sound, summary={**sound.summary, **summary}), held, HIGHS)
    assert text in problem[2]
