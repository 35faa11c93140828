"""JSON schemas through Confluent's Schema Registry API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schema.registry.json import text as json_text
from tests.unit.agent.http.registry_rig import A, Registry, reference

OLD = '{"type": "object", "properties": {"a": {"maximum": 1.0}}, "additionalProperties": false}'
WIDER = '{"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": false}'
BROKEN = '{"type": "object", "properties": {"a": {"maximum": 0.5}}, "additionalProperties": false}'
USES = '{"type": "array", "items": {"$ref": "a.json"}}'
JSON = {"schemaType": "JSON"}


async def test_registered_and_read_in_every_way(registry: Registry) -> None:
    told = await registry.register("s", OLD, **JSON)
    assert (told["id"], told["version"]) == (1, 1)
    version = await registry.get("/subjects/s/versions/1")
    assert version == {
        "subject": "s", "version": 1, "id": 1, "guid": told["guid"], "schemaType": "JSON", "schema": OLD,
    }  # fmt: skip
    assert await registry.get("/schemas/ids/1") == {"guid": told["guid"], "schemaType": "JSON", "schema": OLD}
    assert (await registry.client.get("/subjects/s/versions/1/schema")).text == OLD
    assert (await registry.client.get("/schemas/ids/1/schema?format=serialized")).text == OLD
    assert "JSON" in await registry.get("/schemas/types")


async def test_the_same_content_has_the_same_id(registry: Registry) -> None:
    first = await registry.register("s", OLD, **JSON)
    spaced = json.dumps(json.loads(OLD), indent=2)
    assert await registry.register("s", spaced, **JSON) == first
    assert (await registry.register("t", spaced, **JSON))["id"] == first["id"]
    assert (await registry.look_up("s", spaced, **JSON))["schema"] == OLD
    await registry.look_up("s", WIDER, 40403, **JSON)
    await registry.put("/config", compatibility="NONE")
    assert (await registry.register("s", OLD.replace("1.0", "1"), **JSON))["id"] != first["id"]


async def test_normalized_keys_are_in_order(registry: Registry) -> None:
    turned = json.dumps(dict(reversed(json.loads(OLD).items())))
    first = await registry.register("s", OLD, query="?normalize=true", **JSON)
    assert await registry.register("s", turned, query="?normalize=true", **JSON) == first
    shown = await registry.get("/subjects/s/versions/1")
    assert (
        shown["schema"] == '{"additionalProperties":false,"properties":{"a":{"maximum":1.0}},"type":"object"}'
    )
    await registry.look_up("s", OLD, 40403, **JSON)
    assert (await registry.look_up("s", turned, query="?normalize=true", **JSON))["version"] == 1


async def test_compatibility_is_asked_and_kept(registry: Registry) -> None:
    await registry.register("s", OLD, **JSON)
    told = await registry.register("s", BROKEN, 409, **JSON)
    assert 'errorType:"MAXIMUM_DECREASED"' in told["message"]
    assert "(path '#/properties/a/maximum')" in told["message"]
    path = "/compatibility/subjects/s/versions"
    for end in ("", "/latest", "/1"):
        answer = await registry.ask("POST", f"{path}{end}?verbose=true", {"schema": BROKEN, **JSON})
        assert (answer["is_compatible"], len(answer["messages"])) == (False, 4)
        good = await registry.ask("POST", f"{path}{end}?verbose=true", {"schema": WIDER, **JSON})
        assert good == {"is_compatible": True, "messages": []}
    assert (await registry.register("s", WIDER, **JSON))["version"] == 2
    other = await registry.register("s", A, 409)
    assert "different schema type: PROTOBUF after JSON" in other["message"]


async def test_references(registry: Registry) -> None:
    await registry.register("a", OLD, **JSON)
    given: dict[str, Any] = {**JSON, "references": [reference("a", -1, "a.json")]}
    told = await registry.register("b", USES, **given)
    shown = await registry.get("/subjects/b/versions/1")
    assert shown["references"] == [reference("a", 1, "a.json")]
    assert await registry.get("/subjects/a/versions/1/referencedby") == [told["id"]]
    assert (await registry.look_up("b", USES, **given))["version"] == 1
    await registry.register("a", WIDER, **JSON)
    assert (await registry.register("b", USES, **given))["version"] == 2, "it means another a.json"
    with_deep = {**JSON, "references": [reference("b", 2, "b.json")]}
    assert (await registry.register("c", '{"$ref": "b.json"}', **with_deep))["version"] == 1
    narrow = {**JSON, "references": [reference("a", 1, "a.json")]}
    missing = await registry.register("b", USES, 42201, **JSON)
    assert '"a.json" is neither in the schema nor the name of a reference' in missing["message"]
    back = await registry.ask(
        "POST", "/compatibility/subjects/b/versions/latest?verbose=true", {"schema": USES, **narrow}
    )
    assert "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL" in back["messages"][0] + back["messages"][1]


async def test_a_reference_to_another_type_is_none(registry: Registry) -> None:
    await registry.register("p", A)
    told = await registry.register("b", USES, 42201, **JSON, references=[reference("p", 1, "a.json")])
    assert "reference a.json: no JSON schema" in told["message"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"type": }', "line 1, column 10"),
        ('{"type": "strin"}', "#/type"),
        ('{"$ref": "http://127.0.0.1/x"}', "nothing is fetched"),
        ("[" * 60_000, f"more than {json_text.NESTING_MAX} levels"),
    ],
)
async def test_what_is_no_schema(registry: Registry, text: str, words: str) -> None:
    for path in ("/subjects/s/versions", "/compatibility/subjects/s/versions"):
        told = await registry.ask("POST", path, {"schema": text, **JSON}, 42201)
        assert words in told["message"]
    assert await registry.get("/subjects") == []
