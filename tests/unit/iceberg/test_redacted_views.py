"""Views that the catalog makes of tables whose topics redact: what they show, and what they never do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coordination.commands import AlterTopicConfigs, BindSchema, PutNamespace
from coordination.state.types import Done
from iceberg.catalog import Catalog
from schema import framing
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.serving import ask, catalog_of, client, served
from tests.unit.iceberg.test_tables_bindings import encoded, kind
from tests.unit.iceberg.test_tables_followed import VALIDATION, Registry
from tests.unit.iceberg.test_views import SCHEMA, query_of, request

VIEWS = "/v1/namespaces/floe/views"
PERSON = b"""
syntax = "proto3"; package p;
message M {
  uint64 id = 1; string who = 2 [debug_redact = true]; Home home = 3; repeated Home homes = 4;
  map<string, Home> named = 5; M boss = 6; repeated string phones = 7 [debug_redact = true];
  int32 age = 8 [debug_redact = true]; Home hidden = 9 [debug_redact = true];
}
message Home { string town = 1; string street = 2 [debug_redact = true]; }
"""
PLAIN = b'syntax = "proto3"; package p; message M { uint64 id = 1; string who = 2; string more = 10; }'
OTHER = b'syntax = "proto3"; package q; message N { uint64 id = 1; string who = 2; }'


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigs.running(tmp_path) as found:
        yield found


@pytest.fixture
def catalog(rig: Rig) -> Catalog:
    return catalog_of(rig)


async def configure(rig: Rig, **configs: str) -> None:
    message = AlterTopicConfigs(topic="t")
    for name, value in configs.items():
        message.changes.add(name=name.replace("__", "."), value=value)
    assert isinstance(await rig.replica.propose(message), Done)


async def loaded(catalog: Catalog, name: str = "t_redacted") -> dict[str, Any]:
    status, found = await ask(catalog, "GET", f"{VIEWS}/{name}")
    assert status == 200, found
    metadata: dict[str, Any] = found["metadata"]
    return metadata


def names(kind: Any) -> Any:
    """Names of columns, of structs those inside."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return {each["name"]: names(each["type"]) for each in kind["fields"]}
    return [names(kind["element" if kind["type"] == "list" else "value"])]


def shown(metadata: dict[str, Any]) -> Any:
    """The columns, without those that Kafka has."""
    found = names(metadata["schemas"][0])
    assert {"kafka", "headers"} <= found.keys()
    return {name: each for name, each in found.items() if name not in ("kafka", "headers")}


async def test_marked_columns_are_not_in_the_view(rig: Rig, catalog: Catalog) -> None:
    """At any depth; what may hold them as bytes is left out whole, and what stands in no schema."""
    await rig.create_topic(floe__redact="remove")
    await rig.bind(PERSON, "p.M")
    await rig.produce([encoded(PERSON, id=1, who="secret")])
    assert (await ask(catalog, "GET", f"{VIEWS}/t_redacted"))[0] == 404, "there is no table yet"
    await rig.drain(rig.committer())
    home = {"town": "string"}
    due = {"id": "decimal(20, 0)", "home": home, "homes": [home], "named": [home]}
    found = await loaded(catalog)
    assert shown(found) == {"key": {"__raw__": "binary"}, "value": due}
    assert all(
        each not in query_of({"metadata": found}) for each in ("who", "__err__", "boss", "street", "age")
    )
    await configure(rig, floe__redact="mask")
    masked = {"town": "string", "street": "string"}
    due = {"id": "decimal(20, 0)", "who": "string", "home": masked, "homes": [masked], "named": [masked]}
    assert shown(await loaded(catalog))["value"] == {**due, "phones": ["string"]}
    await configure(rig, floe__redact="hash")
    assert "who" not in shown(await loaded(catalog))["value"], "the key of hashes is in no query"
    await configure(rig, floe__redact="off")
    assert (await ask(catalog, "GET", f"{VIEWS}/t_redacted"))[0] == 404


async def test_a_view_follows_its_table_and_the_strictest_of_its_schemas(rig: Rig, catalog: Catalog) -> None:
    """A column is hidden as soon as one schema marks it, for rows of the others too."""
    await rig.create_topic(floe__redact="remove")
    await rig.bind(PLAIN, "p.M")
    await rig.produce([encoded(PLAIN, id=1, who="a", more="m")])
    await rig.drain(committer := rig.committer())
    first = await loaded(catalog)
    assert shown(first)["value"] == {"id": "decimal(20, 0)", "who": "string", "more": "string"}
    await rig.bind(PERSON, "p.M")
    second = await loaded(catalog)
    assert shown(second)["value"] == {"id": "decimal(20, 0)", "more": "string"}, "at once, before any row"
    await rig.produce([encoded(PERSON, id=2, who="b", home={"town": "x"})])
    await rig.drain(committer)
    third = await loaded(catalog)
    assert [*shown(third)["value"]] == ["id", "home", "homes", "named", "more"]
    assert first["view-uuid"] == third["view-uuid"]
    await rig.bind(OTHER, "q.N")
    await rig.produce([kind(OTHER, "q.N").message_class(id=3, who="c").SerializeToString()])
    await rig.drain(committer)
    assert "who" not in shown(await loaded(catalog))["value"], "its column is that of p.M.who"


async def test_flat_tables_keys_and_their_bytes(rig: Rig, catalog: Catalog) -> None:
    """Raw keys are shown where keys never had a schema, as consumers read them."""
    await rig.create_topic(floe__redact="remove", floe__table__layout="flat")
    await rig.bind(PERSON, "p.M")
    await rig.bind(PERSON, "p.M", role=int(BindSchema.KEY))
    key = encoded(PERSON, id=1, who="secret")
    await rig.produce([encoded(PERSON, id=1, who="secret")], keys=[key])
    await rig.drain(rig.committer())
    found = shown(await loaded(catalog))
    assert [*found] == ["key", "id", "home", "homes", "named"]
    assert [*found["key"]] == ["id", "home", "homes", "named"]


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": ["null", "string"], "confluent:tags": ["PII"]},
        {"name": "pay", "type": [
            {"type": "record", "name": "Card", "fields": [
                {"name": "number", "type": "string", "confluent:tags": ["PII"]},
                {"name": "y", "type": "int"}]},
            "string"]},
        {"name": "tree", "type": {"type": "record", "name": "Tree", "fields": [
            {"name": "leaf", "type": "string", "confluent:tags": ["PII"]},
            {"name": "next", "type": ["null", "Tree"]}]}},
        {"name": "tags", "type": {"type": "array", "items": {"type": "string", "confluent:tags": ["PII"]}}},
        {"name": "took", "type": {"type": "fixed", "size": 12, "name": "D", "logicalType": "duration"}},
    ],
}  # fmt: skip
JSON = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "who": {"type": "string", "confluent:tags": ["PII"]},
        "either": {"oneOf": [{"type": "null"}, {"type": "string", "confluent:tags": ["PII"]}]},
        "home": {"$ref": "#/definitions/home"},
        "homes": {"type": "array", "items": {"$ref": "#/definitions/home"}},
        "named": {"type": "object", "additionalProperties": {"$ref": "#/definitions/home"}},
        "some": {"type": ["string", "integer"]},
        "open": {"type": "object"},
        "several": {"oneOf": [{"$ref": "#/definitions/home"}, {"type": "integer"}]},
    },
    "definitions": {
        "home": {
            "type": "object",
            "properties": {
                "town": {"type": "string"},
                "street": {"type": "string", "confluent:tags": ["PII"]},
            },
        }
    },
}
DATUM = b"\x02" + b"\x02\x02s" + b"\x00\x02s\x0e" + b"\x02s\x00" + b"\x00" + bytes(12)
ROWS: dict[str, tuple[Any, bytes, dict[str, Any]]] = {
    "AVRO": (
        AVRO,
        DATUM,
        {"id": "long", "pay": {"Card": {"y": "int"}, "string": "string"}, "tree": None, "took": None},
    ),
    "JSON": (
        JSON,
        b'{"id":1,"who":"s","home":{"town":"x","street":"s"}}',
        {
            "id": "long", "home": {"town": "string"}, "homes": [{"town": "string"}],
            "named": [{"town": "string"}], "some": "string", "open": "string",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("schema_type", ROWS)
async def test_subjects_of_other_types(rig: Rig, catalog: Catalog, schema_type: str) -> None:
    said, payload, due = ROWS[schema_type]
    await rig.create_topic(floe__redact="remove", **VALIDATION)
    number = await Registry(rig).register(json.dumps(said), schema_type=schema_type)
    await rig.produce([framing.prefix(number, (0,))[: framing.ID_END] + payload])
    await rig.drain(rig.committer())
    found = shown(await loaded(catalog))["value"]
    if schema_type == "AVRO":
        due = {**due, "took": {"months": "long", "days": "long", "millis": "long"}}
        del due["tree"]  # its leaf is marked, and what holds itself is text
    assert found == due


BY_PATH = {
    "AVRO": ("Order.who", "Order.tags", "Card.number", "Tree.leaf"),
    "JSON": ("$.who", "$.either", "$.home*.street", "$.several", "$.named.?.street", "$.open.ssn"),
}


@pytest.mark.parametrize("schema_type", ROWS)
async def test_tags_in_metadata_hide_columns_as_those_in_schemas(
    rig: Rig, catalog: Catalog, schema_type: str
) -> None:
    """Of JSON a map's column has all keys, and text may have any: they go where one of them is named."""
    said, payload, due = ROWS[schema_type]
    text = json.dumps(said).replace(', "confluent:tags": ["PII"]', "")
    metadata = json.dumps({"tags": {each: ["PII"] for each in BY_PATH[schema_type]}})
    await rig.create_topic(floe__redact="remove", **VALIDATION)
    number = await Registry(rig).register(text, schema_type=schema_type, metadata=metadata)
    await rig.produce([framing.prefix(number, (0,))[: framing.ID_END] + payload])
    await rig.drain(rig.committer())
    found = shown(await loaded(catalog))["value"]
    due = {name: each for name, each in due.items() if name not in ("tree", "named", "took", "open")}
    assert {name: each for name, each in found.items() if name != "took"} == due


async def test_metadata_whose_tags_cannot_be_told_hides_all(rig: Rig, catalog: Catalog) -> None:
    await rig.create_topic(floe__redact="remove", **VALIDATION)
    text = 'syntax = "proto3"; package a; message Order { uint64 id = 1; string who = 2; }'
    registry = Registry(rig)
    number = await registry.register(text, metadata='{"tags":{"a.Order.who":["PII"]}}')
    await rig.produce([registry.framed(number, id=1, who="w")])
    await rig.drain(rig.committer())
    assert shown(await loaded(catalog))["value"] == {"id": "decimal(20, 0)"}
    await registry.register(text, metadata='{"tags":{"a[0]":["PII"]}}')
    assert "value" not in shown(await loaded(catalog))


async def test_columns_of_schemas_that_are_gone_are_hidden(rig: Rig, catalog: Catalog) -> None:
    """Nobody can tell any more whether they were marked."""
    registry = Registry(rig)
    await rig.create_topic(floe__redact="remove", **VALIDATION)
    one = await registry.register(
        'syntax = "proto3"; package a; message Order { uint64 id = 1; string who = 2; }'
    )
    await rig.produce([registry.framed(one, id=1, who="w")])
    await rig.drain(rig.committer())
    assert [*shown(await loaded(catalog))["value"]] == ["id", "who"]
    two = await registry.register(
        'syntax = "proto3"; package b; message Order { uint64 id = 1; string what = 3; }'
    )
    await rig.produce([registry.framed(two, id=1, what="w")])
    await rig.drain(rig.committer())
    assert sorted(shown(await loaded(catalog))["value"]) == ["id", "what", "who"]
    await registry.delete("t-value", 1)
    assert [*shown(await loaded(catalog))["value"]] == ["what"], (
        "other rows' id was of a message that is gone"
    )


async def test_nobody_changes_such_a_view_or_takes_its_name(rig: Rig, catalog: Catalog) -> None:
    await rig.create_topic(floe__redact="remove")
    await rig.bind(PERSON, "p.M")
    await rig.produce([encoded(PERSON, id=1)])
    await rig.drain(rig.committer())
    _, listed = await ask(catalog, "GET", VIEWS)
    assert [each["name"] for each in listed["identifiers"]] == ["t_redacted"]
    assert (await ask(catalog, "HEAD", f"{VIEWS}/t_redacted"))[0] == 204
    assert (await ask(catalog, "GET", "/v1/namespaces/floe/tables/t_redacted"))[0] == 404
    for method, path, body in (
        ("DELETE", f"{VIEWS}/t_redacted", None),
        ("POST", f"{VIEWS}/t_redacted", {"updates": [], "requirements": []}),
    ):
        status, told = await ask(catalog, method, path, body)
        assert (status, "follows from topic 't'" in told["error"]["message"]) == (403, True)
    table = {"name": "t_redacted", "schema": SCHEMA}
    assert (await ask(catalog, "POST", VIEWS, request("t_redacted")))[0] == 409
    assert (await ask(catalog, "POST", "/v1/namespaces/floe/tables", table))[0] == 409
    assert (await ask(catalog, "POST", VIEWS, request("mine")))[0] == 200
    renamed = {"source": {"namespace": ["floe"], "name": "mine"}, "destination": {"namespace": ["floe"]}}
    renamed["destination"]["name"] = "t_redacted"
    assert (await ask(catalog, "POST", "/v1/views/rename", renamed))[0] == 409
    await rig.replica.propose(PutNamespace(name="ns"))
    assert (await ask(catalog, "GET", "/v1/namespaces/ns/views/t_redacted"))[0] == 404
    assert (await ask(catalog, "GET", f"{VIEWS}/mine_redacted"))[0] == 404


async def test_pyiceberg_lists_it(rig: Rig, catalog: Catalog) -> None:
    await rig.create_topic(floe__redact="remove")
    await rig.bind(PERSON, "p.M")
    await rig.produce([encoded(PERSON, id=1)])
    await rig.drain(rig.committer())
    async with served(catalog) as url:
        listed = await asyncio.to_thread(lambda: client(url).list_views("floe"))
        exists = await asyncio.to_thread(lambda: client(url).view_exists("floe.t_redacted"))
    assert (listed, exists) == ([("floe", "t_redacted")], True)
