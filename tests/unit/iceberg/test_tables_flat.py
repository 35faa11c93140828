"""Flat tables: the value's columns at the top level, in all else as nested ones."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordination.commands import AlterClusterConfigs, AlterTopicConfigs, BindSchema
from coordination.state.types import Done
from iceberg import arrow_types, column_metrics, evolution, flat, flat_rows, layout, manifests, metadata
from iceberg.column_ids import VALUE_ID
from iceberg.committer import CommitterOptions
from iceberg.evolution import OWN_IDS
from iceberg.latest_ids import latest_id
from iceberg.small_files import FileSizes
from tests.unit.iceberg import latest, serving
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_tables_bindings import encoded, kind
from tests.unit.schema import samples

FLAT = {"floe__table__layout": "flat"}
EAGER = CommitterOptions(files=FileSizes(merged_at=4, busy_percent_max=100))
VIEW = b"""syntax = "proto3"; package p; message Deep { int32 n = 1; }
message M { int64 user_id = 1; string key = 2; Deep value = 3; repeated string tags = 4; }"""
LATER = b"""syntax = "proto3"; package p; message Deep { int32 n = 1; }
message M { string user_id = 1; string key = 2; Deep value = 3; double price = 5; }"""


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent that merges each four files."""
    async with rigs.running(tmp_path, EAGER) as found:
        yield found


NAMES = st.sampled_from(
    [
        "a",
        "B",
        "key",
        "Key",
        "VALUE",
        "headers",
        "kafka",
        "key__16",
        "key__17__18",
        "value__x",
        "kafka_x",
        "x",
    ]
) | st.from_regex(r"(key|value)?(__)?[0-9a-z]{0,3}", fullmatch=True)
SCALARS = st.sampled_from(["int", "long", "string", "double", "binary"])


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The fields of a nested table: any names that differ, any nesting."""
    number = iter(range(15, 10_000))

    def struct(depth: int) -> list[dict[str, Any]]:
        names = draw(st.lists(NAMES.filter(bool), max_size=4, unique_by=str.lower))
        return [{"id": next(number), "name": each, "required": False, "type": kinds(depth)} for each in names]

    def kinds(depth: int) -> Any:
        if depth == 0 or draw(st.booleans()):
            return draw(SCALARS)
        if draw(st.booleans()):
            return {"type": "struct", "fields": struct(depth - 1)}
        element = {"element-id": next(number), "element": kinds(depth - 1), "element-required": True}
        return {"type": "list", **element}

    found = evolution.new_fields()
    inside = next(each for each in found if each["id"] == VALUE_ID)["type"]["fields"]
    inside += struct(3)
    return found


@settings(deadline=None)
@given(tables())
def test_the_way_to_a_flat_table_and_back_changes_nothing(fields: list[dict[str, Any]]) -> None:
    there = flat.flattened(fields)
    assert flat.nested(there) == fields
    assert flat.nested(fields) == fields
    names = [each["name"].lower() for each in there]
    assert len(set(names)) == len(names), "readers fold case"
    assert names[:4] == ["kafka", "key", "value", "headers"]
    assert [each["id"] for each in there[2]["type"]["fields"]] == [9, 10]


@settings(deadline=None, max_examples=50)
@given(tables(), st.integers(0, 1 << 30), st.integers(0, 2))
def test_rows_are_the_same_on_both_sides(fields: list[dict[str, Any]], seed: int, skipped: int) -> None:
    """Also of a slice, as sorting and partitions make them."""
    schema = pa.schema([arrow_types.whole(each) for each in fields])
    chance = random.Random(seed)
    rows = [{each["name"]: some(chance, each["type"]) for each in fields} for _ in range(5)]
    for row in rows:
        row["value"] = None if chance.random() < 0.3 else row["value"]
    batch = pa.RecordBatch.from_pylist(rows, schema).slice(skipped, 3)
    there = flat_rows.flat_rows(batch, flat_rows.flat_schema(schema))
    assert there.schema.equals(pa.schema([arrow_types.whole(each) for each in flat.flattened(fields)]))
    assert flat_rows.nested_rows(there).equals(batch)
    for row, made in zip(batch.to_pylist(), there.to_pylist(), strict=True):
        value = row.pop("value")
        own = None if value is None else {name: value.pop(name) for name in ("__raw__", "__err__")}
        numbers = {each["name"]: each["id"] for each in fields[2]["type"]["fields"] if each["id"] > 10}
        hoisted = {flat.flat_name(name, each): (value or {}).get(name) for name, each in numbers.items()}
        assert made == {**row, "value": own, **hoisted}


def some(chance: random.Random, kind: Any) -> Any:
    """A value of an Iceberg type."""
    if isinstance(kind, str):
        given = {"string": "x", "double": 0.5, "binary": b"b", "timestamptz": 1}
        return given.get(kind, chance.randrange(100))
    if kind["type"] == "list":
        return [some(chance, kind["element"]) for _ in range(chance.randrange(3))]
    return {each["name"]: some(chance, each["type"]) for each in kind["fields"]}


async def columns(rig: Rig) -> list[str]:
    """The names at the table's top level."""
    return [each["name"] for each in metadata.current_fields((await rig.head()).metadata)]


async def told(rig: Rig) -> list[dict[str, Any]]:
    """The rows by offset, without what is null and without `kafka`, `key`, `headers`."""
    rows = sorted(await rig.rows(), key=lambda row: row["kafka"]["offset"])
    kept = [{k: v for k, v in row.items() if k not in ("kafka", "key", "headers")} for row in rows]
    return [{k: v for k, v in row.items() if v is not None} for row in kept]


def own(raw: bytes, error: str | None = None) -> dict[str, Any]:
    """What is left of `value`."""
    return {"__raw__": raw, "__err__": error}


NAMES_THEN = ["user_id", "key__16", "value__17", "tags"]
NAMES_NOW = ["user_id", "key__16", "value__17", "price", "user_id__15", "tags"]
FIRST = encoded(VIEW, user_id=7, key="k", value={"n": 3}, tags=["a"])
SECOND = encoded(LATER, user_id="seven", key="l", price=1.5)


async def test_columns_are_at_the_top_and_all_else_is_as_in_a_nested_table(rig: Rig) -> None:
    """A message, a tombstone, what is no message, another message that takes a name, and none at all."""
    await rig.create_topic(**FLAT)
    committer = rig.committer()

    async def say(*values: bytes | None) -> list[str]:
        await rig.produce(values)
        await rig.drain(committer)
        top = await columns(rig)
        assert top[:4] == ["kafka", "key", "value", "headers"]
        return top[4:]

    assert await say(b"free") == []
    await rig.bind(VIEW, "p.M")
    assert await say(FIRST, None, b"\xff") == NAMES_THEN
    await rig.bind(LATER, "p.M")
    assert await say(SECOND) == NAMES_NOW
    await rig.replica.propose(BindSchema(topic="t", unbind=True))
    assert await say(SECOND) == NAMES_NOW
    found = await told(rig)
    error = found[3]["value"]["__err__"]
    assert error
    assert found == [
        {"value": own(b"free")},
        {"value": own(FIRST), "user_id": 7, "key__16": "k", "value__17": {"n": 3}, "tags": ["a"]},
        {},
        {"value": own(b"\xff", error)},
        {"value": own(SECOND), "user_id": "seven", "key__16": "l", "price": 1.5},
        {"value": own(SECOND)},
    ]
    assert (await rig.head()).metadata["properties"]["floe.layout"] == "flat"


async def configure(rig: Rig, **configs: str) -> None:
    """Set the topic's configs to these."""
    message = AlterTopicConfigs(topic="t")
    for name, value in configs.items():
        message.changes.add(name=name.replace("__", "."), value=value)
    assert isinstance(await rig.replica.propose(message), Done)


async def test_a_table_with_columns_stays_as_it_is_and_says_so(rig: Rig) -> None:
    await rig.create_topic()
    await rig.bind(VIEW, "p.M")
    await rig.produce([encoded(VIEW, user_id=1)])
    committer = rig.committer()
    await rig.drain(committer)
    assert committer.problems == ()
    assert "floe.layout" not in (await rig.head()).metadata["properties"], "as tables of before"
    await configure(rig, floe__table__layout="flat")
    assert await committer.run_once() is None
    (problem,) = committer.problems
    assert problem.startswith("floe.table.layout=flat: the table is nested already and stays so")
    assert "set the config back to nested; a view (SELECT kafka, key, value.*, headers" in problem
    await rig.produce([encoded(VIEW, user_id=2)])
    await rig.drain(committer)
    assert await columns(rig) == ["kafka", "key", "value", "headers"]
    await configure(rig, floe__table__layout="nested")
    assert await committer.run_once() is None
    assert committer.problems == ()


async def test_the_cluster_s_default_counts_where_a_topic_says_nothing(rig: Rig) -> None:
    default = AlterClusterConfigs()
    default.changes.add(name="floe.table.layout", value="flat")
    assert isinstance(await rig.replica.propose(default), Done)
    for name, configs in (("t", {}), ("u", {"floe__table__layout": "nested"})):
        await rig.create_topic(name, **configs)
        await rig.bind(VIEW, "p.M", name)
        await rig.produce([FIRST], topic=name)
        await rig.drain(rig.committer(name))
        found = metadata.current_fields((await rig.head(name)).metadata)
        assert ("user_id" in {each["name"] for each in found}) == (name == "t")


async def test_the_first_column_settles_it(rig: Rig) -> None:
    """Before there is any the config counts, to and fro; a partition field settles it too."""
    await rig.create_topic(**FLAT)
    committer = rig.committer()
    for text in ("flat", "nested", "flat", "nested"):
        await configure(rig, floe__table__layout=text)
        await rig.produce([b"free"])
        await rig.drain(committer)
        assert committer.problems == ()
        assert (await rig.head()).metadata["properties"]["floe.layout"] == text
    await configure(rig, floe__table__partition="day(kafka.timestamp)", floe__table__layout="nested")
    await rig.drain(committer)
    await configure(rig, floe__table__layout="flat")
    await rig.drain(committer)
    assert [each[:22] for each in committer.problems] == ["floe.table.layout=flat"]
    await rig.bind(VIEW, "p.M")
    await rig.produce([encoded(VIEW, user_id=2)])
    await rig.drain(committer)
    assert await columns(rig) == ["kafka", "key", "value", "headers"]


PARTITION = "bucket(4, user_id), value.key, key__16, value.value.n, day(kafka.timestamp)"


async def test_partitions_and_orders_are_by_the_names_of_either_layout(rig: Rig) -> None:
    """`value.x` is the message's field x, as in a nested table; a path in the table is what stands there."""
    await rig.create_topic(
        **FLAT, floe__table__partition=PARTITION, floe__table__sort="value__17.n desc, tags_nobody, user_id"
    )
    await rig.bind(VIEW, "p.M")
    committer = rig.committer()
    rows = [encoded(VIEW, user_id=n % 3, key="k", value={"n": n % 2}) for n in range(12)]
    await rig.produce([*rows, None])
    done = await committer.run_once()
    assert done is not None
    assert any("floe.table.sort: tags_nobody: the table has no column" in each for each in done.problems)
    await configure(
        rig,
        floe__table__sort="value__17.n desc, value.user_id, user_id asc",
        floe__table__partition="user_id",
    )
    await rig.produce(rows)
    await rig.drain(committer)
    head = await rig.head()
    first, second = head.metadata["partition-specs"][1:]
    assert [each["name"] for each in first["fields"]] == [
        "value__user_id_bucket_4", "value__key", "value__value_n", "kafka__timestamp_day",
    ]  # fmt: skip
    assert [each["name"] for each in second["fields"]] == ["value__user_id"]
    (order,) = head.metadata["sort-orders"][1:]
    assert [each["source-id"] for each in order["fields"]] == [19, 15], "each column once"
    names = {each.lower() for each in await columns(rig)}
    assert not names & {each["name"] for each in [*first["fields"], *second["fields"]]}
    for number in range(3):
        (file,) = [each for each in await parts(rig) if {row["user_id"] for row in each} == {number}][-1:]
        assert [row["value__17"]["n"] for row in file] == sorted(n % 2 for n in range(number, 12, 3))[::-1]
    await serving_reads(rig, 25)


async def test_a_column_that_is_named_twice_in_different_case_counts_once(rig: Rig) -> None:
    """In a nested table as well: two partition fields of one name stopped all commits."""
    terms = {
        "floe__table__partition": "value.user_id, value.User_Id",
        "floe__table__sort": "key.__raw__, KEY.__raw__",
    }
    await rig.create_topic(**terms)
    await rig.bind(VIEW, "p.M")
    await rig.produce([FIRST])
    assert await rig.drain(rig.committer()) == 1
    head = (await rig.head()).metadata
    assert [len(each["fields"]) for each in (head["partition-specs"][-1], head["sort-orders"][-1])] == [1, 1]


async def parts(rig: Rig) -> list[list[dict[str, Any]]]:
    """The rows of each data file, in the order of commits."""
    found = []
    for manifest in (await rig.head()).manifests:
        content = await rig.store.get(rig.warehouse.key(manifest.manifest_path))
        for location in manifests.data_files(manifest, content):
            data = await rig.store.get(rig.warehouse.key(location))
            found.append(pq.read_table(io.BytesIO(data)).to_pylist())
    return found


async def serving_reads(rig: Rig, count: int) -> None:
    """pyiceberg reads so many rows."""

    def read(url: str) -> int:
        return len(serving.client(url).load_table("floe.t").scan().to_arrow())

    async with serving.served(serving.catalog_of(rig)) as url:
        assert await asyncio.to_thread(read, url) == count


def test_no_column_is_ever_called_as_a_partition_field() -> None:
    """Java refuses a table where one is, unless the field is made of that column."""
    table = layout.build(None, samples.Bound(samples.descriptor_set(VIEW), "p.M"), flat=True)
    assert flat.flat_name("value__user_id", 99) == "value__user_id__99"
    assert flat.is_appended("value__x__5")
    assert [each["name"] for each in table.fields][4:] == ["user_id", "key__16", "value__17", "tags"]


async def test_compaction_and_bounds_go_by_the_ids_of_columns(rig: Rig) -> None:
    await rig.create_topic(partitions=1, **FLAT)
    await rig.bind(VIEW, "p.M")
    committer = rig.committer()
    for number in range(4):
        await rig.produce([encoded(VIEW, user_id=number)])
        await rig.drain(committer)
    await rig.bind(LATER, "p.M")
    await rig.produce([encoded(LATER, user_id="x", price=0.5)])
    await rig.drain(committer)
    before = await told(rig)
    assert await committer.compact() is not None
    renamed = [
        {("user_id__15" if k == "user_id" and isinstance(v, int) else k): v for k, v in row.items()}
        for row in before
    ]
    assert await told(rig) == renamed
    content = layout.build(None, samples.Bound(samples.descriptor_set(VIEW), "p.M"), flat=True)
    told_of = {".".join(each.path) for each in column_metrics.leaves(content.arrow)}
    assert {"user_id", "key__16", "value__17.n", "value.__err__"} <= told_of


def test_floes_own_columns_keep_their_bounds_however_many_a_message_has() -> None:
    source = "".join(f" int32 f{n} = {n};" for n in range(1, 151))
    wide = f'syntax = "proto3"; package p; message M {{{source} }}'.encode()
    table = layout.build(None, samples.Bound(samples.descriptor_set(wide), "p.M"), flat=True)
    found = {each.number for each in column_metrics.leaves(table.arrow)}
    assert len(found) == column_metrics.COLUMNS_MAX
    assert {*OWN_IDS} - {evolution.VALUE_RAW_ID} <= found


async def test_without_raw_bytes_columns_stand_alone(tmp_path: Path) -> None:
    async with rigs.running(tmp_path, CommitterOptions(raw_bytes=False)) as rig:
        await rig.create_topic(**FLAT)
        await rig.bind(VIEW, "p.M")
        await rig.produce([encoded(VIEW, user_id=7), b"\xff"])
        await rig.drain(rig.committer())
        good, bad = await told(rig)
        assert good == {"value": {"__raw__": None, "__err__": None}, "user_id": 7, "key__16": "", "tags": []}
        assert bad["value"]["__raw__"] == b"\xff"


async def test_the_newest_rows_are_flat_too(rig: Rig) -> None:
    await rig.create_topic(partitions=1, **FLAT, **latest.UPSERT)
    keeper = latest.committer(rig)
    await rig.produce([b"free"], keys=[b"0"])
    await latest.catch_up(rig, known=keeper)
    await rig.bind(VIEW, "p.M")
    values = [encoded(VIEW, user_id=n, key=f"k{n}") for n in range(3)]
    await rig.produce([*values, None], keys=[b"1", b"2", b"1", b"2"])
    await latest.catch_up(rig, known=keeper)
    head = await latest.head(rig)
    assert metadata.current_fields(head.metadata) == metadata.current_fields((await rig.head()).metadata)
    assert head.metadata["properties"]["floe.layout"] == "flat"
    rows = await latest.rows(rig)
    found = {row["key"]["__raw__"]: (row["value"], row["user_id"], row["key__16"]) for row in rows}
    assert found == {b"0": (own(b"free"), None, None), b"1": (own(values[2]), 2, "k2")}
    assert latest_id(rig.replica.state.topics["t"].topic_id) in rig.replica.state.tables_by_topic


ENVELOPE = b"""syntax = "proto3"; package p; message Row { int64 id = 1; string value = 2; }
message M { Row before = 1; Row after = 2; string op = 3; }"""


async def test_the_rows_of_envelopes_are_flat(rig: Rig) -> None:
    debezium = {"floe__table__envelope": "debezium"}
    await rig.create_topic(partitions=1, **FLAT, **latest.UPSERT, **debezium)
    await rig.bind(ENVELOPE, "p.M")
    made = kind(ENVELOPE).message_class
    put = made(op="c", after={"id": 4, "value": "v"}).SerializeToString()
    gone = made(op="d", before={"id": 5}).SerializeToString()
    other = made(op="c", after={"id": 5}).SerializeToString()
    await rig.produce([put, other, gone, made(op="t").SerializeToString()], keys=[b"4", b"5", b"5", b"6"])
    await latest.catch_up(rig)
    (row,) = await latest.rows(rig)
    assert [*row] == ["kafka", "key", "value", "headers", "id", row_name := [*row][5]]
    assert flat.nested_name(row_name) == "value"
    assert (row["value"], row["id"], row[row_name]) == (own(put), 4, "v")


@pytest.mark.parametrize("text", ["Flat", "", "flat "])
async def test_another_layout_is_refused_with_those_there_are(rig: Rig, text: str) -> None:
    await rig.create_topic()
    message = AlterTopicConfigs(topic="t")
    message.changes.add(name="floe.table.layout", value=text)
    result = await rig.replica.propose(message)
    assert "one of: nested, flat" in getattr(result, "message", ""), result
