"""The REST catalog: pyiceberg's client against it, and what it refuses."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import Message
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from coordination.commands import DropNamespace
from coordination.replica import Replica
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.serving import ask
from tests.unit.schema import samples

ROWS = pa.table({"name": ["a", "b"], "number": pa.array([1, 2], pa.int64())})
SCHEMA = Schema(NestedField(1, "name", StringType()), NestedField(2, "number", LongType()))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


@pytest.fixture
async def url(rig: Rig) -> AsyncIterator[str]:
    """The catalog's address."""
    async with serving.served(serving.catalog_of(rig)) as found:
        yield found


async def in_thread(url: str, work: Any) -> Any:
    """Run blocking client code beside the loop that serves it."""

    def connected() -> Any:
        catalog = serving.client(url)
        try:
            return work(catalog)
        finally:
            catalog.close()

    return await asyncio.to_thread(connected)


async def test_namespaces_live_and_die(url: str) -> None:
    def story(catalog: RestCatalog) -> None:
        catalog.create_namespace("sales", {"owner": "me", "note": "x"})
        with pytest.raises(NamespaceAlreadyExistsError):
            catalog.create_namespace("sales")
        summary = catalog.update_namespace_properties(
            "sales", removals={"note", "no"}, updates={"owner": "you"}
        )
        assert (summary.removed, summary.updated, summary.missing) == (["note"], ["owner"], ["no"])
        assert catalog.load_namespace_properties("sales") == {"owner": "you"}
        catalog.create_namespace(("sales", "north"))
        assert catalog.list_namespaces() == [("sales",)]
        assert catalog.list_namespaces("sales") == [("sales", "north")]
        catalog.create_table("sales.north.t", SCHEMA)
        with pytest.raises(NamespaceNotEmptyError):
            catalog.drop_namespace("sales.north")
        catalog.drop_table("sales.north.t")
        catalog.drop_namespace("sales.north")
        with pytest.raises(NoSuchNamespaceError):
            catalog.list_tables("sales.north")

    await in_thread(url, story)


async def test_other_engines_write_tables_of_their_own(rig: Rig, url: str) -> None:
    def story(catalog: RestCatalog) -> None:
        catalog.create_namespace("out")
        spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "number"))
        table = catalog.create_table("out.t", SCHEMA, partition_spec=spec, properties={"a": "1"})
        with pytest.raises(TableAlreadyExistsError):
            catalog.create_table("out.t", SCHEMA)
        table.append(ROWS)
        table.append(ROWS)
        with table.transaction() as change:
            change.set_properties(b="2")
            change.update_schema().add_column("more", StringType()).commit()
        assert catalog.load_table("out.t").scan().to_arrow().num_rows == 4
        assert table.properties == {"a": "1", "b": "2"}
        table.overwrite(pa.table({"name": ["z"], "number": pa.array([9], pa.int64())}))
        assert catalog.load_table("out.t").scan().to_arrow().to_pylist() == [
            {"name": "z", "number": 9, "more": None}
        ]
        assert catalog.list_tables("out") == [("out", "t")]
        catalog.rename_table("out.t", "out.u")
        assert not catalog.table_exists("out.t")
        location = catalog.load_table("out.u").metadata_location
        catalog.drop_table("out.u")
        with pytest.raises(NoSuchTableError):
            catalog.load_table("out.u")
        assert catalog.register_table("out.v", location).scan().to_arrow().num_rows == 1
        with catalog.create_table_transaction("out.staged", SCHEMA) as staged:
            staged.append(ROWS)
        assert catalog.load_table("out.staged").scan().to_arrow().num_rows == 2

    await in_thread(url, story)


async def test_a_stale_commit_is_refused_and_changes_nothing(url: str) -> None:
    def story(catalog: RestCatalog) -> None:
        catalog.create_namespace("out")
        first = catalog.create_table("out.t", SCHEMA, properties={"commit.retry.num-retries": "0"})
        stale = catalog.load_table("out.t")
        first.append(ROWS)
        with pytest.raises(CommitFailedException):
            stale.append(ROWS)
        assert catalog.load_table("out.t").scan().to_arrow().num_rows == 2

    await in_thread(url, story)


def zoo_value() -> bytes:
    """A message with a field of every awkward kind."""
    message = samples.message_type(samples.ZOO, "zoo.All").message_class
    return message(
        f_uint64=2**64 - 1,
        f_enum=2,
        leaf={"name": "n", "numbers": [1, 2]},
        by_name={"k": {"name": "v"}},
        at={"seconds": 10, "nanos": 1500},
        took={"seconds": 1},
        w_int64={"value": 5},
        any={"type_url": "u", "value": b"v"},
    ).SerializeToString()


async def test_a_topics_table_is_read_with_all_its_columns(rig: Rig, url: str) -> None:
    await rig.create_topic()
    await rig.bind(samples.ZOO, "zoo.All")
    await rig.produce([zoo_value()])
    await rig.drain(rig.committer())

    def read(catalog: RestCatalog) -> None:
        table = catalog.load_table("floe.t")
        (row,) = table.scan().to_arrow().to_pylist()
        value = row["value"]
        assert value["__raw__"] == zoo_value()
        assert (int(value["f_uint64"]), value["f_enum"]) == (2**64 - 1, "BLUE")
        assert value["leaf"]["numbers"] == [1, 2]
        assert (value["by_name"][0][0], value["by_name"][0][1]["name"]) == ("k", "v")
        assert (value["at"].microsecond, value["took"], value["w_int64"]) == (1, 1_000_000, 5)
        assert value["any"] == b"\x0a\x01u\x12\x01v"
        assert table.scan(row_filter="kafka.offset >= 1").to_arrow().num_rows == 0

    await in_thread(url, read)


async def test_a_topics_table_is_never_written_by_others(rig: Rig, url: str) -> None:
    await rig.create_topic()
    await rig.produce([b"a"])
    committer = rig.committer()
    await rig.drain(committer)

    def write(catalog: RestCatalog) -> None:
        table = catalog.load_table("floe.t")
        with pytest.raises(ForbiddenError, match="written by Floe alone, from topic 't'"):
            table.append(table.scan().to_arrow())
        with pytest.raises(ForbiddenError, match="written by Floe alone"):
            table.update_schema().add_column("x", StringType()).commit()
        with pytest.raises(ForbiddenError, match="Floe's own"):
            table.transaction().set_properties({"floe.topic-id": "00"}).commit_transaction()
        with pytest.raises(ForbiddenError, match="delete the topic first"):
            catalog.drop_table("floe.t")
        with pytest.raises(ForbiddenError):
            catalog.rename_table("floe.t", "floe.u")
        table.transaction().set_properties(comment="hello").commit_transaction()

    await in_thread(url, write)
    await rig.produce([b"b"])
    assert await rig.drain(committer) == 1
    head = await rig.head()
    assert head.metadata["properties"]["comment"] == "hello"
    await rig.assert_table_is_topic({0: [b"a", b"b"]})


async def test_files_outside_the_range_of_offsets_are_not_opened(rig: Rig, url: str) -> None:
    await rig.create_topic()
    committer = rig.committer()
    for number in range(4):
        await rig.produce([b"%d" % number], partition=number % 2)
        await rig.drain(committer)

    def plan(catalog: RestCatalog) -> int:
        scan = catalog.load_table("floe.t").scan(row_filter="kafka.partition = 1 and kafka.offset = 1")
        return len(list(scan.plan_files()))

    assert await in_thread(url, plan) == 1


async def test_answers_have_the_shape_of_the_specification(rig: Rig) -> None:
    catalog = serving.catalog_of(rig, {"s3.endpoint": "http://s3"})
    status, config = await ask(catalog, "GET", "/v1/config", warehouse="w")
    assert status == 200
    assert "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}" in config["endpoints"]
    assert await ask(catalog, "GET", "/v1/namespaces/no/tables/t") == (
        404,
        {"error": {"message": "Table does not exist: no.t", "type": "NoSuchTableException", "code": 404}},
    )
    status, body = await ask(catalog, "GET", "/v1/namespaces/no/views/v")
    assert (status, body["error"]["type"]) == (404, "NoSuchViewException")
    await rig.create_topic()
    await rig.drain(rig.committer())
    status, body = await ask(catalog, "GET", "/v1/namespaces/floe/tables/t")
    assert (status, body["config"]) == (200, {"s3.endpoint": "http://s3"})
    assert await ask(catalog, "HEAD", "/v1/namespaces/floe/tables/t") == (204, None)
    assert await ask(catalog, "POST", "/v1/namespaces/floe/tables/t/metrics", {}) == (204, None)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/namespaces", {"namespace": "flat"}, 400),
        ("/v1/namespaces", {"namespace": ["a.b"]}, 400),
        ("/v1/namespaces/out/tables", {"name": "t"}, 400),
        ("/v1/namespaces/out/tables", {"name": "a/b", "schema": {"type": "struct", "fields": []}}, 400),
        (
            "/v1/namespaces/out/tables",
            {"name": "t", "location": "s3://else/where", "schema": {"type": "struct", "fields": []}},
            400,
        ),
        (
            "/v1/namespaces/out/tables",
            {
                "name": "t",
                "schema": {"type": "struct", "fields": []},
                "properties": {"floe.topic-id": "00"},
            },
            403,
        ),
        ("/v1/namespaces/out/tables/t", {"requirements": [], "updates": [{"action": "no-such"}]}, 400),
        ("/v1/namespaces/out/register", {"name": "t", "metadata-location": "file:///etc/passwd"}, 400),
        ("/v1/nothing", {}, 404),
    ],
)
async def test_requests_that_cannot_be_are_refused(rig: Rig, path: str, body: object, status: int) -> None:
    catalog = serving.catalog_of(rig)
    await ask(catalog, "POST", "/v1/namespaces", {"namespace": ["out"]})
    found, answer = await ask(catalog, "POST", path, body)
    assert (found, answer["error"]["code"]) == (status, status)
    assert ("out", "t") not in rig.replica.state.tables


FIRST = {
    "type": "struct",
    "schema-id": 1,
    "fields": [{"id": 1, "name": "x", "type": "int", "required": False}],
}
ON_Y = {"source-id": 2, "field-id": 1000, "transform": "identity", "name": "y"}
BY_Y = {"action": "add-spec", "spec": {"spec-id": 1, "fields": [ON_Y]}}
QUERY = {"type": "sql", "sql": "select 1", "dialect": "spark"}
VERSION = {"version-id": 1, "timestamp-ms": 1, "schema-id": 0, "summary": {}, "default-namespace": []}
VERSION["representations"] = [QUERY]
UNDATED = {name: each for name, each in VERSION.items() if name != "timestamp-ms"}
VIEW = {"name": "v", "schema": FIRST, "view-version": VERSION, "properties": {}}
DEFAULT = {"action": "set-default-spec", "spec-id": -1}


def typed(kind: object) -> dict[str, Any]:
    """A creation of a table with a column of this type."""
    return {"name": "u", "schema": {"type": "struct", "fields": [{"id": 1, "name": "x", "type": kind}]}}


def deep(levels: int) -> object:
    """A type of so many lists."""
    kind: object = "int"
    for each in range(levels):
        kind = {"type": "list", "element-id": each + 2, "element": kind, "element-required": False}
    return kind


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tables/t", {"updates": [BY_Y, DEFAULT]}),
        ("/tables/t", {"updates": [{"action": "add-schema", "schema": typed("decimal(99,2)")["schema"]}]}),
        ("/tables/t", {"updates": [{"action": "set-properties", "updates": 2}]}),
        ("/tables/t", {"updates": [{"action": "set-properties", "updates": {"k": "\ud800"}}]}),
        ("/tables/u", {"updates": [BY_Y, DEFAULT], "requirements": [{"type": "assert-create"}]}),
        ("/tables", typed("decimal(99,2)")),
        ("/tables", typed({"type": "list"})),
        ("/tables", typed(deep(300))),
        ("/tables", typed(float("nan"))),
        ("/tables", {**typed("int"), "write-order": {"order-id": 1, "fields": [2.5]}}),
        ("/properties", {"removals": 7}),
        ("/properties", {"removals": [{}]}),
        ("/properties", {"updates": {"\ud800": "v"}}),
        ("/views/v", {"updates": [{"action": "remove-properties", "removals": 7}]}),
        ("/views", {**VIEW, "name": "w", "view-version": UNDATED}),
        ("/views", {**VIEW, "name": "w", "schema": typed(FIRST["fields"][0])["schema"]}),
    ],
    ids=str,
)
async def test_what_nothing_can_take_is_a_bad_request(rig: Rig, path: str, body: dict[str, Any]) -> None:
    """A 500 would be read as a commit that may have happened; one of these was never answered."""
    catalog, above = serving.catalog_of(rig), "/v1/namespaces/out"
    await ask(catalog, "POST", "/v1/namespaces", {"namespace": ["out"], "properties": {"a": "b"}})
    both = {**FIRST, "fields": [*FIRST["fields"], {"id": 2, "name": "y", "type": "int", "required": False}]}
    await ask(catalog, "POST", f"{above}/tables", {"name": "t", "schema": both})
    narrower = [{"action": "add-schema", "schema": FIRST}, {"action": "set-current-schema", "schema-id": -1}]
    drops = {"updates": narrower, "requirements": []}
    for named, content in (("tables/t", drops), ("views", VIEW)):
        assert (await ask(catalog, "POST", f"{above}/{named}", content))[0] == 200
    before = dict(rig.replica.state.tables)
    found, answer = await ask(catalog, "POST", f"{above}{path}", {"requirements": [], **body})
    assert (found, answer["error"]["code"], answer["error"]["type"]) == (400, 400, "BadRequestException")
    assert (rig.replica.state.tables, rig.replica.state.namespaces["out"]) == (before, {"a": "b"})


async def test_properties_that_are_not_there_are_removed_as_in_the_reference(rig: Rig) -> None:
    catalog = serving.catalog_of(rig)
    await ask(catalog, "POST", "/v1/namespaces", {"namespace": ["out"]})
    made = {"name": "t", "schema": FIRST, "properties": {"a": "1", "b": "2"}}
    await ask(catalog, "POST", "/v1/namespaces/out/tables", made)
    updates = [
        {"action": "set-properties", "updates": {"c": "3"}},
        {"action": "remove-properties", "removals": ["a", "c", "c", "no"]},
        {"action": "remove-properties", "removals": ["a"]},
    ]
    body = {"requirements": [], "updates": updates}
    status, answer = await ask(catalog, "POST", "/v1/namespaces/out/tables/t", body)
    assert (status, answer["metadata"]["properties"]) == (200, {"b": "2"})


async def test_changes_of_a_namespace_at_the_same_time_all_count(rig: Rig) -> None:
    catalog, path = serving.catalog_of(rig), "/v1/namespaces/out/properties"
    await ask(catalog, "POST", "/v1/namespaces", {"namespace": ["out"], "properties": {"z": "0", "y": "1"}})
    changes = [{"updates": {f"k{each}": "v"}} for each in range(8)] + [{"removals": ["z", "z", "no"]}]
    answers = await asyncio.gather(*(ask(catalog, "POST", path, each) for each in changes))
    assert {status for status, _ in answers} == {200}
    assert answers[-1][1] == {"updated": [], "removed": ["z"], "missing": ["no"]}
    after = {"y": "1", **{f"k{each}": "v" for each in range(8)}}
    assert rig.replica.state.namespaces["out"] == after


async def test_a_namespace_that_was_dropped_meanwhile_does_not_come_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = serving.catalog_of(rig)
    await ask(catalog, "POST", "/v1/namespaces", {"namespace": ["out"]})
    propose = rig.replica.propose

    async def late(message: Message) -> object:
        monkeypatch.undo()
        await propose(DropNamespace(name="out"))
        return await propose(message)

    monkeypatch.setattr(Replica, "propose", lambda _, message: late(message))
    status, _ = await ask(catalog, "POST", "/v1/namespaces/out/properties", {"updates": {"k": "v"}})
    assert (status, "out" in rig.replica.state.namespaces) == (404, False)


async def test_purge_takes_the_files_along(rig: Rig, url: str) -> None:
    def story(catalog: RestCatalog) -> str:
        catalog.create_namespace("out")
        table = catalog.create_table("out.t", SCHEMA)
        table.append(ROWS)
        catalog.purge_table("out.t")
        return table.location()

    location = await in_thread(url, story)
    left = [each async for page in rig.store.list(rig.warehouse.key(location)) for each in page]
    assert left == []
