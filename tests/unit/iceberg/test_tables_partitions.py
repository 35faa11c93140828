"""Tables that are partitioned: each row stands under its own values, whatever the spec was and becomes.

The judge of values is pyiceberg, by its own transforms and by queries with and without a filter; Spark is in
tests/spark/test_partitions.py.
"""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.transforms import parse_transform
from pyiceberg.types import TimestamptzType

from coordination.commands import AlterTopicConfigs
from coordination.state.types import Done
from coordination.table_partition import PATTERN, parse
from iceberg import committer as committing
from iceberg import manifests, partitioning, transforms
from iceberg.committer import Committer, CommitterOptions
from iceberg.metadata import current_schema
from iceberg.small_files import FileSizes
from schema.descriptors import load
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_tables_retention import move
from tests.unit.schema import samples

VIEWS = b"""
syntax = "proto3";
package p;
message Deep { optional bool seen = 1; double real = 2; }
message View { int64 user = 1; optional string page = 2; Deep deep = 3; repeated string tags = 4; }
"""
FIRST = "bucket(4, value.user), truncate(1, value.page), day(kafka.timestamp)"
SECOND = "value.deep.seen"
EAGER = CommitterOptions(files=FileSizes(merged_at=4, busy_percent_max=100))
MICROS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
"""All times that Python's calendar has."""


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent that merges each four files."""
    async with rigs.running(tmp_path, EAGER) as found:
        yield found


@settings(deadline=None)
@given(st.lists(st.none() | MICROS, min_size=1))
def test_times_are_those_of_pyiceberg(micros: list[int | None]) -> None:
    column = pa.array(micros, pa.timestamp("us", tz="UTC"))
    for name in ("year", "month", "day", "hour"):
        judge = parse_transform(name).transform(TimestamptzType())
        assert transforms.applied(name, column) == [None if each is None else judge(each) for each in micros]


def test_values_are_those_of_the_specification() -> None:
    most = 1 << 30  # of so many buckets nearly the hash itself is seen
    micros = 1_510_871_468_000_000  # 2017-11-16T14:31:08-08:00, of its appendix B
    for value, kind, hashed in (
        (34, pa.int32(), 2_017_239_379), (34, pa.int64(), 2_017_239_379),
        ("iceberg", pa.string(), 1_210_000_089),
        (b"\x00\x01\x02\x03", pa.binary(), -188_683_207),
        (micros, pa.timestamp("us", tz="UTC"), -2_047_944_441),
    ):  # fmt: skip
        (found,) = transforms.applied(f"bucket[{most}]", pa.array([value], kind))
        assert found == (hashed & 0x7FFFFFFF) % most
    assert transforms.applied("truncate[10]", pa.array([1, -1, None])) == [0, -10, None]
    assert transforms.applied("truncate[3]", pa.array(["iceberg", "üü\U0001f600x", ""])) == [
        "ice",
        "üü\U0001f600",
        "",
    ]
    assert transforms.applied("truncate[2]", pa.array([b"abc"])) == [b"ab"]


def test_times_beyond_the_calendar_have_values() -> None:
    far = pa.array([(1 << 63) - 1, -(1 << 63)], pa.int64()).view(pa.timestamp("us", tz="UTC"))
    assert transforms.applied("day", far) == [106_751_991, -106_751_992]
    assert transforms.applied("year", far) == [292_277, -292_278]
    assert max(map(abs, transforms.applied("hour", far))) < 1 << 31


async def test_the_lowest_numbers_have_values(rig: Rig) -> None:
    """Truncated they are lower than there are numbers; no commit may fail for that."""
    assert transforms.applied("truncate[10]", pa.array([-(1 << 31), None], pa.int32())) == [
        (1 << 31) - 2,
        None,
    ]
    assert transforms.applied("truncate[10]", pa.array([-(1 << 63)])) == [(1 << 63) - 2]
    await rig.create_topic(floe__table__partition="truncate(10, value.user)")
    await rig.bind(VIEWS, "p.View")
    lowest: Any = load(samples.descriptor_set(VIEWS), "p.View").message_class(user=-(1 << 63))
    await rig.produce([lowest.SerializeToString()])
    assert await rig.drain(rig.committer()) == 1


def test_terms_are_read_as_they_are_written() -> None:
    text = " day( kafka.timestamp ),bucket(16,value.user) , value.page,value.page, identity(key.id) "
    assert PATTERN.fullmatch(text)
    assert [(each.transform, each.column) for each in parse(text)] == [
        ("day", "kafka.timestamp"),
        ("bucket[16]", "value.user"),
        ("identity", "value.page"),
        ("identity", "key.id"),
    ]


def view(draw: random.Random) -> bytes | None:
    """A message, a tombstone, or bytes that are none."""
    made: Any = load(samples.descriptor_set(VIEWS), "p.View").message_class(user=draw.randrange(6))
    if draw.random() < 0.2:
        return draw.choice([None, b"\xff"])
    if draw.random() < 0.8:
        made.page = draw.choice(["abc", "ab", "ü", ""])
    if draw.random() < 0.5:
        made.deep.seen = draw.random() < 0.5
    made.tags.append("x")
    return bytes(made.SerializeToString())


class Writing:
    """Writes and commits records, and knows what the table should hold."""

    def __init__(self, rig: Rig, committer: Committer) -> None:
        self.rig = rig
        self.committer = committer
        self.expected: dict[int, list[bytes | None]] = {0: [], 1: []}
        self._draw = random.Random(1)

    async def commits(self, count: int, rows: int = 12) -> None:
        """So many commits of so many rows in each of two partitions."""
        for _ in range(count):
            for partition, known in self.expected.items():
                values = [view(self._draw) for _ in range(rows)]
                known += values
                await self.rig.produce(values, partition=partition)
            await self.rig.drain(self.committer)

    async def assert_sound(self) -> None:
        """Each record is there once, and under its own values."""
        await self.rig.assert_table_is_topic(self.expected)
        assert await misplaced(self.rig) == []
        await assert_queries(self.rig)


async def partition(rig: Rig, text: str) -> None:
    """Give the topic another `floe.table.partition`."""
    await configure(rig, "floe.table.partition", text)


async def configure(rig: Rig, name: str, value: str) -> None:
    """Give the topic another value of a config."""
    change = AlterTopicConfigs.Change(name=name, value=value)
    assert isinstance(await rig.replica.propose(AlterTopicConfigs(topic="t", changes=[change])), Done)


async def misplaced(rig: Rig) -> list[object]:
    """Rows of files that have other values under the file's spec than the file, by pyiceberg's transforms."""
    head = await rig.head()
    schema = Schema.model_validate(current_schema(head.metadata))
    found: list[object] = []
    for manifest in head.manifests:
        spec = partitioning.json_of(head.metadata, manifest.partition_spec_id)["fields"]
        content = await rig.store.get(rig.warehouse.key(manifest.manifest_path))
        for entry in manifests.entries(manifest, content):
            file = entry.data_file
            assert file.spec_id == manifest.partition_spec_id
            rows = pq.read_table(io.BytesIO(await rig.store.get(rig.warehouse.key(file.file_path))))
            for row in rows.to_pylist():
                due = tuple(value_of(schema, row, each) for each in spec)
                if due != manifests.group_of(file).values:
                    found.append((file.file_path, row, due))
    return found


def value_of(schema: Schema, row: Any, field: Any) -> Any:
    """What a row has in a field of a partition spec or a sort order."""
    name = schema.find_column_name(field["source-id"])
    assert name is not None
    for part in name.split("."):
        row = None if row is None else row.get(part)
    if row is None:
        return None
    kind = schema.find_type(field["source-id"])
    if isinstance(kind, TimestamptzType):
        row = int(row.timestamp() * 1_000_000)
    return parse_transform(field["transform"]).transform(kind)(row)


QUESTIONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "value.user = 3": lambda value: value["user"] == 3,
    "value.page = 'ab'": lambda value: value["page"] == "ab",
    "value.page IS NULL": lambda value: value["page"] is None,
    "value.page > 'b'": lambda value: (value["page"] or "") > "b",
    "value.deep.seen = true": lambda value: (value["deep"] or {}).get("seen") is True,
    "kafka.timestamp < '2023-11-14T22:13:21+00:00'": lambda _: True,
}


async def assert_queries(rig: Rig) -> None:
    """What pyiceberg finds by a filter is what is there, and it need not look into all files for it."""
    table = StaticTable.from_metadata((await rig.head()).location)
    rows = [row["value"] or {"user": None, "page": None, "deep": None} for row in await rig.rows()]
    every = len([*await asyncio.to_thread(table.scan().plan_files)])
    for question, right in QUESTIONS.items():
        scan = table.scan(row_filter=question)
        found = await asyncio.to_thread(scan.to_arrow)
        assert found.num_rows == sum(right({"deep": None, **row}) for row in rows), question
        assert question.startswith("kafka") or len([*scan.plan_files()]) < every


async def test_rows_stand_under_their_values_while_the_spec_changes(rig: Rig) -> None:
    await rig.create_topic(floe__table__retention="follow")
    await rig.bind(VIEWS, "p.View")
    writing = Writing(rig, rig.committer())
    await writing.commits(4)
    unpartitioned = {each.manifest_path for each in (await rig.head()).manifests}
    await partition(rig, FIRST)
    await rig.drain(writing.committer)
    head = await rig.head()
    assert {each.manifest_path for each in head.manifests} == unpartitioned, "nothing is written anew"
    assert [each["name"] for each in head.metadata["partition-specs"][1]["fields"]] == [
        "value_user_bucket_4", "value_page_truncate_1", "kafka_timestamp_day",
    ]  # fmt: skip
    await writing.commits(4)
    await writing.assert_sound()
    assert await writing.committer.compact() is not None
    await writing.assert_sound()
    await partition(rig, f"{SECOND}, {FIRST}")
    await writing.commits(4, rows=5)
    await partition(rig, "")
    writing.committer = rig.committer()  # as after a start of the process
    await writing.commits(4, rows=5)
    assert await writing.committer.compact() is not None
    await writing.assert_sound()
    await partition(rig, FIRST)
    await writing.commits(1)
    head = await rig.head()
    specs = head.metadata["partition-specs"]
    assert ([each["spec-id"] for each in specs], head.metadata["default-spec-id"]) == ([0, 1, 2], 1)
    assert [each["field-id"] for each in specs[2]["fields"]] == [1003, 1000, 1001, 1002]
    await writing.assert_sound()
    await move(rig, len(writing.expected[0]))
    assert await writing.committer.follow() == len(writing.expected[0])
    assert await misplaced(rig) == []
    assert sorted(row["kafka"]["offset"] for row in await rig.rows()) == [*range(len(writing.expected[1]))]


async def test_manifests_of_several_specs_are_merged_each_among_its_own(rig: Rig) -> None:
    rig.options = CommitterOptions(manifests_merged_at=3)
    await rig.create_topic()
    await rig.bind(VIEWS, "p.View")
    writing = Writing(rig, rig.committer())
    for text in (FIRST, "", SECOND, FIRST):
        await partition(rig, text)
        await writing.commits(2, rows=3)
    assert len((await rig.head()).manifests) <= 6
    await writing.assert_sound()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("value.nobody", "the table has no column value.nobody"),
        ("value.tags", "the table has no column value.tags of single values"),
        ("value.deep", "the table has no column value.deep of single values"),
        ("value.deep.real", "value.deep.real is double; identity takes boolean, int"),
        ("day(value.user)", "value.user is long; day takes timestamptz"),
        ("truncate(3, value.deep.seen)", "value.deep.seen is boolean; truncate takes int"),
    ],
)
async def test_a_spec_that_cannot_be_is_told_and_no_row_waits_for_it(
    rig: Rig, text: str, reason: str
) -> None:
    await rig.create_topic()
    await rig.bind(VIEWS, "p.View")
    writing = Writing(rig, rig.committer())
    await partition(rig, FIRST)
    await writing.commits(1)
    await partition(rig, f"{SECOND}, {text}")
    await rig.produce([None])
    writing.expected[0].append(None)
    done = await writing.committer.run_once()
    assert done is not None
    assert any(reason in each and "floe.table.partition" in each for each in done.problems), done.problems
    assert (await rig.head()).metadata["default-spec-id"] == 1, "it stays as it was"
    await writing.assert_sound()


async def test_commits_take_few_rows_where_each_would_be_a_file(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committing, "FILES_MAX", 8)
    await rig.create_topic(partitions=1, floe__table__partition="kafka.offset")
    committer = rig.committer()
    await rig.produce([b"x"] * 30)
    files = []
    while (done := await committer.run_once()) is not None:
        files.append(done.files)
    assert files == [8, 8, 8, 6]
    await rig.assert_table_is_topic_rows(30)
