"""Tables that are sorted: each file that says so stands in the order that it names, and none lacks a row.

The judge of order is plain Python by the specification's words, with pyiceberg's transforms; of rows
pyiceberg and DuckDB. Spark is in tests/spark/test_partitions.py.
"""

from __future__ import annotations

import asyncio
import io
import math
import struct
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.transforms import parse_transform
from pyiceberg.types import LongType, StringType, TimestamptzType

from coordination.table_sort import PATTERN, parse
from iceberg import manifests, merging, sorted_rows, sorting, transforms, writer
from iceberg.arrow_types import field
from iceberg.evolution import OFFSET_ID
from iceberg.metadata import current_schema
from iceberg.sorted_rows import Gathered, Runs
from iceberg.sorting import Key
from tests.unit.iceberg import duck
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_tables_foreign import NUMBER, rewrite
from tests.unit.iceberg.test_tables_partitions import (
    EAGER,
    FIRST,
    VIEWS,
    Writing,
    configure,
    misplaced,
    value_of,
)
from tests.unit.iceberg.test_tables_retention import move

SORT = "floe.table.sort"
BY_PAGE = "value.page desc nulls-first, bucket(4, value.user) nulls-last, value.deep.real"
BY_TIME = "kafka.timestamp desc"
RENAMED = VIEWS.replace(b"page", b"title")
MICROS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
COLUMNS: Mapping[int, tuple[pa.DataType, st.SearchStrategy[Any], tuple[str, ...]]] = {
    20: (pa.int64(), st.integers(-5, 5), ("identity", "bucket[3]", "truncate[4]")),
    21: (pa.string(), st.text("aü\U0001f600", max_size=3), ("identity", "truncate[1]", "bucket[3]")),
    22: (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, -2.0, math.inf, math.nan, -math.nan]), ("identity",)),
    23: (pa.timestamp("us", tz="UTC"), MICROS, ("identity", "day", "year")),
    24: (pa.bool_(), st.booleans(), ("identity",)),
    25: (pa.float32(), st.sampled_from([0.5, -0.5, math.nan]), ("identity",)),
    26: (pa.binary(), st.binary(max_size=2), ("identity", "truncate[1]")),
}
JUDGED = {20: LongType(), 21: StringType(), 23: TimestamptzType()}
ORDERS = st.lists(
    st.sampled_from([(number, each) for number, (_, _, kinds) in COLUMNS.items() for each in kinds]).flatmap(
        lambda by: st.builds(Key, st.just(by[0]), st.just(by[1]), st.booleans(), st.booleans())
    ),
    max_size=3,
).map(tuple)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent that merges each four files."""
    async with rigs.running(tmp_path, EAGER) as found:
        yield found


def comparable(value: Any) -> Any:
    """A value as what Python compares as the specification does: reals with their sign, texts by bytes."""
    if isinstance(value, float):
        (bits,) = struct.unpack(">q", struct.pack(">d", value))
        return (bits >= 0, bits if bits >= 0 else -(bits & (1 << 63) - 1))
    return value.encode() if isinstance(value, str) else value


def rank(values: Sequence[Any], directions: Sequence[tuple[bool, bool]], offset: int) -> Iterator[Any]:
    """A row's place, to be compared item by item. `directions`: descending, and nulls first."""
    for value, (descending, nulls_first) in zip(values, directions, strict=True):
        yield (value is None) != nulls_first
        yield Backwards(value) if descending else Forwards(value)
    yield offset


class Forwards:
    """A value that is compared as the specification has it; a null is like a null."""

    def __init__(self, value: Any) -> None:
        self.value = None if value is None else comparable(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Forwards) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __lt__(self, other: Forwards) -> bool:
        return bool(self.value < other.value)


class Backwards(Forwards):
    """The same the other way round."""

    def __lt__(self, other: Forwards) -> bool:
        return bool(other.value < self.value)


def judged(number: int, transform: str, value: Any) -> Any:
    """A value's transform, by pyiceberg."""
    if value is None or transform == "identity":
        return value
    kind = JUDGED.get(number)
    if kind is None:
        return value[:1]  # bytes
    return parse_transform(transform).transform(kind)(value)


@st.composite
def batches(draw: st.DrawFn) -> list[pa.RecordBatch]:
    """Rows of all kinds, in the order of offsets."""
    found, start = [], 0
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 8))
        offsets = pa.array(range(start, start + count), pa.int64())
        kafka = pa.StructArray.from_arrays([offsets], fields=[field("offset", OFFSET_ID, pa.int64())])
        arrays, fields = [kafka], [field("kafka", 1, kafka.type)]
        for number, (kind, values, _) in COLUMNS.items():
            own = draw(st.lists(st.none() | values, min_size=count, max_size=count))
            arrays.append(pa.array(own, kind))
            fields.append(field(f"c{number}", number, kind))
        found.append(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)))
        start += count
    return found


@settings(deadline=None)
@given(batches(), ORDERS, st.integers(1, 4_000), st.integers(1, 5))
def test_rows_come_back_in_order_however_few_are_held_at_once(
    rows: list[pa.RecordBatch], order: tuple[Key, ...], run_bytes: int, batch_rows: int
) -> None:
    plain = pa.Table.from_batches(rows)
    lists = {number: _values(plain.column(f"c{number}")) for number in COLUMNS}
    ranks = [
        [*rank([judged(*by[:2], lists[by[0]][at]) for by in order], [by[2:] for by in order], at)]
        for at in range(len(plain))
    ]
    due = sorted(range(len(plain)), key=ranks.__getitem__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_rows, "RUN_BYTES", run_bytes)
        patch.setattr(sorted_rows, "BATCH_ROWS", batch_rows)
        for gathering in (Gathered(order), Runs(order)):
            for each in rows:  # as out of a file that is sorted otherwise
                gathering.take(each.take(pa.array(range(len(each) - 1, -1, -1))))
            found = pa.Table.from_batches(gathering.batches())
            assert found.column("kafka").combine_chunks().field("offset").to_pylist() == due
            assert repr(found.to_pylist()) == repr(plain.take(due).to_pylist()), "rows stay whole"


def _values(column: pa.ChunkedArray) -> list[Any]:
    times = pa.types.is_timestamp(column.type)
    return list((column.cast(pa.int64()) if times else column).to_pylist())


def test_the_lowest_numbers_have_a_place() -> None:
    lowest = pa.array([-(1 << 63), (1 << 63) - 1, None])
    assert transforms.array_of("truncate[10]", lowest).to_pylist() == transforms.applied(
        "truncate[10]", lowest
    )


def test_terms_are_read_as_they_are_written() -> None:
    text = " value.user desc ,day( kafka.timestamp ) nulls-last,value.user,key.id desc nulls-first,asc asc "
    assert PATTERN.fullmatch(text)
    assert [(each.of.transform, each.of.column, *each[1:]) for each in parse(text)] == [
        ("identity", "value.user", True, False),
        ("day", "kafka.timestamp", False, False),
        ("identity", "key.id", True, True),
        ("identity", "asc", False, True),
    ]


async def files(rig: Rig) -> list[tuple[DataFile, list[dict[str, Any]]]]:
    """All files of the table, with their rows."""
    found = []
    for manifest in (await rig.head()).manifests:
        content = await rig.store.get(rig.warehouse.key(manifest.manifest_path))
        for entry in manifests.entries(manifest, content):
            data = await rig.store.get(rig.warehouse.key(entry.data_file.file_path))
            found.append((entry.data_file, pq.read_table(io.BytesIO(data)).to_pylist()))
    return found


async def disordered(rig: Rig) -> list[str]:
    """Files whose rows do not stand in the order that the file names; without one, in that of offsets."""
    head = await rig.head()
    schema = Schema.model_validate(current_schema(head.metadata))
    orders = {each["order-id"]: each["fields"] for each in head.metadata["sort-orders"]}
    wrong = []
    for file, rows in await files(rig):
        fields = orders[file.sort_order_id or 0]
        directions = [(each["direction"] == "desc", each["null-order"] == "nulls-first") for each in fields]
        ranks = [
            [*rank([value_of(schema, row, each) for each in fields], directions, row["kafka"]["offset"])]
            for row in rows
        ]
        if ranks != sorted(ranks):
            wrong.append(file.file_path)
    return wrong


async def order_ids(rig: Rig) -> list[int]:
    """The sort orders that files name; 0 for none."""
    return sorted(file.sort_order_id or 0 for file, _ in await files(rig))


async def test_files_are_sorted_as_the_table_was_when_they_were_written(rig: Rig) -> None:
    await rig.create_topic(floe__table__retention="follow")
    await rig.bind(VIEWS, "p.View")
    writing = Writing(rig, rig.committer())
    await writing.commits(4)
    before = {each.manifest_path for each in (await rig.head()).manifests}
    await configure(rig, SORT, BY_PAGE)
    await rig.drain(writing.committer)
    head = await rig.head()
    assert {each.manifest_path for each in head.manifests} == before, "nothing is written anew"
    told = head.metadata["sort-orders"][1]["fields"][0]
    assert (told["transform"], told["direction"], told["null-order"]) == ("identity", "desc", "nulls-first")
    await writing.commits(3)
    assert await order_ids(rig) == [0] * 8 + [1] * 6
    assert await disordered(rig) == []
    assert await writing.committer.compact() is not None
    assert set(await order_ids(rig)) == {1}, "compaction sorts files of all orders"
    assert await disordered(rig) == []
    await configure(rig, SORT, BY_TIME)
    writing.committer = rig.committer()  # as after a start of the process
    await writing.commits(1)
    await configure(rig, SORT, "")
    await writing.commits(1)
    await configure(rig, SORT, BY_PAGE)
    await writing.commits(1)
    assert set(await order_ids(rig)) == {0, 1, 2}
    head = await rig.head()
    assert [each["order-id"] for each in head.metadata["sort-orders"]] == [0, 1, 2], "one comes again"
    assert head.metadata["default-sort-order-id"] == 1
    assert await disordered(rig) == []
    await rig.assert_table_is_topic(writing.expected)
    await move(rig, len(writing.expected[0]))
    assert await writing.committer.follow() == len(writing.expected[0])
    assert sorted(row["kafka"]["offset"] for row in await rig.rows()) == [*range(len(writing.expected[1]))]


async def test_engines_read_each_row_of_a_table_that_is_sorted_and_partitioned(rig: Rig) -> None:
    await rig.create_topic(floe__table__sort=BY_PAGE, floe__table__partition=FIRST)
    await rig.bind(VIEWS, "p.View")
    writing = Writing(rig, rig.committer())
    await writing.commits(4)
    assert await disordered(rig) == []
    assert await writing.committer.compact() is not None
    assert await disordered(rig) == []
    assert await misplaced(rig) == []
    await writing.assert_sound()
    location = (await rig.head()).location
    table = StaticTable.from_metadata(location)
    assert [each.direction.value for each in table.sort_order().fields] == ["desc", "asc", "asc"]
    due = [(number, at) for number, values in writing.expected.items() for at in range(len(values))]
    found = (await asyncio.to_thread(table.scan().to_arrow)).column("kafka").to_pylist()
    assert sorted((each["partition"], each["offset"]) for each in found) == due
    with duck.connect("avro", "iceberg") as connection:
        path = location.removeprefix("file://")
        told = connection.execute(
            "SELECT kafka.partition, kafka.offset FROM iceberg_scan(?) ORDER BY ALL", [path]
        ).fetchall()
        last = connection.execute(
            "SELECT count(*) FROM iceberg_scan(?) WHERE kafka.offset >= 40", [path]
        ).fetchone()
    assert told == due
    assert last == (sum(offset >= 40 for _, offset in due),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("value.nobody desc", "floe.table.sort: value.nobody desc: the table has no column value.nobody"),
        ("value.tags", "the table has no column value.tags of single values"),
        ("value.deep", "the table has no column value.deep of single values"),
        ("day(value.user)", "value.user is long; day takes timestamptz"),
        ("truncate(3, value.deep.real)", "value.deep.real is double; truncate takes int"),
    ],
)
async def test_an_order_that_cannot_be_is_told_and_no_row_waits_for_it(
    rig: Rig, text: str, reason: str
) -> None:
    await rig.create_topic(floe__table__sort=BY_TIME)
    await rig.bind(VIEWS, "p.View")
    writing = Writing(rig, rig.committer())
    await writing.commits(1)
    await configure(rig, SORT, f"value.page, {text}")
    await rig.produce([None, b"\xff"])
    writing.expected[0] += [None, b"\xff"]
    done = await writing.committer.run_once()
    assert done is not None
    assert any(reason in each and "change floe.table.sort" in each for each in done.problems), done.problems
    assert await order_ids(rig) == [1, 1, 1], "it stays as it was"
    assert await disordered(rig) == []
    await rig.assert_table_is_topic(writing.expected)


async def test_a_field_that_is_renamed_stays_what_rows_are_sorted_by(rig: Rig) -> None:
    await rig.create_topic(floe__table__sort="value.page desc")
    await rig.bind(VIEWS, "p.View")
    writing = Writing(rig, rig.committer())
    await writing.commits(2)
    await rig.bind(RENAMED, "p.View")
    await rig.produce([None])
    writing.expected[0].append(None)
    done = await writing.committer.run_once()
    assert done is not None
    assert any("the table has no column value.page" in each for each in done.problems), done.problems
    await writing.commits(2)
    await configure(rig, SORT, "value.title desc")
    await rig.produce([None])
    writing.expected[0].append(None)
    done = await writing.committer.run_once()
    assert done is not None
    assert done.problems == ()
    assert set(await order_ids(rig)) == {1}, "the same order"
    assert await writing.committer.compact() is not None
    assert await disordered(rig) == []
    await rig.assert_table_is_topic(writing.expected)


async def test_of_more_rows_than_are_held_files_are_made_in_between(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SORTED_BYTES_MAX", 1)  # each piece of rows is too much
    await rig.create_topic(partitions=1, floe__table__sort=BY_TIME)
    committer = rig.committer()
    for _ in range(3):
        await rig.produce([b"x" * 600_000] * 2)
    done = await committer.run_once()
    assert done is not None
    assert (done.files > 1, done.rows) == (True, 6)
    assert await disordered(rig) == []
    await rig.assert_table_is_topic_rows(6)


async def test_a_merge_of_many_runs_is_sorted_and_one_by_too_long_values_is_told(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.create_topic(floe__table__sort="value.__raw__ desc")
    committer = rig.committer()
    monkeypatch.setattr(sorted_rows, "RUN_BYTES", 1)
    monkeypatch.setattr(merging, "KEYS_BYTES_MAX", 1)
    expected: dict[int, list[bytes | None]] = {0: []}
    for number in range(4):
        values = [b"%d" % (at * 7 % 10 + number) for at in range(10)]
        expected[0] += values
        await rig.produce(values)
        await rig.drain(committer)
    assert await committer.compact() is None
    (told,) = committer.problems
    assert "takes over 1 bytes: sort by less of long values" in told
    monkeypatch.setattr(merging, "KEYS_BYTES_MAX", 1 << 20)
    committer = rig.committer()
    await rig.drain(committer)
    assert await committer.compact() is not None
    assert await order_ids(rig) == [1]
    assert await disordered(rig) == []
    await rig.assert_table_is_topic(expected)


async def test_what_is_sorted_must_be_what_was_added(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Runs) -> Iterator[pa.RecordBatch]:
        for each in right(self):
            yield each.take(pa.array([0, *range(len(each) - 1)]))  # one row twice for another

    right = Runs.batches
    monkeypatch.setattr(Runs, "batches", broken)
    await rig.create_topic(floe__table__sort=BY_TIME)
    committer = rig.committer()
    for _ in range(4):
        await rig.produce([b"x", b"y"])
        await rig.drain(committer)
    assert await committer.compact() is None
    (told,) = committer.problems
    assert "does not hold the offsets of those that it was made of" in told
    await rig.assert_table_is_topic_rows(8)


async def test_an_engines_rewrite_of_a_sorted_table_may_stand_in_any_order_and_names_none(rig: Rig) -> None:
    await rig.create_topic(floe__table__sort=BY_TIME)
    committer = rig.committer()
    for number in range(3):
        await rig.produce([b"%d" % number, None])
        await rig.drain(committer)
    given = replace(await rewrite(rig), order_id=1)
    given.rows = given.rows.take([5, 1, 0, 3, 4, 2])
    status, answer = await given.commit()
    assert status == 200, answer
    assert await order_ids(rig) == [0]
    twice = replace(await rewrite(rig), number=NUMBER + 1)
    twice.rows = twice.rows.take([0, 1, 2, 2, 4, 5])
    status, answer = await twice.commit()
    assert (status, "its offsets do not ascend" in answer["error"]["message"]) == (403, True)


def test_an_order_that_a_table_had_before_is_the_same_again() -> None:
    bare: dict[str, Any] = {"default-sort-order-id": 0, "sort-orders": [{"order-id": 0, "fields": []}]}
    one, other = (Key(2, "identity"),), (Key(2, "identity", nulls_first=False),)
    table = sorting.with_order(sorting.with_order(bare, one), other)
    assert sorting.with_order(table, one)["default-sort-order-id"] == 1
    assert sorting.with_order(table, ())["default-sort-order-id"] == 0
    assert len(sorting.with_order(table, one)["sort-orders"]) == 3
    assert sorting.current(table) == other
