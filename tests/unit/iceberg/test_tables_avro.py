"""Tables of topics whose subjects are of AVRO: rows by the version that they name, columns by their names."""

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest

from iceberg.committer import Committer
from iceberg.writers import ProcessWriter
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_tables_bindings import values
from tests.unit.iceberg.test_tables_followed import ONE as PROTOBUF
from tests.unit.iceberg.test_tables_followed import VALIDATION, Registry


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


@pytest.fixture
def registry(rig: Rig) -> Registry:
    return Registry(rig)


def order(*fields: Any, name: str = "shop.Order") -> dict[str, Any]:
    """A record; each field (name, type) or a dict."""
    made = [each if isinstance(each, dict) else {"name": each[0], "type": each[1]} for each in fields]
    return {"type": "record", "name": name, "fields": made}


ID, PRICE = ("id", "long"), ("price", "int")


class Team:
    """Registers schemas, and writes records by them with fastavro."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.parsed: dict[int, Any] = {}

    async def register(self, said: Any, subject: str = "t-value") -> int:
        schema_id = await self.registry.register(json.dumps(said), subject, "AVRO")
        self.parsed[schema_id] = fastavro.parse_schema(said)
        return schema_id

    def framed(self, schema_id: int, value: Any) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, self.parsed[schema_id], value)
        return b"\x00" + schema_id.to_bytes(4, "big") + stream.getvalue()


@pytest.fixture
def team(registry: Registry) -> Team:
    return Team(registry)


async def types(rig: Rig) -> dict[str, Any]:
    """The value's columns with their types, those of structs as {name: type}."""
    fields = (await rig.head()).metadata["schemas"][-1]["fields"][2]["type"]["fields"]
    return {each["name"]: _plain(each["type"]) for each in fields if not each["name"].startswith("__")}


def _plain(kind: Any) -> Any:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return {each["name"]: _plain(each["type"]) for each in kind["fields"]}
    return [_plain(kind["element" if kind["type"] == "list" else "value"])]


async def test_rows_are_decoded_by_the_version_that_they_name(rig: Rig, team: Team) -> None:
    """Wider numbers widen, what comes is added, what cannot be the same is a column of its own."""
    await rig.create_topic(**VALIDATION)
    one = await team.register(
        order(ID, PRICE, ("note", "string"), ("tags", {"type": "array", "items": "string"}))
    )
    await rig.produce([team.framed(one, {"id": 1, "price": 5, "note": "n", "tags": ["a"]})])
    committer = rig.committer()
    await rig.drain(committer)
    assert await types(rig) == {"id": "long", "price": "int", "note": "string", "tags": ["string"]}
    two = await team.register(
        order(("price", "long"), ("note", ["null", "double"]), ("id", ["null", "long"]))
    )
    await rig.produce(
        [
            team.framed(two, {"id": 2, "price": 1 << 40, "note": 0.5}),
            team.framed(one, {"id": 3, "price": 7, "note": "m", "tags": []}),
            None,
            team.framed(two, {"id": None, "price": 1, "note": None}),
            team.framed(one, {"id": 4, "price": 7, "note": "m", "tags": []})[:-1],
        ]
    )
    await rig.drain(committer)
    found = await types(rig)
    (old,) = (name for name in found if name.startswith("note__"))
    assert found == {"price": "long", "note": "double", "id": "long", old: "string", "tags": ["string"]}
    assert await values(rig) == [
        {"id": 1, "price": 5, "note": "n", "tags": ["a"]},  # as its file calls them
        {"id": 2, "price": 1 << 40, "note": 0.5},
        {"id": 3, "price": 7, old: "m", "tags": []},
        None,
        {"price": 1},
        {"__err__": "field `tags[0]`: 1 byte needed at byte 4, 0 left"},
    ]


async def test_an_alias_is_a_rename(rig: Rig, team: Team) -> None:
    """The column stays with its rows, for whoever commits; a new field of the old name is another one."""
    await rig.create_topic(**VALIDATION)
    one = await team.register(order(ID, PRICE))
    await rig.produce([team.framed(one, {"id": 1, "price": 5})])
    await rig.drain(rig.committer())
    before = await ids(rig)
    two = await team.register(order(ID, {"name": "cost", "type": "long", "aliases": ["price"]}))
    await rig.produce([team.framed(two, {"id": 2, "cost": 6}), team.framed(one, {"id": 3, "price": 7})])
    await rig.drain(rig.committer())
    assert await types(rig) == {"id": "long", "cost": "long"}
    after = await ids(rig)
    assert after == {"id": before["id"], "cost": before["price"]}
    wanted = [{"id": 1, "price": 5}, {"id": 2, "cost": 6}, {"id": 3, "cost": 7}]
    assert await values(rig) == wanted
    three = await team.register(order(ID, ("cost", "long"), ("price", "long")))
    await rig.produce([team.framed(three, {"id": 4, "cost": 8, "price": 9})])
    await rig.drain(rig.committer())
    assert await types(rig) == {"id": "long", "cost": "long", "price": "long"}
    assert (await ids(rig)).items() > after.items()
    assert await values(rig) == [*wanted, {"id": 4, "cost": 8, "price": 9}]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("aliases", [[], ["price"]])
@pytest.mark.parametrize("first", ["price", "cost"])
async def test_a_new_field_of_a_former_name_is_another_one_wherever_it_stands(
    rig: Rig, team: Team, first: str, aliases: list[str], nested: bool
) -> None:
    """Before the renamed field it took that one's column, with the values of all older rows."""

    def schema(*fields: Any) -> dict[str, Any]:
        inner = order(ID, *fields)
        return order(("in", {"type": "array", "items": inner}), name="shop.Box") if nested else inner

    def record(**values: int) -> dict[str, Any]:
        return {"in": [values]} if nested else values

    await rig.create_topic(**VALIDATION)
    both = [
        {"name": "cost", "type": "int", "aliases": aliases},
        {"name": "price", "type": "int", "default": 0},
    ]
    one = schema(PRICE)
    two = schema({"name": "cost", "type": "int", "aliases": ["price"]})
    three = schema(*sorted(both, key=lambda each: each["name"] != first))
    for said, written in (
        (one, {"id": 1, "price": 5}),
        (two, {"id": 2, "cost": 6}),
        (three, {"id": 3, "cost": 7, "price": 8}),
        (two, {"id": 4, "cost": 9}),
        (one, {"id": 5, "price": 10}),
    ):
        await rig.produce([team.framed(await team.register(said), record(**written))])
        await rig.drain(rig.committer())
    rows = [each["in"][0] if nested else each for each in await seen(rig)]
    told = [{name: each for name, each in row.items() if not name.startswith("__")} for row in rows]
    assert told == [
        {"id": 1, "cost": 5, "price": None},
        {"id": 2, "cost": 6, "price": None},
        {"id": 3, "cost": 7, "price": 8},
        {"id": 4, "cost": 9, "price": 0},
        {"id": 5, "cost": 10, "price": None},
    ]


async def seen(rig: Rig) -> list[dict[str, Any]]:
    """The values by offset, as a reader of the table has them now."""

    def read(url: str) -> list[dict[str, Any]]:
        with contextlib.closing(serving.client(url)) as catalog:
            rows: list[dict[str, Any]] = catalog.load_table("floe.t").scan().to_arrow().to_pylist()
        return sorted(rows, key=lambda row: row["kafka"]["offset"])

    async with serving.served(serving.catalog_of(rig)) as url:
        return [row["value"] for row in await asyncio.to_thread(read, url)]


async def test_a_union_of_records_has_a_column_for_each(rig: Rig, team: Team) -> None:
    """Also a union within a record; what holds itself is JSON text."""
    await rig.create_topic(**VALIDATION)
    paid, refunded = order(ID, name="shop.Paid"), order(ID, ("why", "string"), name="shop.Refunded")
    event = order(
        ID, ("event", ["null", paid, refunded, "string"]), ("next", ["null", "shop.Event"]), name="shop.Event"
    )
    one = await team.register(event)
    events: list[Any] = [("shop.Paid", {"id": 7}), ("shop.Refunded", {"id": 8, "why": "w"}), "free", None]
    last = {"id": 5, "event": None, "next": None}
    records = [{"id": at, "event": each, "next": last if at == 3 else None} for at, each in enumerate(events)]
    await rig.produce([team.framed(one, each) for each in records])
    await rig.drain(rig.committer())
    assert await types(rig) == {
        "id": "long",
        "event": {"Paid": {"id": "long"}, "Refunded": {"id": "long", "why": "string"}, "string": "string"},
        "next": "string",
    }
    none = {"Paid": None, "Refunded": None, "string": None}
    assert await values(rig) == [
        {"id": 0, "event": {**none, "Paid": {"id": 7}}},
        {"id": 1, "event": {**none, "Refunded": {"id": 8, "why": "w"}}},
        {"id": 2, "event": {**none, "string": "free"}},
        {"id": 3, "next": '{"id":5,"event":null,"next":null}'},
    ]


async def test_a_schema_that_is_no_record_has_one_column(rig: Rig, team: Team) -> None:
    await rig.create_topic(**VALIDATION)
    schema_id = await team.register({"type": "map", "values": ["null", "int"]})
    await rig.produce([team.framed(schema_id, {"a": 1, "b": None})])
    await rig.drain(rig.committer())
    assert await values(rig) == [{"value": [("a", 1), ("b", None)]}]


async def test_avro_behind_protobuf_has_columns_of_its_own(rig: Rig, registry: Registry, team: Team) -> None:
    """Equal names are told apart, and protobuf's columns keep their ids."""
    await rig.create_topic(**VALIDATION)
    message = await registry.register(PROTOBUF)
    await rig.produce([registry.framed(message, id=1, old="a")])
    await rig.drain(rig.committer())
    before = await ids(rig)
    avro = await team.register(order(ID))
    await rig.produce([team.framed(avro, {"id": 2}), registry.framed(message, id=3, old="c")])
    await rig.drain(rig.committer())
    after = await ids(rig)
    assert before["old"] == after["old"]
    assert sorted(before.values()) == sorted(set(after.values()) - {after["id"]})
    (was,) = (name for name, number in after.items() if number == before["id"])
    assert was != "id"
    assert await values(rig) == [{"id": 1, "old": "a"}, {"id": 2}, {was: 3, "old": "c"}]


async def ids(rig: Rig) -> dict[str, int]:
    fields = (await rig.head()).metadata["schemas"][-1]["fields"][2]["type"]["fields"]
    return {each["name"]: each["id"] for each in fields if not each["name"].startswith("__")}


async def test_the_helper_process_makes_the_same_rows(rig: Rig, team: Team) -> None:
    writer = ProcessWriter()
    try:
        await rig.create_topic(**VALIDATION)
        one = await team.register(order(ID, PRICE))
        await rig.produce([team.framed(one, {"id": 9, "price": 1})])
        await rig.drain(Committer(replace(rig.parts, writer=writer), "t"))
    finally:
        await writer.close()
    assert await values(rig) == [{"id": 9, "price": 1}]


async def test_a_schema_of_too_many_columns_leaves_its_rows_raw(rig: Rig, team: Team) -> None:
    """Nothing waits for it, and the bytes are kept."""
    await rig.create_topic(**VALIDATION)
    wide = await team.register(order(*((f"f{at}", "boolean") for at in range(2_001))))
    narrow = await team.register(order(ID))
    await rig.produce(
        [team.framed(wide, {f"f{at}": True for at in range(2_001)}), team.framed(narrow, {"id": 1})]
    )
    await rig.drain(rig.committer())
    assert await values(rig) == [{}, {"id": 1}]
